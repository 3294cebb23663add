"""Everything the core remembers: nodes, tasks, incidents, plans, drills and measurements.

A record's fields are assigned by its own methods alone, one event at a time; everybody may read
them. Derived facts are properties, so that nothing has to be kept in step.

Small records stand here themselves: ``Automation``, whether plans are applied without an operator
and what has stopped that, and ``DrillLog``, the faults that operators staged on purpose.
"""

from collections import Counter
from collections.abc import Collection, Container
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Final

from controller.core.rules.placement import Worker
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.incident import IncidentLog
from controller.core.state.measurement import MeasurementLog
from controller.core.state.node import Contact, NodeMembership, NodeState
from controller.core.state.node_index import NodeIndex
from controller.core.state.phases import NodeCondition
from controller.core.state.plan import PlanLog
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_history import RegroupLimits
from controller.core.state.task_records import Lifecycle
from controller.core.state.upkeep import NodeUpkeep
from nodeagent.protocol.ids import Generation, NodeId, TaskId

_NUM_CHANGES: Final = 17
"""Changes of the capacity that are remembered."""

_MAX_DRILLS: Final = 50


@dataclass(slots=True)
class StagedDrill:
    """A drill that was ordered; ``task`` is None for a drill of a whole node."""

    at: float
    node: NodeId
    task: TaskId | None
    incident: str = ""
    """The incident that it explains: its fault has been seen, and a later fault is another one."""

    def explain(self, incident: str) -> None:
        """Keep the first incident that the drill explains."""
        self.incident = self.incident or incident


@dataclass(slots=True)
class DrillLog:
    """The newest drills, oldest first."""

    staged: list[StagedDrill] = field(default_factory=list)

    def note(self, drill: StagedDrill) -> None:
        """A drill was ordered."""
        self.staged = [*self.staged[-_MAX_DRILLS + 1 :], drill]

    def forget(self) -> None:
        """A new controller begins: the outcome of drills is unknown, so they explain no fault."""
        self.staged.clear()


@dataclass(slots=True)
class Automation:
    """What the controller has done by itself lately."""

    applied_at: tuple[float, ...] = ()
    """When policy has applied plans lately, oldest first."""
    stopped: str = ""
    """Why every plan waits for an operator, whatever policy says; empty if it does not."""
    stopped_at: float = 0.0
    resumed_at: float = 0.0
    """What was before this does not stop it again."""

    started_wall_s: float = 0.0
    """Wall clock at the start of the run, seconds since the epoch."""

    def note_start(self, started_wall_s: float) -> None:
        """A controller of the run begins."""
        self.started_wall_s = started_wall_s

    def note_applied(self, at: float, since: float) -> None:
        """Policy applies a plan; those before ``since`` stop to count."""
        self.applied_at = (*(each for each in self.applied_at if each >= since), at)

    def stop(self, reason: str, at: float) -> None:
        """Every plan waits for an operator from now on."""
        self.stopped, self.stopped_at = reason, at

    def resume(self, at: float) -> None:
        """An operator lets policy apply plans again."""
        self.stopped, self.resumed_at, self.applied_at = "", at, ()


@dataclass(slots=True)
class BurstLog:
    """The newest losses and returns of nodes that wait for a plan."""

    incident: str | None = None
    lost_contact_at: float = 0.0
    """When contact with its first node was lost."""
    seen: list[str] = field(default_factory=list)
    """What was observed, a sentence per node."""
    gathers_until: float | None = None
    """Until when the plan waits for further losses at most; None while no plan waits."""
    returned: list[NodeId] = field(default_factory=list)
    """Nodes that have come, or come back, and are in no plan yet."""
    awaits_returns_until: float | None = None
    """The same for nodes that return."""
    changes_at: tuple[float, ...] = ()
    """When nodes were lost or returned lately, oldest first; a burst is one change."""
    newest_change_at: float | None = None
    """The same of a change that has no plan yet."""

    @property
    def is_gathering(self) -> bool:
        """Whether a plan waits for further losses or returns."""
        return (self.gathers_until, self.awaits_returns_until) != (None, None)

    def note_loss(self, incident: str, lost_contact_at: float, seen: str) -> None:
        """A node is lost: in the burst of this incident, which may be a new one."""
        if self.incident != incident:
            self.incident, self.lost_contact_at, self.seen = incident, lost_contact_at, []
        self.seen = [*self.seen, seen]

    def gather_until(self, at: float | None) -> None:
        """The plan for losses waits until then; None: it is asked for."""
        self.gathers_until = at

    def note_return(self, node: NodeId, until: float) -> bool:
        """A node has come; its plan waits for others. Return whether the wait has just begun."""
        self.returned = [*self.returned, node]
        is_first = self.awaits_returns_until is None
        if is_first:
            self.awaits_returns_until = until
        return is_first

    def end_returns(self) -> list[NodeId]:
        """The plan of nodes that have returned is asked for: return them."""
        names, self.returned, self.awaits_returns_until = self.returned, [], None
        return names

    def note_change(self, at: float, burst_s: float) -> None:
        """A node is lost, or has returned; within ``burst_s`` that is the same change."""
        is_same = self.changes_at and at - self.changes_at[-1] <= burst_s
        if self.newest_change_at is None and not is_same:
            self.newest_change_at = at

    def count_change(self) -> None:
        """Count the newest change for later plans, once its own plan is made."""
        if self.newest_change_at is not None and not self.is_gathering:
            self.changes_at = (*self.changes_at, self.newest_change_at)[-_NUM_CHANGES:]
            self.newest_change_at = None


