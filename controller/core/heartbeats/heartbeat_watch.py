"""Turns the heartbeats of all nodes into the few events that the core waits for.

A node sends two heartbeats a second, and nearly all say what is known already. So this room stands
between nodes and journal. It compares a heartbeat with the core's state and returns an event for
what a rule acts upon: ranks other than expected, a rank that has vanished for long enough, progress
that nobody reports, a clock that is off, a straggler, the first word after a silence. What only
people look at (age, memory, the newest iteration of each rank) stays here, for the views.

What holds: it reads the state and changes none of it. It is level-based, so an event that comes too
early for the state to have changed is no loss: the next heartbeat has the same news again. Its
memory dies with the controller; the next one begins with an empty one, and what was about to be
noticed is noticed so much later. Fleet and simulator use it alike.

Ranks that are slower than their peers, or wait for a core, are ``_ComputingWatch``'s. Noise is no
alarm: a rank has to be slower in ``straggler_beats`` more heartbeats than it was not, and a
straggler is over when it was not slower in as many more than it was.

Rejected: agents that send changes only. An agent does not know what the core expects, and nobody
would repeat a change that is lost.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.core.events import (
    ClockMeasured,
    HeartbeatChange,
    NodeAnswered,
    NodeFellSilent,
    RanksListed,
    RankVanished,
    StragglerFound,
    StragglerOver,
    TaskAdvanced,
    WaitingChanged,
)
from controller.core.monitoring.slowness import MUCH_WAITING
from controller.core.nodes.inventory import is_as_expected
from controller.core.nodes.node_clocks import NUM_AGES, clock_offset_s, is_clock_news
from controller.core.rules.policy import Policy
from controller.core.rules.stragglers import Computing, Peers, is_straggler
from controller.core.state.cluster import ClusterState
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.rank_status import RankStatus

_UNREPORTED_S: Final = 0.4
"""An iteration that is seen in heartbeats for this long is not about to be reported."""

ListedRank = tuple[TaskId, Generation, int]
"""A rank of a generation: its task, the generation, its global rank."""

_STEP: Final = 2.0
"""Waiting that has changed by less than this factor is no news."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a node said of itself last, for people.

    Attributes:
        at: When it came, seconds since the start of the run.
        rss_bytes: Memory of the agent; None if no heartbeat has come since it attached.
        ranks: What lives on the node.
    """

    at: float
    rss_bytes: int | None
    ranks: Sequence[RankStatus]


class HeartbeatWatch:
    """The heartbeats of all nodes of one controller.

    Attributes:
        pulses: The newest of each node in contact, or lately so.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._ages_s: dict[NodeId, list[float]] = {}
        self._missing: dict[NodeId, dict[ListedRank, float]] = {}
        self._ahead: dict[TaskId, tuple[Generation, int, float]] = {}
        """By task, an iteration without a report, and when it was first seen."""
        self._computing = _ComputingWatch(state)
        self.pulses: dict[NodeId, Pulse] = {}

    def begin_session(self, node: NodeId, ranks: Sequence[RankStatus], at: float) -> None:
        """An agent attaches: heartbeats of an older session say nothing about its clock."""
        self._ages_s.pop(node, None)
        self.pulses[node] = Pulse(at, None, ranks)

    def take(
        self, node: NodeId, beat: Heartbeat, received_wall_s: float, at: float, policy: Policy
    ) -> list[HeartbeatChange]:
        """Return what a heartbeat shows that the core has to know.

        Args:
            node: Who sent it.
            beat: The heartbeat.
            received_wall_s: When it came, by the controller's wall clock.
            at: The same, seconds since the start of the run.
            policy: The present policy.
        """
        state = self._state.nodes.get(node)
        if state is None or state.contact.condition is NodeCondition.REMOVED:
            self._forget(node)
            return []
        ranks = beat.ranks
        self.pulses[node] = Pulse(at, beat.rss_bytes, ranks)
        changes: list[HeartbeatChange] = []
        if state.contact.silent_since is not None or self._is_doubted(node):
            changes.append(NodeAnswered(node))
        changes += self._clock(state, received_wall_s - beat.wall_s, policy)
        if not is_as_expected(self._state, node, ranks):
            changes.append(RanksListed(node, tuple(ranks)))
        changes += self._progress(node, ranks, at)
        changes += self._vanished(node, ranks, at, policy)
        changes += self._computing.take(node, ranks, policy)
        return changes

    def take_silence(self, node: NodeId, last_message_at: float) -> list[HeartbeatChange]:
        """A node has sent nothing for ``controller.core.nodes.bursts.SILENT_S``."""
        state = self._state.nodes.get(node)
        if state is None or state.contact.condition is not NodeCondition.HEALTHY:
            return []
        return [NodeFellSilent(node, last_message_at)]

    def _forget(self, node: NodeId) -> None:
        for memory in (self._ages_s, self._missing, self.pulses):
            memory.pop(node, None)

    def _is_doubted(self, node: NodeId) -> bool:
        """Whether a task waits for a sign that the node did not go with its rank."""
        for task in self._state.tasks.values():
            parking = task.lifecycle.parking
            if parking is None or parking.is_settled or node in parking.answered_nodes:
                continue
            if not all(task.ranks[number].is_alive for number in task.numbers_on.get(node, ())):
                return True
        return False

    def _clock(self, node: NodeState, age_s: float, policy: Policy) -> list[HeartbeatChange]:
        ages_s = self._ages_s.setdefault(node.spec.node, [])
        ages_s.append(age_s)
        del ages_s[:-NUM_AGES]
        offset_s = clock_offset_s(ages_s)
        if offset_s is None or not is_clock_news(node, offset_s, policy):
            return []
        return [ClockMeasured(node.spec.node, offset_s)]

    def _progress(
        self, node: NodeId, ranks: Sequence[RankStatus], at: float
    ) -> Iterator[HeartbeatChange]:
        """Yield progress that nobody reports: at once if a node of the task is out of contact."""
        newest: dict[TaskId, RankStatus] = {}
        for status in ranks:
            known = newest.get(status.task)
            if known is None or status.iteration > known.iteration:
                newest[status.task] = status
        for name, status in newest.items():
            task = self._state.tasks.get(name)
            if task is None or status.generation != task.generation:
                continue
            if status.iteration <= task.newest_iteration:
                self._ahead.pop(name, None)
                continue
            first = self._ahead.get(name)
            if first is None or first[0] != task.generation or first[1] <= task.newest_iteration:
                first = self._ahead[name] = task.generation, status.iteration, at
            if at - first[2] >= _UNREPORTED_S or self._is_out_of_sight(task):
                number = status.global_rank
                yield TaskAdvanced(node, name, task.generation, number, status.iteration)

    def _is_out_of_sight(self, task: TaskState) -> bool:
        nodes, unreachable = self._state.nodes, NodeCondition.UNREACHABLE
        return any(nodes[node].contact.condition is unreachable for node in task.numbers_on)

    def _vanished(
        self, node: NodeId, ranks: Sequence[RankStatus], at: float, policy: Policy
    ) -> Iterator[HeartbeatChange]:
        """Yield the ranks that their node has not listed for long enough."""
        listed = {(rank.task, rank.generation, rank.global_rank) for rank in ranks}
        missing = [key for key in self._processes_on(node) if key not in listed]
        before = self._missing.pop(node, {})
        if not missing:
            return
        self._missing[node] = since = {key: before.get(key, at) for key in missing}
        for (task, generation, number), missing_since in since.items():
            if at - missing_since >= policy.vanished_after_s:
                yield RankVanished(node, task, generation, number, missing_since)

    def _processes_on(self, node: NodeId) -> Iterator[ListedRank]:
        """Yield the ranks and spares that the node has listed, and not reported to be gone."""
        for name, task in self._state.tasks.items():
            if not task.can_regroup:
                continue
            for number in task.numbers_on.get(node, ()):
                rank = task.ranks[number]
                if rank.is_alive and rank.is_seen:
                    yield name, task.generation, number
            for number, spare in task.spares.ranks.items():
                if spare.is_alive and spare.is_seen and spare.worker.node == node:
                    yield name, task.generation, number


