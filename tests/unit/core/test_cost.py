"""What an event costs follows what it concerns: ten times the nodes are looked at no more often.

Nodes and ranks are counted each time that the core, or the watch of heartbeats, takes one from the
state. Events that ask for a plan are not among these: the planner divides all workers.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import pytest
from typing_extensions import override

from controller.core.events import (
    ClockMeasured,
    ContactLost,
    EventBody,
    HaltCarriedOut,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    PeerProbed,
    RanksListed,
    StragglerFound,
    TaskAdvanced,
    TimerFired,
    WaitingChanged,
)
from controller.core.heartbeats.heartbeat_watch import HeartbeatWatch
from controller.core.timers import IterationOverdue, JudgeNode, SettleIncident
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, NodeId, TaskId
from nodeagent.protocol.observations import CheckpointSaved, RankExited, RankRaised
from tests.fakes.fleets import Fleet

A = TaskId("t0")
KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class Counted(dict[KeyT, ValueT], Generic[KeyT, ValueT]):
    """Counts how often an entry is taken from it."""

    def __init__(self, entries: Mapping[KeyT, ValueT], visits: Counter[str], name: str) -> None:
        super().__init__(entries)
        self._visits, self._name = visits, name

    def _count(self, num: int) -> None:
        self._visits[self._name] += num

    @override
    def __getitem__(self, key: KeyT) -> ValueT:
        self._count(1)
        return super().__getitem__(key)

    @override
    def get(self, key: KeyT, default: object = None) -> ValueT | None:  # type: ignore[override]
        self._count(1)
        return super().get(key)

    @override
    def __iter__(self) -> Iterator[KeyT]:
        for key in super().__iter__():
            self._count(1)
            yield key

    @override
    def __reversed__(self) -> Iterator[KeyT]:
        for key in super().__reversed__():
            self._count(1)
            yield key

    @override
    def keys(self) -> "CountedView[KeyT]":  # type: ignore[override]
        return CountedView(super().keys(), self._count)

    @override
    def values(self) -> "CountedView[ValueT]":  # type: ignore[override]
        return CountedView(super().values(), self._count)

    @override
    def items(self) -> "CountedView[tuple[KeyT, ValueT]]":  # type: ignore[override]
        return CountedView(super().items(), self._count)


class CountedView(Generic[ValueT]):
    """What a dictionary holds, counted."""

    def __init__(self, view: object, count: Callable[[int], None]) -> None:
        self._view, self._count = view, count

    def __iter__(self) -> Iterator[ValueT]:
        for entry in iter(self._view):  # type: ignore[call-overload]
            self._count(1)
            yield entry

    def __reversed__(self) -> Iterator[ValueT]:
        for entry in reversed(self._view):  # type: ignore[call-overload]
            self._count(1)
            yield entry

    def __contains__(self, entry: object) -> bool:
        return entry in self._view  # type: ignore[operator]


class CountedFleet:
    """A fleet that trains, and counts what is looked at."""

    def __init__(self, num_nodes: int, workers: int) -> None:
        self.fleet = Fleet(num_nodes, num_tasks=4, workers=workers)
        self.fleet.train(8)
        self.state = self.fleet.machine.state
        self.watch = HeartbeatWatch(self.state)
        self.visits = Counter[str]()
        self.state.nodes = Counted(self.state.nodes, self.visits, "nodes")
        self._count_ranks()

    def _count_ranks(self) -> None:
        for task in self.state.tasks.values():
            if not isinstance(task.ranks, Counted):
                task.ranks = Counted(task.ranks, self.visits, "ranks")

    def visits_of(self, body: EventBody) -> dict[str, int]:
        """Return how often nodes and ranks are looked at for an event."""
        self._count_ranks()
        self.visits.clear()
        self.fleet.handle(body)
        return dict(self.visits)

    def visits_of_beat(self, node: NodeId) -> dict[str, int]:
        """Return the same for a heartbeat that says nothing new."""
        beat = self.fleet.beat(node)
        self.visits.clear()
        policy = self.fleet.machine.policy
        assert self.watch.take(node, beat, self.fleet.now, self.fleet.now, policy) == []
        return dict(self.visits)


def visits_of_each(num_nodes: int, workers: int) -> dict[str, dict[str, int]]:
    """Return how often nodes and ranks are looked at for each kind of event."""
    counted = CountedFleet(num_nodes, workers)
    fleet, task = counted.fleet, counted.state.tasks[A]
    generation, first = task.generation, task.ranks[0].worker.node
    last = NodeId(f"n{num_nodes}")  # has no task
    who: dict[str, Any] = {"task": A, "generation": generation, "global_rank": 0}
    finding = NodeFinding(probe="disk", sign="disk_full", subject="/x", text="full", value=99)
    fleet.now += 1.0
    events: list[tuple[str, EventBody]] = [
        ("commit", fleet.commit(task, 9)),
        (
            "checkpoint",
            fleet.report(first, CheckpointSaved(**who, iteration=9, num_bytes=1, duration_s=1.0)),
        ),
        ("advance", TaskAdvanced(first, A, generation, 0, 10)),
        ("silence", NodeFellSilent(first, fleet.now - 1.0)),
        ("answer", NodeAnswered(first)),
        ("clock", ClockMeasured(first, 5.0)),
        ("straggler", StragglerFound(A, generation, 0, 0.9, 0.2, 0.0)),
        ("waiting", WaitingChanged(A, generation, 0.3)),
        ("listing", RanksListed(first, tuple(fleet.beat(first).ranks))),
        ("finding", fleet.report(first, finding)),
        ("overdue", TimerFired(IterationOverdue(TaskId("t1"), generation))),
        ("contact lost", ContactLost(last, fleet.now, "reset")),
        ("probe", PeerProbed(last, NodeId("n1"), "answered")),
        ("judgement", TimerFired(JudgeNode(last))),
        ("attach", NodeAttached(last, AgentId(f"{last}-1"), 1, ())),
        ("contact of a task lost", ContactLost(first, fleet.now, "reset")),
        (
            "its attach",
            NodeAttached(first, AgentId(f"{first}-1"), 1, tuple(fleet.beat(first).ranks)),
        ),
    ]
    found = {"heartbeat": counted.visits_of_beat(first)}
    found |= {name: counted.visits_of(body) for name, body in events}
    raised = RankRaised(
        **who, exception_type="RuntimeError", message="boom", traceback="", iteration=9,
        is_in_collective=False, position=None,
    )  # fmt: skip
    found["exception"] = counted.visits_of(fleet.report(first, raised))
    ended = RankExited(**who, pid=1, exit_code=1, signal=None, stderr_tail="")
    found["exit"] = counted.visits_of(fleet.report(first, ended))
    found["halt"] = counted.visits_of(HaltCarriedOut(first, A, generation))
    fleet.now += fleet.machine.policy.settle_s
    [incident] = counted.state.incidents.open()
    found["settle"] = counted.visits_of(TimerFired(SettleIncident(incident.name)))
    return found


def test_ten_times_the_nodes_are_looked_at_no_more_often() -> None:
    small, large = visits_of_each(100, 40), visits_of_each(1000, 40)
    assert small["contact lost"]["nodes"] > 0
    assert small == large


MUST_LOOK_AT_ALL_RANKS = {
    "exception", "exit", "overdue", "settle",
}  # fmt: skip
"""A fault halts every rank of its task, and asks where each is."""


def test_ten_times_the_ranks_of_a_task_are_looked_at_no_more_often() -> None:
    small, large = visits_of_each(1000, 40), visits_of_each(1000, 400)
    assert small.keys() > MUST_LOOK_AT_ALL_RANKS
    for kind in small.keys() - MUST_LOOK_AT_ALL_RANKS:
        assert small[kind] == large[kind], kind


@pytest.mark.parametrize("kind", ["values", "items", "keys"])
def test_what_is_taken_from_a_counted_dictionary_is_counted(kind: str) -> None:
    visits = Counter[str]()
    entries = Counted({1: "a", 2: "b"}, visits, "x")
    assert len(list(getattr(entries, kind)())) == 2
    assert visits["x"] == 2
