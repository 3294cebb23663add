"""In-memory checkpoints: a copy of this rank's shard here, and one in the memory of another rank.

At an iteration boundary the shard is copied; while training goes on the copy travels to its holder,
over connections of its own. A new copy is begun only when all ranks have sent and received the last
one, which they tell each other in the vote (or, before they park, in a sum of its own). Every shard has two places, and the iteration that is
known to be complete in all of them is not overwritten. So from the first one on some iteration is
complete at any moment, until a holder is lost.

Copies outlive generations with the process that holds them. What can be handed out is stated with
the rank's position (``held``); the controller's core chooses a cut that is complete.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.protocol.regroup import HeldCopy
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.host_copy import copy_to_host
from nodeagent.rank.packed import checksum, extents_of, num_packed_bytes, packed_over
from nodeagent.rank.place import Place
from nodeagent.rank.raised import first_line
from nodeagent.rank.shim import use_device
from nodeagent.rank.state import TrainingState

logger = logging.getLogger(__name__)

_END_LIMIT_S: Final = 0.05
_HEADER_TAG: Final = 1
_DATA_TAG: Final = 2


class ShardKey(NamedTuple):
    """A shard: whose it is, and of how many at its (tp, pp)."""

    tp_rank: int
    pp_rank: int
    dp_rank: int
    num_shards: int


@dataclass(slots=True)
class _Copy:
    """A place for a copy. Iteration 0: there is none, or it is being overwritten."""

    iteration: int = 0
    data: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))


class MissedCopy(NamedTuple):
    """The first copy of a generation that was not completed, and why; none follows in that generation."""

    iteration: int
    reason: str


class _Transfer(NamedTuple):
    """What one boundary has to send and to receive. Without ``own`` the holder, if there is one, is told so."""

    iteration: int
    own: _Copy | None
    wait_until_copied: Callable[[], None]


class _Connections:
    """The groups that copies travel over in one generation, by peer, and what is under way in them."""

    def __init__(self, groups: Mapping[int, ProcessGroup]) -> None:
        self.groups = groups
        self.transfers: queue.SimpleQueue[_Transfer | None] = queue.SimpleQueue()
        self.num_open = 0
        """Transfers that have not ended. Where one fails it stays, and no other is begun."""


class MemoryCheckpoints:
    """The in-memory checkpoints that one process makes and holds, over all its generations."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._places: dict[ShardKey, list[_Copy]] = {}
        self._lock = threading.Lock()
        self._rank = 0
        self._device = torch.device("cpu")
        self._holder: int | None = None
        self._owners: list[tuple[int, ShardKey]] = []
        self._key = ShardKey(0, 0, 0, 1)
        self._connections: _Connections | None = None
        self._thread: threading.Thread | None = None
        self._num_taken = 0
        self._newest_iteration = 0
        self._complete_iteration = 0
        self._missed: MissedCopy | None = None
        self.is_wanted = False
        """Whether copies are made in this generation."""

    # --- generations ---------------------------------------------------------------------------

    def enter(self, launch: RankLaunch, place: Place) -> None:
        """Take up a new generation; the copies of the old ones stay."""
        self._rank = place.global_rank
        self._device = place.device
        holders = launch.copy_holders
        self.is_wanted = any(holder is not None for holder in holders)
        self._holder = holders[self._rank] if holders else None
        self._owners = [
            (owner, self._key_of(place, owner))
            for owner, holder in enumerate(holders)
            if holder == self._rank
        ]
        self._key = self._key_of(place, self._rank)
        self._complete_iteration = launch.resume.copied

    def _key_of(self, place: Place, rank: int) -> ShardKey:
        layout, is_sharded = place.layout, self._state.sharded is not None
        return ShardKey(
            layout.tp_rank(rank),
            layout.pp_rank(rank),
            layout.dp_rank(rank) if is_sharded else 0,
            layout.dp if is_sharded else 1,
        )

    @property
    def needs_group(self) -> bool:
        """Whether the generation makes copies and has no connections for them yet."""
        return self.is_wanted and self._connections is None

    def connect(self, groups: Mapping[int, ProcessGroup]) -> None:
        """Make copies from now on, which travel in host memory over the group with each peer."""
        self._connections = _Connections(groups)
        self._num_taken = 0
        self._thread = threading.Thread(
            target=self._run, args=(self._connections,), name="memory checkpoints", daemon=True
        )
        self._thread.start()

    def leave(self) -> None:
        """End the generation, whose connections are cut."""
        if self._thread is None or self._connections is None:
            return
        self._connections.transfers.put(None)
        self._thread.join(_END_LIMIT_S)
        if self._thread.is_alive():
            # It is in the middle of a copy that is not complete, and keeps it and the group.
            with self._lock:
                for copies in self._places.values():
                    copies[:] = [copy if copy.iteration else _Copy() for copy in copies]
        with self._lock:
            self._thread = self._connections = self._missed = None

    # --- copies --------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the last copies are still on their way, or the connections are lost."""
        with self._lock:
            return self._connections is not None and self._connections.num_open > 0

    @property
    def is_broken(self) -> bool:
        """Whether what is on its way will not arrive, as far as is known here."""
        return self.is_busy and (self._thread is None or not self._thread.is_alive())

    def take(self, iteration: int) -> None:
        """Begin the copies of the state after ``iteration``. All ranks call it; none is busy."""
        if self._num_taken:
            # Complete everywhere by now: what is left of other partitions serves no more.
            self._keep_only({self._key, *(key for _, key in self._owners)})
            self._complete_iteration = self._newest_iteration
        self._num_taken += 1
        self._newest_iteration = iteration
        if self._holder is not None:
            self._begin(self._copied(iteration))
        elif self._owners:
            self._begin(_Transfer(iteration, None, lambda: None))

    def _copied(self, iteration: int) -> _Transfer:
        sources = [source.reshape(-1) for source in self._state.sources()]
        extents = extents_of(sources)
        try:
            own = self._place_for(self._key, num_packed_bytes(extents))
        except (RuntimeError, MemoryError) as error:
            # Training does not need the copy.
            self._miss(self._connections, f"no host memory for it: {first_line(error)}")
            return _Transfer(iteration, None, lambda: None)
        targets = packed_over(own.data, extents).tensors
        return _Transfer(iteration, own, copy_to_host(sources, targets))

    def _begin(self, transfer: _Transfer) -> None:
        assert self._connections is not None, "connect() comes first"
        with self._lock:
            self._connections.num_open += 1
        self._connections.transfers.put(transfer)

    def _miss(self, connections: _Connections | None, reason: str) -> None:
        logger.warning("no in-memory checkpoints until the next generation: %s", reason)
        with self._lock:
            if connections is self._connections:
                self._missed = MissedCopy(self._newest_iteration, reason)

    def take_missed(self) -> MissedCopy | None:
        """Return why no copies are made any more; None if they are, or it was returned before."""
        with self._lock:
            missed, self._missed = self._missed, None
        return missed

    def held(self) -> tuple[HeldCopy, ...]:
        """Return what this process can hand out: complete copies of its own shard and others'."""
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
            return next(
                (copy.data for copy in self._places.get(key, ()) if copy.iteration == iteration),
                None,
            )

    def forget(self, *, newer_than: int = 0) -> None:
        """Drop the copies of iterations after ``newer_than``: training has taken another way."""
        with self._lock:
            for copies in self._places.values():
                copies[:] = [copy if copy.iteration <= newer_than else _Copy() for copy in copies]

    def _keep_only(self, keys: set[ShardKey]) -> None:
        with self._lock:
            self._places = {key: copies for key, copies in self._places.items() if key in keys}

    def _place_for(self, key: ShardKey, num_bytes: int) -> _Copy:
        """Return a place for the next copy of a shard, marked as not complete."""
        with self._lock:
            copies = self._places.setdefault(key, [_Copy(), _Copy()])
            safe = self._complete_iteration
            place = min(copies, key=lambda copy: (0 < copy.iteration == safe, copy.iteration))
            place.iteration = 0
            if place.data.numel() != num_bytes:
                place.data = torch.empty(
                    num_bytes, dtype=torch.uint8, pin_memory=self._device.type == "cuda"
                )
            return place

    def _complete(self, copy: _Copy, iteration: int) -> None:
        with self._lock:
            copy.iteration = iteration

    # --- the thread ----------------------------------------------------------------------------

    def _run(self, connections: _Connections) -> None:
        use_device(self._device)
        while (transfer := connections.transfers.get()) is not None:
            try:
                is_complete = self._carry_out(transfer, connections.groups)
            except (RuntimeError, ValueError, MemoryError) as error:
                # Where a peer is gone the generation is over, and ``leave`` forgets this.
                self._miss(connections, first_line(error))
                return
            if not is_complete:
                # Another one would take the place of what is complete: it stays open, and none is begun.
                return
            with self._lock:
                connections.num_open -= 1

    def _carry_out(self, transfer: _Transfer, groups: Mapping[int, ProcessGroup]) -> bool:
        """Send and receive; return whether there was something from everybody."""
        works = []
        is_complete = transfer.own is not None or self._holder is None
        group = groups[self._holder] if self._holder is not None else None
        if transfer.own is None and self._holder is not None:
            nothing = torch.zeros(3, dtype=torch.int64)
            works = [distributed.isend(nothing, self._holder, group=group, tag=_HEADER_TAG)]
        elif transfer.own is not None and self._holder is not None:
            transfer.wait_until_copied()
            self._complete(transfer.own, transfer.iteration)
            data = transfer.own.data
            header = torch.tensor([transfer.iteration, data.numel(), checksum(data)])
            works = [
                distributed.isend(header, self._holder, group=group, tag=_HEADER_TAG),
                distributed.isend(data, self._holder, group=group, tag=_DATA_TAG),
            ]
        for owner, key in self._owners:
            is_complete &= self._receive(owner, key, groups[owner])
        for work in works:
            assert work is not None
            work.wait()
        return is_complete

    def _receive(self, owner: int, key: ShardKey, group: ProcessGroup) -> bool:
        """Take a copy from its owner; return whether there was one."""
        header = torch.zeros(3, dtype=torch.int64)
        distributed.recv(header, owner, group=group, tag=_HEADER_TAG)
        iteration, num_bytes, expected = header.tolist()
        if not iteration:
            return False
        copy = self._place_for(key, num_bytes)
        distributed.recv(copy.data, owner, group=group, tag=_DATA_TAG)
        if checksum(copy.data) != expected:
            raise ValueError(f"the copy of rank {owner} was damaged on its way")
        self._complete(copy, iteration)
        return True
