"""Measures what Unicron's loop costs an iteration without faults, beside plain Megatron.

    python benchmarks/iteration_cost.py [--layouts L ...] [--tokens N ...] [--write-docs]

Plain Megatron is megatron-core's own DDP with overlapped reduction, its own finalisation of
gradients, schedule and optimizer. Both loops are built in the same processes, on the same model,
data, seed, layout and cores, and take turns in short blocks of iterations, since the machine's
speed may change with its neighbours; several rounds of fresh processes. Unicron's reports go to a
real agent. Figures, seconds unless said otherwise:

- ``iteration``, ``reference_iteration``: medians, of Unicron and of plain Megatron;
- ``ratio``: median over all pairs of neighbouring blocks of Unicron's time over plain Megatron's,
  with a 95 % confidence interval (bootstrap over rounds and pairs); ``mean_ratio``: of the means of
  all;
- ``max_loss_deviation``: largest relative difference of the losses of the first fifty iterations;
  above 1e-5 the measurement fails.

In-memory checkpoints are off; ``memory_checkpoint_cost.py`` measures them. These are measurements
of one machine at one time, not limits.
"""

import argparse
import json
import sys
from typing import Any

from harness.result_pages import (
    MEASUREMENTS,
    commands_of,
    machine,
    machine_line,
    origin,
    with_others,
    write_results,
    write_section,
)
from harness.termination import end_on_sigterm
from paired.plain import PlainMegatron
from paired.product import Product, launch_of
from paired.ratio import Ratio
from paired.rounds import Stage, add_arguments, compare, turns_of
from paired.workload import LAYOUTS, SIZES, add_model_arguments, training_spec


def main() -> None:
    """Measure every layout and size, and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add_arguments(parser)
    add_model_arguments(parser)
    parser.add_argument(
        "--layouts",
        nargs="+",
        choices=list(LAYOUTS),
        default=["dp2"],
        metavar="LAYOUT",
        help=f"of {', '.join(LAYOUTS)} (default dp2)",
    )
    parser.add_argument("--write-docs", action="store_true", help="update docs/measurements.md")
    arguments = parser.parse_args()
    cases = []
    for name in arguments.layouts:
        for tokens in arguments.tokens:
            cases.append(_measure(name, tokens, arguments))
            sys.stderr.write(f"{_row(cases[-1])}\n")
    report = {
        **machine(),
        "cases": cases,
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        report["cases"] = with_others("iteration_cost", cases, "layout", "num_tokens")
        write_results("iteration_cost", report)
        write_section(MEASUREMENTS, "iteration_cost", _section(report))


def _measure(name: str, tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    layout = LAYOUTS[name]
    figures = compare(
        layout,
        lambda directory: training_spec(arguments, SIZES[tokens], layout, directory),
        _build_product,
        _build_plain,
        turns_of(arguments),
    )
    return {"layout": name, "num_tokens": tokens, **origin(arguments), **figures}


def _build_product(stage: Stage) -> Product:
    return Product(launch_of(stage.spec, stage.seat.place), stage.seat, stage.state_dir)


def _build_plain(stage: Stage) -> PlainMegatron:
    return PlainMegatron(stage.spec, stage.seat.place)


def _row(case: dict[str, Any]) -> str:
    return (
        f"| {case['layout']} | {case['num_tokens']} | {1000 * case['reference_iteration']:.1f}"
        f" | {1000 * case['iteration']:.1f} | {Ratio(**case['ratio']).percent}"
        f" | {Ratio(**case['mean_ratio']).percent} | {case['max_loss_deviation']:.0e} | {case['date']} |"
    )


def _section(report: dict[str, Any]) -> str:
    model, rows = report["cases"][-1]["model"], "\n".join(map(_row, report["cases"]))
    return f"""\
{machine_line(report)} {model["num_layers"]} layers, hidden size {model["hidden_size"]}.

{commands_of(report["cases"])}

| layout | tokens per rank and iteration | plain Megatron, ms | Unicron, ms | ratio of neighbouring blocks (95 %) | of means | losses differ by | date |
|---|---|---|---|---|---|---|---|
{rows}"""


if __name__ == "__main__":
    main()
