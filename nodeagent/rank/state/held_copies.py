"""The copies of shards in the memory of one process: its own, and those of other ranks.

Every shard has two places: one for a complete copy and one for the next copy. If all places hold
copies that must be kept, another place is made. That happens after a fault, when only several
iterations together protect against any further loss. The extra place is removed when newer copies
are complete on all ranks.
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
    """A shard, by the rank that owns it and the number of shards at its (tp, pp)."""

    tp_rank: int
    pp_rank: int
    dp_rank: int
    num_shards: int


@dataclass(slots=True)
class Copy:
    """A place for a copy. Iteration 0 means that the place is empty or is being written."""

    iteration: int = 0
    data: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


class HeldCopies:
    """The places of one process, over all its generations.

    A thread of an older generation can change nothing any more.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[ShardKey, list[Copy]] = {}
        self._kept: frozenset[int] = frozenset()
        self._generation: Generation | None = None

    def enter(self, generation: Generation, kept: Collection[int]) -> None:
        """Join a generation.

        The copies of the iterations ``kept`` stay until ``keep`` is called.
        """
        with self._lock:
            self._generation, self._kept = generation, frozenset(kept)

    def leave(self) -> None:
        """Leave the generation. A thread that is still filling a place keeps it for itself."""
        with self._lock:
            self._generation = None
            self._renew(lambda copy: copy.iteration > 0)

    def keep(self, iteration: int, keys: Collection[ShardKey]) -> None:
        """Keep only the copies of ``iteration`` of these shards. They are complete on all ranks."""
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
            # A place that is being filled belongs to a newer iteration.
            self._renew(lambda copy: 0 < copy.iteration <= newer_than)

    def held(self) -> tuple[HeldCopy, ...]:
        """Return the complete copies, which can be handed to other ranks."""
        with self._lock:
            return tuple(
                HeldCopy(**key._asdict(), iteration=copy.iteration)
                for key, copies in self._places.items()
                for copy in copies
                if copy.iteration
            )

    def data_of(self, key: ShardKey, iteration: int) -> torch.Tensor | None:
        """Return the packed shard of a copy; None if this process does not hold it."""
        with self._lock:
            copies = self._places.get(key, ())
            return next((copy.data for copy in copies if copy.iteration == iteration), None)

    def place_for(
        self, key: ShardKey, num_bytes: int, generation: Generation, *, is_pinned: bool
    ) -> Copy:
        """Return a place for the next copy of a shard, marked as not complete.

        Raises:
            RuntimeError: The generation is over, or there is no memory for the copy.
            MemoryError: There is no memory for the copy.
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
        """Replace the places that are not good by empty places."""
        for copies in self._places.values():
            copies[:] = [copy if is_good(copy) else Copy() for copy in copies]

    def complete(self, copy: Copy, iteration: int) -> None:
        """Mark the place as a complete copy of the shard after ``iteration``."""
        with self._lock:
            copy.iteration = iteration
