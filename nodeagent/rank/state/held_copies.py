"""Where copies of shards lie in the memory of one process: its own, and those that it holds for others.

Every shard has two places, one for a complete copy and one for the next. Another one is made where all
hold what is to be kept: after a fault no single iteration may protect against every further loss. It
goes when newer copies are known to be complete everywhere.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch

from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import HeldCopy

_NUM_PLACES: Final = 2


class ShardKey(NamedTuple):
    """A shard: whose it is, and of how many at its (tp, pp)."""

    tp_rank: int
    pp_rank: int
    dp_rank: int
    num_shards: int


@dataclass(slots=True)
class Copy:
    """A place for a copy. Iteration 0: there is none, or it is being overwritten."""

    iteration: int = 0
    data: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


class HeldCopies:
    """The places of one process, over all its generations. Threads of older ones change nothing any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[ShardKey, list[Copy]] = {}
        self._kept: frozenset[int] = frozenset()
        self._generation: Generation | None = None

    def enter(self, generation: Generation, kept: Collection[int]) -> None:
        """Take up a generation in which the copies of these iterations are not overwritten until ``keep``."""
        with self._lock:
            self._generation, self._kept = generation, frozenset(kept)

    def leave(self) -> None:
        """End the generation; a place that is being filled stays with whoever fills it."""
        with self._lock:
            self._generation = None
            self._renew(lambda copy: copy.iteration > 0)

    def keep(self, iteration: int, keys: Collection[ShardKey]) -> None:
        """Those of ``iteration`` are complete everywhere: keep them, and nothing but these shards."""
        with self._lock:
            self._kept = frozenset({iteration})
            self._places = {
                key: sorted(copies, key=lambda copy: copy.iteration)[-_NUM_PLACES:]
                for key, copies in self._places.items()
                if key in keys
            }

    def forget(self, *, newer_than: int = 0) -> None:
        """Drop the copies of iterations after ``newer_than``."""
        with self._lock:
            # One that is being filled is newer than what is complete.
            self._renew(lambda copy: 0 < copy.iteration <= newer_than)

    def held(self) -> tuple[HeldCopy, ...]:
        """Return what can be handed out."""
        with self._lock:
            return tuple(
                HeldCopy(**key._asdict(), iteration=copy.iteration)
                for key, copies in self._places.items()
                for copy in copies
                if copy.iteration
            )

    def data_of(self, key: ShardKey, iteration: int) -> torch.Tensor | None:
        """Return the packed shard of a copy; None if it is not here."""
        with self._lock:
            copies = self._places.get(key, ())
            return next((copy.data for copy in copies if copy.iteration == iteration), None)

    def place_for(
        self, key: ShardKey, num_bytes: int, generation: Generation, *, is_pinned: bool
    ) -> Copy:
        """Return a place for the next copy of a shard, marked as not complete.

        Raises:
            RuntimeError: There is no memory for it, or the generation is over.
            MemoryError: The same.
        """
        with self._lock:
            if generation != self._generation:
                raise RuntimeError(f"generation {generation} is over")
            copies = self._places.setdefault(key, [])
            free = [copy for copy in copies if copy.iteration not in self._kept]
            if len(copies) < _NUM_PLACES or not free:
                free = [Copy()]
                copies += free
            place = min(free, key=lambda copy: copy.iteration)
            place.iteration = 0
            if place.data.numel() != num_bytes:
                place.data = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
            return place

    def _renew(self, is_good: Callable[[Copy], bool]) -> None:
        """Have empty places instead of those that are not good."""
        for copies in self._places.values():
            copies[:] = [copy if is_good(copy) else Copy() for copy in copies]

    def complete(self, copy: Copy, iteration: int) -> None:
        """What lies in this place is the shard after ``iteration``."""
        with self._lock:
            copy.iteration = iteration
