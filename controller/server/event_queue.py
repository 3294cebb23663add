"""The events that wait for the core: faults first, and those of one node in their order.

A fault must not wait behind the iterations of a thousand nodes. It takes the events of its own node
that came before it with it, since a report may only be acknowledged after those before it. All
others are taken in the order in which they came. Heartbeats never wait here: what they show is
found when they come (``controller.core.heartbeats``).

The queue is bounded. ``has_room`` returns once there is room, and whoever reads from nodes waits
for it: reports stay in the agents' outboxes meanwhile, and heartbeats are left out. Timers and
requests, which are few, are put in at any time.
"""

import asyncio
import itertools
from collections import deque
from typing import Final, NamedTuple

from controller.core.events import (
    CommandFailed,
    ContactLost,
    EventBody,
    HaltCarriedOut,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    Observed,
    PeerProbed,
    RanksListed,
    RankVanished,
    StopCarriedOut,
    TaskAdvanced,
)
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import LaunchFailed, RankExited, RankRaised

MOST_WAITING: Final = 10_000
"""Some seconds of work for the core."""
_FAULTS: Final = (LaunchFailed, NodeFinding, RankExited, RankRaised)
_OF_A_NODE: Final = (
    CommandFailed, ContactLost, HaltCarriedOut, NodeAnswered, NodeAttached, NodeFellSilent,
    Observed, RankVanished, RanksListed, StopCarriedOut, TaskAdvanced,
)  # fmt: skip


def _source(body: EventBody) -> NodeId | None:
    """Return the node whose link has posted an event; None if no link has."""
    if isinstance(body, PeerProbed):
        return body.by
    return body.node if isinstance(body, _OF_A_NODE) else None


def _is_fault(body: EventBody) -> bool:
    if isinstance(body, Observed):
        return isinstance(body.observation, _FAULTS)
    return isinstance(body, ContactLost | RankVanished)


class Waiting(NamedTuple):
    """An event that waits, and since when, by the loop's clock in seconds."""

    body: EventBody
    since_s: float


class EventQueue:
    """Events from many sources for one consumer."""

    def __init__(self, most_waiting: int = MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._numbers = itertools.count()
        self._lanes: dict[NodeId | None, deque[tuple[int, Waiting]]] = {}
        """By source, what it has posted, numbered in the order of all."""
        self._order: deque[tuple[int, NodeId | None]] = deque()
        """The same order. A number that is no longer the first of its lane was taken early."""
        self._faults: dict[NodeId | None, int] = {}
        """Sources with faults that wait, and the number of the newest."""
        self._num_waiting = 0
        self._has_events = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    def __len__(self) -> int:
        """Return how many events wait."""
        return self._num_waiting

    def put(self, body: EventBody, now_s: float) -> None:
        """Put an event in. Call it from the loop's thread."""
        source, number = _source(body), next(self._numbers)
        self._lanes.setdefault(source, deque()).append((number, Waiting(body, now_s)))
        self._order.append((number, source))
        if _is_fault(body):
            self._faults[source] = number
        self._num_waiting += 1
        self._has_events.set()
        if self._num_waiting >= self._most_waiting:
            self._has_room.clear()

    async def get(self) -> Waiting:
        """Wait for an event and return it."""
        while not self._num_waiting:
            self._has_events.clear()
            await self._has_events.wait()
        return self.get_nowait()

    def get_nowait(self) -> Waiting:
        """Return the next event; there must be one."""
        source = next(iter(self._faults)) if self._faults else self._first_source()
        lane = self._lanes[source]
        number, waiting = lane.popleft()
        if self._faults.get(source) == number:
            del self._faults[source]
        if not lane:
            del self._lanes[source]
        self._num_waiting -= 1
        if self._num_waiting < self._most_waiting // 2:
            self._has_room.set()
        return waiting

    def _first_source(self) -> NodeId | None:
        while True:
            number, source = self._order.popleft()
            lane = self._lanes.get(source)
            if lane and lane[0][0] == number:
                return source

    async def has_room(self) -> None:
        """Return once there is room for what nodes say."""
        await self._has_room.wait()
