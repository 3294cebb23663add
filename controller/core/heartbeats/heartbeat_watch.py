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

Rejected: agents that send changes only. An agent does not know what the core expects, and nobody
would repeat a change that is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.events import (
    ClockMeasured,
    HeartbeatChange,
    NodeAnswered,
    NodeFellSilent,
    RanksListed,
    RankVanished,
    TaskAdvanced,
)
from controller.core.heartbeats.computing_watch import ComputingWatch
from controller.core.nodes.inventory import is_as_expected
from controller.core.nodes.node_clocks import NUM_AGES, clock_offset_s, is_clock_news
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.rank_status import RankStatus

_UNREPORTED_S: Final = 0.4
"""An iteration that is seen in heartbeats for this long is not about to be reported."""

ListedRank = tuple[TaskId, Generation, int]
"""A rank of a generation: its task, the generation, its global rank."""


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
        self._computing = ComputingWatch(state)
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