@dataclass(slots=True)
class WantedPlans:
    """Changes of nodes and tasks that have no plan yet."""

    seen: dict[str, str] = field(default_factory=dict)
    """What has changed, a sentence by node, task or ``policy``."""
    since: float = 0.0
    """When the newest of them was noted."""

    def want(self, subject: str, seen: str, at: float) -> None:
        """A change of ``subject`` wants a plan."""
        self.seen[subject], self.since = seen, at

    def drop(self, subjects: Container[str]) -> None:
        """The plan for these is asked for."""
        self.seen = {name: seen for name, seen in self.seen.items() if name not in subjects}


@dataclass(slots=True)
class ClusterState:
    """The whole."""

    nodes: dict[NodeId, NodeState]
    tasks: dict[TaskId, TaskState]
    index: NodeIndex = field(default_factory=NodeIndex)
    incidents: IncidentLog = field(default_factory=IncidentLog)
    plans: PlanLog = field(default_factory=PlanLog)
    drills: DrillLog = field(default_factory=DrillLog)
    measurements: MeasurementLog = field(default_factory=MeasurementLog)
    bursts: BurstLog = field(default_factory=BurstLog)
    wanted_plans: WantedPlans = field(default_factory=WantedPlans)
    automation: Automation = field(default_factory=Automation)

    def put_node(
        self, spec: NodeSpec, condition: NodeCondition = NodeCondition.EXPECTED
    ) -> NodeState:
        """Add a node of which nothing is known; return it."""
        name, index = spec.node, self.index
        index.add(name, condition)
        contact = Contact(name, condition, index=index)
        membership, upkeep = NodeMembership(name, index), NodeUpkeep(name, index)
        self.nodes[name] = node = NodeState(spec, contact, membership, upkeep=upkeep)
        return node

    def put_task(self, spec: TaskSpec) -> TaskState:
        """Add a task that has never started; return it. A removed task of its name is replaced."""
        former = self.tasks.get(spec.task)
        task = TaskState(spec, Lifecycle(spec.task), limits=RegroupLimits.of(spec))
        if former is not None:
            # Processes, files and timers of older generations must stay harmless.
            task = replace(
                task, generation=Generation(former.generation + 1), leaving=former.leaving
            )
        self.tasks[spec.task] = task
        return task

    def reweigh(
        self, name: TaskId, *, weight: float | None = None, keeps_running: bool | None = None
    ) -> None:
        """Suppose another priority of a task, in a copy of the state."""
        spec = self.tasks[name].spec
        if weight is not None:
            spec = replace(spec, weight=weight)
        if keeps_running is not None:
            spec = replace(spec, keeps_running=keeps_running)
        self.tasks[name] = replace(self.tasks[name], spec=spec)

    def can_use(self, worker: Worker) -> bool:
        """Whether a rank may run on ``worker``."""
        node = self.nodes[worker.node]
        is_in_service = node.contact.condition is NodeCondition.HEALTHY
        service = node.service
        return is_in_service and not service.isolated and worker.slot not in service.isolated_gpus

    def num_usable(self, workers: Collection[Worker]) -> int:
        """Return on how many of the workers a rank may run."""
        # Node by node, since it is asked of all workers of a task.
        num = 0
        for name, num_here in Counter(map(itemgetter(0), workers)).items():
            node = self.nodes[name]
            if node.contact.condition is NodeCondition.HEALTHY and not node.service.isolated:
                gone = node.service.isolated_gpus
                num += num_here
                if gone:
                    num -= sum(each == name and slot in gone for each, slot in workers)
        return num

    def is_fit(self, rank: RankState) -> bool:
        """Whether a parked process can be a rank of another generation, where it is."""
        return rank.can_go_on and self.can_use(rank.worker)
