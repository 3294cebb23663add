"""In-memory checkpoints: a copy of this rank's shard here, and one in the memory of another rank.

At an iteration boundary each rank copies its shard. While training continues, the copy is sent to
its holder over separate connections: an offer, an answer, the data. A new copy begins only when all
ranks have sent and received the last one. They learn that in the vote, or in a separate sum before
they park. Copies that are complete on all ranks are not overwritten meanwhile (``held_copies``). So
from the first copy on, the copies of some iteration are complete at any moment, until a holder is
lost.

Copies live in the process that holds them, over generations. The rank's position lists the complete
copies, and the controller's core chooses an iteration of which all shards are there.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import torch
from torch import distributed
from torch.distributed import ProcessGroup, Work

from nodeagent.protocol.ids import Generation
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.agent_link.exception_report import first_line
from nodeagent.rank.groups.device_shim import use_device
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.state.held_copies import Copy, HeldCopies, ShardKey
from nodeagent.rank.state.rank_state import TrainingState
from nodeagent.rank.tensors.host_copy import copy_to_host
from nodeagent.rank.tensors.packed_tensors import (
    checksum,
    extents_of,
    num_packed_bytes,
    packed_over,
)

_LOG = logging.getLogger(__name__)

_END_LIMIT_S: Final = 0.05
_HEADER_TAG: Final = 1
_HEADER_SIZE: Final = 3
_ANSWER_TAG: Final = 2
_DATA_TAG: Final = 3


class MissedCopy(NamedTuple):
    """The first copy of a generation that was not completed, and why.

    No later copy is made in it.
    """

    iteration: int
    reason: str


class _Transfer(NamedTuple):
    """The copies to send and receive after one iteration. Without ``own`` the offer says so."""

    iteration: int
    own: Copy | None
    wait_until_copied: Callable[[], None]


class _Offer(NamedTuple):
    """A copy that an owner will send, and the place that is ready for it."""

    owner: int
    iteration: int
    checksum: int
    place: Copy


class _Connections:
    """The groups for copies in one generation, by peer, and the transfers in progress."""

    def __init__(self, generation: Generation, groups: Mapping[int, ProcessGroup]) -> None:
        self.generation = generation
        self.groups = groups
        self.transfers: queue.SimpleQueue[_Transfer | None] = queue.SimpleQueue()
        self.num_open = 0
        """Transfers that have not ended. A failed one stays counted, so that no other begins."""
        self._works: list[Work] = []

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> None:
        """Begin to send. ``wait`` returns when all is sent."""
        work = distributed.isend(tensor, peer, group=self.groups[peer], tag=tag)
        assert work is not None, "this rank is in each of its groups"
        self._works.append(work)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> None:
        """Receive into a tensor."""
        distributed.recv(tensor, peer, group=self.groups[peer], tag=tag)

    def wait(self) -> None:
        """Wait until everything is sent."""
        while self._works:
            self._works.pop().wait()


class MemoryCheckpoints:
    """The in-memory checkpoints that one process makes and holds, over all its generations.

    Attributes:
        copies: The copies in this process.
        is_wanted: Whether copies are made in this generation.
    """

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self.copies = HeldCopies()
        self._lock = threading.Lock()
        self._generation = Generation(0)
        self._device = torch.device("cpu")
        self._holder: int | None = None
        self._owners: list[tuple[int, ShardKey]] = []
        self._key = ShardKey(0, 0, 0, 1)
        self._connections: _Connections | None = None
        self._thread: threading.Thread | None = None
        self._num_taken = 0
        self._newest_iteration = 0
        self._missed: MissedCopy | None = None
        self.is_wanted = False

    # --- generations ---------------------------------------------------------------------------

    def enter(self, launch: RankLaunch, place: Place) -> None:
        """Join a new generation. Older copies stay."""
        self._generation = launch.generation
        self._device = place.device
        own, holders = place.global_rank, launch.copy_holders
        self.is_wanted = any(holder is not None for holder in holders)
        self._holder = holders[own] if holders else None
        self._owners = [
            (owner, self._key_of(place, owner))
            for owner, holder in enumerate(holders)
            if holder == own
        ]
        self._key = self._key_of(place, own)
        self.copies.enter(launch.generation, launch.resume.kept_copies)

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
        """Start the thread that sends and receives copies, over the group with each peer."""
        self._connections = _Connections(self._generation, groups)
        self._num_taken = 0
        self._thread = threading.Thread(
            target=self._run, args=(self._connections,), name="memory checkpoints", daemon=True
        )
        self._thread.start()

    def leave(self) -> None:
        """Leave the generation after its connections ended."""
        if self._thread is None or self._connections is None:
            return
        self._connections.transfers.put(None)
        self._thread.join(_END_LIMIT_S)
        # The thread may still be inside an incomplete copy. It keeps that copy and the group.
        self.copies.leave()
        with self._lock:
            self._thread = self._connections = self._missed = None

    # --- copies --------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether the last copies are in progress, or the connections are lost."""
        with self._lock:
            return self._connections is not None and self._connections.num_open > 0

    @property
    def is_broken(self) -> bool:
        """Whether the copies in progress can't be completed, as far as this rank knows."""
        return self.is_busy and (self._thread is None or not self._thread.is_alive())

    def take(self, iteration: int) -> None:
        """Begin the copies of the state after ``iteration``.

        All ranks call it while none is busy.
        """
        if self._num_taken:
            # The last copies are complete on all ranks, so copies of other partitions can go.
            own = {self._key} if self._holder is not None else set()
            self.copies.keep(self._newest_iteration, own | {key for _, key in self._owners})
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
            own = self._place_for(self._key, num_packed_bytes(extents), self._generation)
        except (RuntimeError, MemoryError) as error:
            # Training continues without the copy.
            self._miss(self._connections, f"no host memory for the copy: {first_line(error)}")
            return _Transfer(iteration, None, lambda: None)
        targets = packed_over(own.data, extents).tensors
        return _Transfer(iteration, own, copy_to_host(sources, targets))

    def _begin(self, transfer: _Transfer) -> None:
        assert self._connections is not None, "connect() comes first"
        with self._lock:
            self._connections.num_open += 1
        self._connections.transfers.put(transfer)

    def _miss(self, connections: _Connections | None, reason: str) -> None:
        _LOG.warning(
            "no in-memory checkpoints until the next generation: generation=%d iteration=%d"
            " reason=%s",
            self._generation,
            self._newest_iteration,
            reason,
        )
        with self._lock:
            if connections is self._connections:
                self._missed = MissedCopy(self._newest_iteration, reason)

    def take_missed(self) -> MissedCopy | None:
        """Return why no copies are made any more, once; None if copies are made."""
        with self._lock:
            missed, self._missed = self._missed, None
        return missed

    def _place_for(self, key: ShardKey, num_bytes: int, generation: Generation) -> Copy:
        is_pinned = self._device.type == "cuda"
        return self.copies.place_for(key, num_bytes, generation, is_pinned=is_pinned)

    # --- the thread ----------------------------------------------------------------------------

    def _run(self, connections: _Connections) -> None:
        use_device(self._device)
        while (transfer := connections.transfers.get()) is not None:
            try:
                is_complete = self._carry_out(transfer, connections)
            except (RuntimeError, ValueError, MemoryError) as error:
                # If a peer is lost, the generation is over, and ``leave`` drops this report.
                self._miss(connections, first_line(error))
                return
            if not is_complete:
                # Left open on purpose: the next copy would overwrite the last complete one.
                return
            with self._lock:
                connections.num_open -= 1

    def _carry_out(self, transfer: _Transfer, connections: _Connections) -> bool:
        """Send and receive; return whether all copies of this boundary are complete.

        Data is sent only after an answer. So a rank without a copy, or without memory for a peer's
        copy, blocks no other rank.
        """
        self._offer(transfer, connections)
        offers = [self._answer(owner, key, connections) for owner, key in self._owners]
        is_sent = self._send(transfer, connections)
        are_here = [offer is not None and self._take_in(offer, connections) for offer in offers]
        connections.wait()
        return is_sent and all(are_here)

    def _offer(self, transfer: _Transfer, connections: _Connections) -> None:
        if self._holder is None:
            return
        header = torch.zeros(_HEADER_SIZE, dtype=torch.int64)
        if transfer.own is not None:
            transfer.wait_until_copied()
            self.copies.complete(transfer.own, transfer.iteration)
            data = transfer.own.data
            header = torch.tensor([transfer.iteration, data.numel(), checksum(data)])
        connections.send(header, self._holder, _HEADER_TAG)

    def _answer(self, owner: int, key: ShardKey, connections: _Connections) -> _Offer | None:
        """Receive an owner's offer, and answer whether there is memory for it.

        None if none follows.
        """
        header = torch.zeros(_HEADER_SIZE, dtype=torch.int64)
        connections.receive(header, owner, _HEADER_TAG)
        iteration, num_bytes, expected = header.tolist()
        if not iteration:
            return None
        place = None
        try:
            place = self._place_for(key, num_bytes, connections.generation)
        except (RuntimeError, MemoryError) as error:
            self._miss(connections, f"no memory for the copy of rank {owner}: {first_line(error)}")
        connections.send(torch.tensor([int(place is not None)]), owner, _ANSWER_TAG)
        return _Offer(owner, iteration, expected, place) if place else None

    def _send(self, transfer: _Transfer, connections: _Connections) -> bool:
        """Send the own copy if the holder takes it.

        Return whether it did, or no holder is needed.
        """
        if self._holder is None:
            return True
        if transfer.own is None:
            return False
        answer = torch.zeros(1, dtype=torch.int64)
        connections.receive(answer, self._holder, _ANSWER_TAG)
        if answer:
            connections.send(transfer.own.data, self._holder, _DATA_TAG)
        return bool(answer)

    def _take_in(self, offer: _Offer, connections: _Connections) -> bool:
        """Receive a copy; return whether its checksum is right."""
        connections.receive(offer.place.data, offer.owner, _DATA_TAG)
        if checksum(offer.place.data) != offer.checksum:
            self._miss(connections, f"the copy of rank {offer.owner} was damaged in transit")
            return False
        self.copies.complete(offer.place, offer.iteration)
        return True
