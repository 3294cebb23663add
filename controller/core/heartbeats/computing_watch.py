"""Which ranks are slower than their peers, and whether ranks wait for a core, as heartbeats show.

Noise is no alarm. A rank has to be slower in ``straggler_beats`` more heartbeats than it was not,
and a straggler is over when it was not slower in as many more than it was.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from controller.core.events import HeartbeatChange, StragglerFound, StragglerOver, WaitingChanged
from controller.core.monitoring.slowness import MUCH_WAITING
from controller.core.rules.policy import Policy
from controller.core.rules.stragglers import Computing, Peers, is_straggler
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_status import RankStatus

_STEP: Final = 2.0
"""Waiting that has changed by less than this factor is no news."""


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


class ComputingWatch:
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
