"""Measures what in-memory checkpoints cost: one every iteration, beside none.

    python benchmarks/memory_checkpoint_cost.py [--cases C ...] [--tokens N ...] [--interval K]
        [--write-docs]

Both loops are Unicron's, in the same processes and in turns (``iteration_cost.py`` says how). State
that every replica has is not copied, so the cases are those in which copies are made: an optimizer
sharded over the replicas, and stages or tensor-parallel ranks without a replica. As in the product,
each rank's copy is held by a rank on the other node. Figures, seconds unless said otherwise:

- ``iteration``, ``reference_iteration``: medians, with checkpoints and without;
- ``ratio``: median over all pairs of neighbouring blocks, with a 95 % confidence interval;
  ``mean_ratio``: of the means of all;
- ``copied``: share of the due checkpoints that were made: one that is still on its way lets the
  next one out.

Before a block ends its last copies are complete, as before any pause. So they count, and the last
ones of a block without any training beside them: blocks are longer here.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import sys
from typing import Any, Final

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
from paired.product import Product, launch_of
from paired.ratio import Ratio
from paired.rounds import Stage, add_arguments, compare, node_of, turns_of
from paired.workload import SIZES, add_model_arguments, training_spec

from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout

CASES: Final = {
    "dp2, sharded optimizer": (Layout(dp=2), True),
    "pp2": (Layout(pp=2), False),
    "tp2": (Layout(tp=2), False),
    "pp2 dp2": (Layout(pp=2, dp=2), False),
}
_DEFAULT_CASES: Final = list(CASES)[:3]


def main() -> None:
    """Measure every case and size, and print what was measured."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(tokens=[4096], block=6.0, pairs=10)
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=list(CASES),
        default=_DEFAULT_CASES,
        metavar="CASE",
        help=f"of {', '.join(map(repr, CASES))} (default: all of two ranks)",
    )
    parser.add_argument(
        "--interval", type=int, default=1, metavar="K", help="iterations (default 1)"
    )
    parser.add_argument("--write-docs", action="store_true", help="update docs/measurements.md")
    arguments = parser.parse_args()
    cases = []
    for name in arguments.cases:
        for tokens in arguments.tokens:
            size = {"case": name, "num_tokens": tokens, "interval": arguments.interval}
            cases.append({**size, **origin(arguments), **_measure(name, tokens, arguments)})
            sys.stderr.write(f"{_row(cases[-1])}\n")
    report = {
        **machine(),
        "cases": cases,
    }
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        report["cases"] = with_others(
            "memory_checkpoint_cost", cases, "case", "num_tokens", "interval"
        )
        write_results("memory_checkpoint_cost", report)
        write_section(MEASUREMENTS, "memory_checkpoint_cost", _section(report))


def _measure(name: str, tokens: int, arguments: argparse.Namespace) -> dict[str, Any]:
    layout, is_sharded = CASES[name]

    def make_spec(directory: str) -> TrainingSpec:
        spec = training_spec(arguments, SIZES[tokens], layout, directory)
        return spec.model_copy(update={"shard_optimizer": is_sharded})

    figures = compare(
        layout,
        make_spec,
        lambda stage: _build(stage, arguments.interval),
        lambda stage: _build(stage, 0),
        turns_of(arguments),
    )
    # A copy is seen after the iteration that follows it, so the last one of a round is not.
    num_due = (figures["num_run"] - arguments.rounds) // arguments.interval
    return {**figures, "copied": round(figures["num_copies"] / num_due, 3)}


def _build(stage: Stage, interval: int) -> Product:
    spec = stage.spec.model_copy(update={"memory_interval": interval})
    layout = stage.seat.place.layout
    placement = [
        Worker(NodeId(f"n{node_of(rank, layout) + 1}"), rank) for rank in range(layout.num_workers)
    ]
    holders = copy_holders(layout, placement, is_sharded=spec.shard_optimizer)
    launch = launch_of(spec, stage.seat.place, f"memory-{interval}")
    told = launch.model_copy(update={"copy_holders": holders if interval else ()})
    return Product(told, stage.seat, stage.state_dir, counts_copies=True)


def _row(case: dict[str, Any]) -> str:
    return (
        f"| {case['case']} | {case['num_tokens']} | {case['interval']} | {1000 * case['reference_iteration']:.1f}"
        f" | {1000 * case['iteration']:.1f} | {Ratio(**case['ratio']).percent}"
        f" | {Ratio(**case['mean_ratio']).percent} | {100 * case['copied']:.0f} % | {case['date']} |"
    )


def _section(report: dict[str, Any]) -> str:
    model, rows = report["cases"][-1]["model"], "\n".join(map(_row, report["cases"]))
    return f"""\
{machine_line(report)} {model["num_layers"]} layers, hidden size {model["hidden_size"]}.

{commands_of(report["cases"])}

| | tokens per rank and iteration | a checkpoint every ... iterations | without, ms | with, ms | ratio of neighbouring blocks (95 %) | of means | checkpoints made | date |
|---|---|---|---|---|---|---|---|---|
{rows}"""


if __name__ == "__main__":
    main()
