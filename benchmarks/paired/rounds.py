"""All rounds of one comparison, and the figures that come of them."""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from nodeagent.protocol.rank_launch import TrainingSpec
from paired.blocks import BlockLoop, BlockTurns, take_turns
from paired.product import Product, running_agents
from paired.ranks import Seat, run_ranks
from paired.ratio import Pair, ratio_of_means, ratio_of_pairs
from profiles.layout import Layout

_MAX_DEVIATION: Final = 1e-5
_NUM_COMPARED: Final = 50
"""Iterations whose losses must agree. Training amplifies rounding, and thousands are run."""


class LossError(Exception):
    """The two loops do not train alike, so their times can't be compared."""


class Stage(NamedTuple):
    """The parts of a loop: the training, the rank's seat, and its agent's state directory."""

    spec: TrainingSpec
    seat: Seat
    state_dir: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options that say how long is measured."""
    parser.add_argument(
        "--rounds", type=int, default=8, metavar="N", help="of fresh processes (default 8)"
    )
    parser.add_argument(
        "--pairs", type=int, default=50, metavar="N", help="of blocks, per round (default 50)"
    )
    parser.add_argument(
        "--block",
        type=float,
        default=0.5,
        metavar="SECONDS",
        help="length, about; an iteration at least (default 0.5)",
    )


def turns_of(arguments: argparse.Namespace) -> BlockTurns:
    """Return what the options of ``add_arguments`` say."""
    return BlockTurns(arguments.rounds, arguments.pairs, arguments.block)


def compare(
    layout: Layout,
    make_spec: Callable[[str], TrainingSpec],
    make_measured: Callable[[Stage], Product],
    make_reference: Callable[[Stage], BlockLoop],
    turns: BlockTurns,
) -> dict[str, Any]:
    """Run all rounds and return the figures, in seconds, of the clock of rank 0.

    ``num_run`` and ``num_copies`` count the iterations of the measured loop, those that are not
    timed included, and its in-memory checkpoints.
    There is an agent per node; the first half of the ranks runs on the first of two.

    Raises:
        LossError: The losses of both loops differ by more than 1e-5 (relative) in the first
        iterations. RuntimeError: A rank failed.
    """
    rounds: list[list[Pair]] = []
    deviation, num_run, num_copies = 0.0, 0, 0
    for number in range(turns.num_rounds):
        found = _run_round(
            layout, make_spec, make_measured, make_reference, turns, swaps=bool(number % 2)
        )
        num_run += found[0]["num_run"]
        num_copies += found[0]["num_copies"]
        rounds.append([Pair(*times) for times in found[0]["pairs"]])
        # Rank 0 reports for Unicron; plain Megatron knows the loss on the last stage.
        deviation = max(
            deviation, _deviation(_first(found, "losses"), _first(found, "reference_losses"))
        )
    if deviation > _MAX_DEVIATION:
        raise LossError(f"the losses differ by {deviation:.1e} (relative) on {layout}")
    pairs = [pair for pairs in rounds for pair in pairs]
    measured = [seconds for pair in pairs for seconds in pair.measured]
    reference = [seconds for pair in pairs for seconds in pair.reference]
    return {
        "num_iterations": len(measured),
        "iteration": round(statistics.median(measured), 5),
        "reference_iteration": round(statistics.median(reference), 5),
        "ratio": asdict(ratio_of_pairs(rounds)),
        "mean_ratio": asdict(ratio_of_means(rounds)),
        "max_loss_deviation": deviation,
        "num_run": num_run,
        "num_copies": num_copies,
    }


def _run_round(
    layout: Layout,
    make_spec: Callable[[str], TrainingSpec],
    make_measured: Callable[[Stage], Product],
    make_reference: Callable[[Stage], BlockLoop],
    turns: BlockTurns,
    *,
    swaps: bool,
) -> list[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory() as directory,
        running_agents(2, Path(directory)) as state_dirs,
    ):
        spec = make_spec(directory)

        def run(seat: Seat) -> dict[str, Any]:
            stage = Stage(spec, seat, state_dirs[node_of(seat.place.global_rank, layout)])
            return take_turns(
                lambda: make_measured(stage),
                lambda: make_reference(stage),
                turns,
                seat,
                swaps=swaps,
            )

        return run_ranks(layout, spec.seed, run)


def node_of(global_rank: int, layout: Layout) -> int:
    """Return which of the two nodes a rank runs on, 0 or 1."""
    return 2 * global_rank // layout.num_workers


def _first(found: Sequence[dict[str, Any]], key: str) -> list[float]:
    losses: list[float] = next(one[key] for one in found if one[key])
    return losses


def _deviation(losses: list[float], reference: list[float]) -> float:
    assert len(losses) == len(reference)
    pairs = zip(losses[:_NUM_COMPARED], reference[:_NUM_COMPARED], strict=True)
    return max(abs(a / b - 1) for a, b in pairs)
