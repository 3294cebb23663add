"""Two loops in one process that take turns, block by block."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from torch import distributed  # noqa: TID253

from paired.product import Product
from paired.ranks import Seat, agree

_NUM_WARM_UP: Final = 3
_GAP_S: Final = 0.02


class BlockLoop(Protocol):
    """A training loop that can be run a few iterations at a time."""

    @property
    def losses(self) -> Sequence[float]:
        """Losses by iteration; empty on ranks that know none."""

    def run_block(self, num_iterations: int) -> list[float]:
        """Train and return how long each iteration took, seconds."""


@dataclass(frozen=True, slots=True)
class BlockTurns:
    """How two loops take turns.

    Attributes:
        num_rounds: Times that the processes are started.
        num_pairs: Blocks of each loop in a round.
        block_s: About how long a block lasts, seconds.
    """

    num_rounds: int
    num_pairs: int
    block_s: float


def take_turns(
    make_measured: Callable[[], Product],
    make_reference: Callable[[], BlockLoop],
    turns: BlockTurns,
    seat: Seat,
    *,
    swaps: bool,
) -> dict[str, Any]:
    """Run both loops in turns on this rank; all ranks must call it.

    The order within a pair changes from pair to pair. The first iteration of each block is not
    counted: caches hold the other loop's data, and what the other loop left to the background may
        run on.

    Args:
        make_measured: Builds the loop that is measured, always Unicron's.
        make_reference: Builds the one that it is compared with.
        turns: How many blocks, and how long.
        seat: Where this rank runs.
        swaps: Builds and begins the other way round.

    Returns:
        ``pairs`` of iteration times in seconds, measured first, the losses of both, how many
        iterations the measured loop ran in all, and with how many in-memory checkpoints.
    """
    reference = make_reference() if swaps else None
    measured = make_measured()
    reference = reference or make_reference()
    # What was built stays, and need not be looked through after every block.
    gc.freeze()
    warm_up = [loop.run_block(_NUM_WARM_UP)[-1] for loop in (measured, reference)]
    size = max(1, round(agree(turns.block_s / min(warm_up), seat.place))) + 1
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
        "num_run": _NUM_WARM_UP + size * turns.num_pairs,
        "num_copies": measured.num_copies,
    }


def _run_block(loop: BlockLoop, size: int) -> list[float]:
    # What a block left behind is not to be paid for by the next one; so it is in neither's time.
    gc.collect()
    time.sleep(_GAP_S)
    distributed.barrier()
    return loop.run_block(size)[1:]