def rank_pulses(pulses: Mapping[NodeId, Pulse], node: NodeId) -> dict[ListedRank, RankStatus]:
    """Return what a node said last of each rank."""
    pulse = pulses.get(node)
    ranks = pulse.ranks if pulse is not None else ()
    return {(rank.task, rank.generation, rank.global_rank): rank for rank in ranks}


@dataclass(slots=True)
class _Computed:
    """The computing of one generation's ranks."""

    generation: Generation
    ranks: dict[int, Computing] = field(default_factory=dict)
    num_slow: dict[int, int] = field(default_factory=dict)
    """By rank, heartbeats that showed it slower than its peers; other heartbeats count back."""
    stages: dict[int, Peers] = field(default_factory=dict)
    waited_s: list[float] = field(default_factory=list)
    """How long each rank waited, sorted."""

    def note(self, number: int, stage: int, computing: Computing | None) -> None:
        """A rank computes like this from now on; None if that is not known."""
        peers = self.stages.setdefault(stage, Peers())
        before = self.ranks.pop(number, None)
        if before is not None:
            peers.remove(before)
            del self.waited_s[bisect_left(self.waited_s, before.waited_s)]
        if computing is not None:
            self.ranks[number] = computing
            peers.add(computing)
            insort(self.waited_s, computing.waited_s)

    def count_beat(self, number: int, *, is_slow: bool, most: int) -> int:
        """Count a heartbeat that shows a rank slow, or count back; return the count."""
        before = self.num_slow.get(number, 0)
        if not is_slow and not before:
            return 0
        self.num_slow[number] = count = min(most, before + (1 if is_slow else -1))
        return count


