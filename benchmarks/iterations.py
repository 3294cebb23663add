"""Measures what Unicron's loop costs an iteration without faults, beside plain Megatron.

    python benchmarks/iterations.py [--layouts L ...] [--tokens N ...] [--write-docs]

Plain Megatron is megatron-core's own DDP with overlapped reduction, its own finalisation of gradients,
schedule and optimizer. Both loops are built in the same processes, on the same model, data, seed,
layout and cores, and take turns in blocks of iterations; several rounds of fresh processes. Unicron's
reports go to a real agent. Figures, seconds unless said otherwise:

- ``iteration``, ``plain_iteration``: medians, of rank 0;
- ``ratio``: of the medians, Unicron to plain, with a 95 % confidence interval (bootstrap over rounds and
  pairs of blocks); ``mean_ratio``: of the means;
- ``max_loss_deviation``: largest relative difference of the losses; above 1e-5 the measurement fails.

These are measurements of one machine at one time, not limits.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pages import MEASUREMENTS, machine, machine_line, write_results, write_section
from paired.blocks import Turns, pairs_of, take_turns
from paired.plain import PlainMegatron
from paired.product import Product, launch_of, running_agents
from paired.ranks import Seat, run_ranks
from paired.ratio import Ratio, ratio_of_means, ratio_of_medians
from paired.workload import LAYOUTS, SIZES, Size, add_arguments, training_spec

from profiles.layout import Layout

_MAX_DEVIATION = 1e-5


def main() -> None:
    """Measure every layout and size, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default 5)")
    parser.add_argument(
        "--pairs", type=int, default=6, metavar="N", help="of blocks, per round (default 6)"
    )
    parser.add_argument(
        "--block", type=float, default=4.0, metavar="SECONDS", help="about (default 4)"
    )
    parser.add_argument("--write-docs", action="store_true", help="update docs/measurements.md")
    add_arguments(parser)
    arguments = parser.parse_args()
    cases = []
    for layout in arguments.layouts:
        for tokens in arguments.tokens:
            cases.append(_measure(arguments, layout, SIZES[tokens]))
            sys.stderr.write(f"{layout} {tokens} tokens: {_ratio(cases[-1]['ratio']).percent}\n")
    command = f"python benchmarks/iterations.py --layouts {' '.join(arguments.layouts)}"
    model = {"num_layers": arguments.layers, "hidden_size": arguments.hidden_size}
    report = {**machine(), "command": command, "model": model, "cases": cases}
    json.dump(report, sys.stdout, indent=1)
    sys.stdout.write("\n")
    if arguments.write_docs:
        write_results("iterations", report)
        write_section(MEASUREMENTS, "iterations", _section(report))


def _measure(arguments: argparse.Namespace, layout_name: str, size: Size) -> dict[str, Any]:
    layout = LAYOUTS[layout_name]
    turns = Turns(arguments.pairs, arguments.block)
    rounds, deviations = [], []
    for number in range(arguments.rounds):
        found = _run_round(arguments, layout, size, turns, swaps=bool(number % 2))
        rounds.append(pairs_of(found[0]))
        # Rank 0 reports for Unicron; plain Megatron knows the loss on the last stage.
        deviations.append(_deviation(found[0]["losses"], found[-1]["reference_losses"]))
    if max(deviations) > _MAX_DEVIATION:
        raise SystemExit(f"iterations.py: losses differ by {max(deviations):.1e} on {layout}")
    measured = [time for pairs in rounds for pair in pairs for time in pair.measured]
    reference = [time for pairs in rounds for pair in pairs for time in pair.reference]
    return {
        "layout": layout_name,
        "num_tokens": size.num_tokens,
        "num_iterations": len(measured),
        "iteration": round(statistics.median(measured), 5),
        "plain_iteration": round(statistics.median(reference), 5),
        "ratio": asdict(ratio_of_medians(rounds)),
        "mean_ratio": asdict(ratio_of_means(rounds)),
        "max_loss_deviation": max(deviations),
    }


def _run_round(
    arguments: argparse.Namespace, layout: Layout, size: Size, turns: Turns, *, swaps: bool
) -> list[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_agents(1, Path(directory)) as (state_dir,),
    ):
        spec = training_spec(arguments, size, layout, directory)

        def run(seat: Seat) -> dict[str, Any]:
            return take_turns(
                lambda: Product(launch_of(spec, seat.place), seat, state_dir),
                lambda: PlainMegatron(spec, seat.place),
                turns,
                seat,
                swaps=swaps,
            )

        return run_ranks(layout, spec.seed, run)


def _deviation(losses: list[float], reference: list[float]) -> float:
    return max(abs(a / b - 1) for a, b in zip(losses, reference, strict=True))


def _ratio(fields: dict[str, float]) -> Ratio:
    return Ratio(**fields)


def _section(report: dict[str, Any]) -> str:
    rows = [
        f"| {case['layout']} | {case['num_tokens']} | {1000 * case['plain_iteration']:.1f}"
        f" | {1000 * case['iteration']:.1f} | {_ratio(case['ratio']).percent}"
        f" | {_ratio(case['mean_ratio']).percent} | {case['max_loss_deviation']:.0e} |"
        for case in report["cases"]
    ]
    model = report["model"]
    return f"""\
{machine_line(report)} {model["num_layers"]} layers, hidden size {model["hidden_size"]}.

    {report["command"]}

| layout | tokens per rank and iteration | plain Megatron, ms | Unicron, ms | ratio of medians (95 %) | of means | losses differ by |
|---|---|---|---|---|---|---|
{chr(10).join(rows)}"""


if __name__ == "__main__":
    main()
