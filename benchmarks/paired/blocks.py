"""Two loops in one process that take turns, block by block."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torch import distributed  # noqa: TID253

from paired.ranks import Seat, agree
from paired.ratio import Pair

_NUM_WARM_UP: Final = 3
_MIN_BLOCK: Final = 4
_GAP_S: Final = 0.1


class BlockLoop(Protocol):
    """A training loop that can be run a few iterations at a time."""

    @property
    def losses(self) -> Sequence[float]:
        """Losses by iteration; empty on ranks that know none."""

    def run_block(self, num_iterations: int) -> list[float]:
        """Train and return how long each iteration took, seconds."""


@dataclass(frozen=True, slots=True)
class Turns:
    """How the loops take turns.

    Attributes:
        num_pairs: Blocks of each.
        block_s: About how long a block lasts, seconds.
    """

    num_pairs: int
    block_s: float


def take_turns(
    make_measured: Callable[[], BlockLoop],
    make_reference: Callable[[], BlockLoop],
    turns: Turns,
    seat: Seat,
    *,
    swaps: bool,
) -> dict[str, Any]:
    """Run both loops in turns on this rank; all ranks must call it.

    The order within a pair changes from pair to pair. The first iteration of each block is not
    counted: caches hold the other loop's data, and what the other loop left to the background may run on.

    Args:
        make_measured: Builds the loop that is measured.
        make_reference: Builds the one that it is compared with.
        turns: How many blocks, and how long.
        seat: Where this rank runs.
        swaps: Builds and begins the other way round.

    Returns:
        ``pairs`` of iteration times in seconds, and the losses of both.
    """
    makers = (make_reference, make_measured) if swaps else (make_measured, make_reference)
    built = [make() for make in makers]
    measured, reference = reversed(built) if swaps else built
    warm_up = [loop.run_block(_NUM_WARM_UP)[-1] for loop in (measured, reference)]
    size = max(_MIN_BLOCK, round(agree(turns.block_s / min(warm_up), seat.place))) + 1
    pairs = []
    for number in range(turns.num_pairs):
        is_reference_first = swaps ^ bool(number % 2)
        order = (reference, measured) if is_reference_first else (measured, reference)
        times = [_run_block(loop, size) for loop in order]
        pairs.append(times[::-1] if is_reference_first else times)
    return {
        "pairs": pairs,
        "losses": list(measured.losses),
        "reference_losses": list(reference.losses),
    }


def pairs_of(found: dict[str, Any]) -> list[Pair]:
    """Return the pairs in what ``take_turns`` returned."""
    return [Pair(measured, reference) for measured, reference in found["pairs"]]


def _run_block(loop: BlockLoop, size: int) -> list[float]:
    # What a block left behind is not to be paid for by the next one.
    gc.collect()
    time.sleep(_GAP_S)
    distributed.barrier()
    return loop.run_block(size)[1:]