class _ComputingWatch:
    """The computing of all tasks' ranks."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._tasks: dict[TaskId, _Computed] = {}

    def take(
        self, node: NodeId, ranks: Iterable[RankStatus], policy: Policy
    ) -> Iterator[HeartbeatChange]:
        """Take in a heartbeat; yield what it shows that the core has to know."""
        hit: dict[TaskId, list[int]] = {}
        for status in ranks:
            task = self._state.tasks.get(status.task)
            if task is None or task.layout is None or status.generation != task.generation:
                continue
            number = status.global_rank
            rank = task.ranks.get(number)
            if rank is None or rank.worker.node != node:
                continue
            known = None
            if status.busy_s > 0:
                known = Computing(status.busy_s, status.busy_spread_s, status.waited_s)
            computed = self._computed(task)
            if computed.ranks.get(number) != known:
                computed.note(number, task.layout.pp_rank(number), known)
            hit.setdefault(status.task, []).append(number)
        for name, numbers in hit.items():
            yield from self._compare(self._state.tasks[name], numbers, policy)

    def _computed(self, task: TaskState) -> _Computed:
        computed = self._tasks.get(task.spec.task)
        if computed is None or computed.generation != task.generation:
            computed = self._tasks[task.spec.task] = _Computed(task.generation)
        return computed

    def _compare(
        self, task: TaskState, numbers: Iterable[int], policy: Policy
    ) -> Iterator[HeartbeatChange]:
        average_s, layout = task.watch.pace.average_s, task.layout
        if task.lifecycle.phase is not TaskPhase.RUNNING or average_s is None or layout is None:
            return
        name, generation, computed = task.spec.task, task.generation, self._computed(task)
        for number in numbers:
            own = computed.ranks.get(number)
            if own is None:
                continue
            peers = computed.stages[layout.pp_rank(number)]
            is_slow = is_straggler(own, peers, average_s, policy)
            most = policy.straggler_beats
            num_slow = computed.count_beat(number, is_slow=is_slow, most=most)
            is_known = number in task.watch.slowness.stragglers
            if num_slow == most and not is_known:
                yield StragglerFound(
                    name, generation, number, own.median_s, peers.median_s(own), own.waited_s
                )
            elif num_slow == 0 and is_known:
                yield StragglerOver(name, generation, number)
        longest_s = computed.waited_s[-1] if computed.waited_s else 0.0
        if _is_waiting_news(longest_s, task.watch.slowness.waited_s, average_s):
            yield WaitingChanged(name, generation, longest_s)


def _is_waiting_news(longest_s: float, known_s: float, average_s: float) -> bool:
    """Return whether ranks wait much more, or less, than is known, where it is worth a word."""
    if max(longest_s, known_s) < MUCH_WAITING * average_s:
        return False
    return longest_s > _STEP * known_s or longest_s < known_s / _STEP
