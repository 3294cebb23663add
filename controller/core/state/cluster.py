"""Everything the core remembers: nodes, tasks, incidents and plans. A task's own part is in ``tasks``.

Plain mutable records that only the core's own modules change, one event at a time. Derived facts
are properties, so that nothing has to be kept in step.
"""

from dataclasses import dataclass, field

from controller.core.rules.actions import Occurrence
from controller.core.rules.evidence import Evidence
from controller.core.rules.node_loss import ProbeOutcome
from controller.core.rules.placement import Placement, Worker
from controller.core.rules.planner.cost import Problem
from controller.core.state.measurement import Measurement
from controller.core.state.phases import (
    INCIDENT_CHANGES,
    NODE_CHANGES,
    PLAN_CHANGES,
    IncidentState,
    NodeCondition,
    PlanState,
    advance,
)
from controller.core.state.task import RankState, SeenProgress, Target, TaskState
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.regroup import StateSource
from profiles.faults.status import Status


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as the cluster names it.

    Attributes:
        node: Its name.
        address: Where it is, for operators.
        num_workers: Its worker slots.
        failure_domain: What it shares with the nodes that fail together with it, a rack or a switch;
            empty where nothing is known of that.
    """

    node: NodeId
    address: str
    num_workers: int
    failure_domain: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Message:
    """Words that a node's probe has reported."""

    at: float
    text: str


@dataclass(slots=True)
class StagedDrill:
    """Something that was broken on purpose; ``task`` is None for a drill of a whole node."""

    at: float
    node: NodeId
    task: TaskId | None
    incident: str = ""
    """The incident that it explains: its fault has been seen, and what comes later is another."""


@dataclass(slots=True)
class NodeState:
    """One node."""

    spec: NodeSpec
    condition: NodeCondition = NodeCondition.EXPECTED
    note: str = ""
    agent_id: AgentId | None = None
    agent_pid: int | None = None
    rss_bytes: int | None = None
    last_message_at: float | None = None
    in_contact_since: float = 0.0
    """When contact was last gained."""
    lost_contact_at: float = 0.0
    judged_from: float = 0.0
    """Not lost before this, whatever is said: the controller has just begun to look for it."""
    answers: dict[NodeId, ProbeOutcome] = field(default_factory=dict)
    """What peers found at its SSH port since contact was lost, the newest of each."""
    asked: frozenset[NodeId] = frozenset()
    """Peers that were asked to look at its SSH port since it was last judged."""
    open_probes: set[NodeId] = field(default_factory=set)
    """Those of them that have not answered yet."""
    asked_at: float | None = None
    """Since when operators are asked whether it is lost; the note says why. None: they are not."""
    waits_since: float = 0.0
    """When an operator last chose to wait for it."""
    progress: dict[TaskId, SeenProgress] = field(default_factory=dict)
    """How far its tasks were when it was last heard, or last seen to advance since."""
    isolated: str = ""
    """Why no rank may run there although it is in contact; empty for a node in service."""
    isolated_gpus: dict[int, str] = field(default_factory=dict)
    """Why no rank may run on these workers, by slot, although the node is in service."""
    strays: set[Worker] = field(default_factory=set)
    """Workers with a process of a measurement that is over there: it was left behind out of contact."""
    record: list[Occurrence] = field(default_factory=list)
    """Its faults, while they count; those of drills only if policy counts them."""
    findings: dict[tuple[str, str], NodeFinding] = field(default_factory=dict)
    """What its probes find now, by sign and subject; what has happened and is past is not in it."""
    found_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each of them was found first."""
    clock_ages_s: list[float] = field(default_factory=list)
    """What its newest heartbeats tell about its clock; see ``clocks``."""
    messages: list[Message] = field(default_factory=list)
    """The newest words of its kernel and tools: some faults take several to be understood."""
    unclaimed: list[Evidence] = field(default_factory=list)
    """What its probes have found lately and no incident explains: a rank may be about to tell the same."""

    @property
    def is_in_service(self) -> bool:
        """Whether ranks may run there."""
        return self.condition is NodeCondition.HEALTHY and not self.isolated

    def become(self, condition: NodeCondition, note: str = "") -> None:
        """Change the condition along the table, with a note for operators."""
        self.condition = advance(NODE_CHANGES, self.condition, condition, self.spec.node)
        self.note = note


@dataclass(slots=True)
class Incident:
    """One fault from its first trace to its cure."""

    name: str
    task: TaskId | None
    covers: dict[TaskId, Generation]
    """Tasks that the fault hit, with the generation it hit: further evidence about it is ours."""
    detected_at: float
    fault_at: float
    state: IncidentState = IncidentState.DETECTED
    node: NodeId | None = None
    global_rank: int | None = None
    status: Status | None = None
    severity: str = "unknown"
    method: str = "unknown"
    action: str = "none"
    reason: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    decided_at: float | None = None
    """When the cause was named."""
    acting_at: float | None = None
    """When the cure began: at once, or when its plan was approved."""
    resolved_at: float | None = None
    reopened_at: float | None = None
    """When it was seen to be a part of something worse; its times count from then."""
    is_drill: bool = False
    """Somebody broke it on purpose."""
    resume: str = ""
    """How training was taken up again, and why so."""
    recovery_s: float | None = None
    """From the fault to the first iteration that the next generation committed."""
    recomputed_micro_batches: int = 0
    saved_micro_batches: int = 0
    state_source: StateSource | None = None
    """The farthest place that a rank of the next generation had to get its state from."""

    def become(self, state: IncidentState) -> None:
        """Change the state along the table."""
        self.state = advance(INCIDENT_CHANGES, self.state, state, self.name)

    def act(self, at: float) -> None:
        """The cure begins."""
        self.become(IncidentState.ACTING)
        self.acting_at = at

    @property
    def is_open(self) -> bool:
        """Whether the fault is not cured yet."""
        return self.state is not IncidentState.RESOLVED


@dataclass(frozen=True, slots=True)
class TaskChange:
    """What a plan does to one task; ``target`` is None where it gets no workers."""

    task: TaskId
    workers_before: int
    workers_after: int
    waf_before: float
    waf_after: float
    is_faulted: bool
    moves: bool
    placement_before: Placement
    """Where its ranks are, or were until the fault; empty where it does not run."""
    target: Target | None
    transition_s: float
    """Expected seconds without training if it moves."""


@dataclass(slots=True)
class Plan:
    """A division of the workers over all tasks, proposed or decided."""

    name: str
    revision: int
    trigger: str
    seen: str
    why: str
    created_at: float
    waf_before: float
    waf_after: float
    changes: dict[TaskId, TaskChange]
    isolated_nodes: tuple[NodeId, ...]
    steps: tuple[str, ...]
    problem: Problem
    """What the planner was asked."""
    incidents: set[str] = field(default_factory=set)
    state: PlanState = PlanState.PENDING
    approved_by: str | None = None
    decided_at: float | None = None

    def become(self, state: PlanState) -> None:
        """Change the state along the table."""
        self.state = advance(PLAN_CHANGES, self.state, state, self.name)


@dataclass(slots=True)
class ClusterState:
    """The whole."""

    nodes: dict[NodeId, NodeState]
    tasks: dict[TaskId, TaskState]
    incidents: list[Incident] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    drills: list[StagedDrill] = field(default_factory=list)
    """The newest ones."""
    num_over: int = 0
    """The oldest incidents, so many, are resolved; one that is opened again is not."""
    num_plans: int = 0
    num_plans_over: int = 0
    """The oldest plans, so many, are applied, rejected or superseded."""
    num_incidents: int = 0
    """Names given so far; an incident that turns out to be part of another leaves a gap."""
    measurement: Measurement | None = None
    """The one that runs, or the newest."""
    num_measurements: int = 0
    num_measured_runs: int = 0

    def can_use(self, worker: Worker) -> bool:
        """Whether a rank may run on ``worker``."""
        node = self.nodes[worker.node]
        return node.is_in_service and worker.slot not in node.isolated_gpus

    def is_fit(self, rank: RankState) -> bool:
        """Whether a parked process can be a rank of another generation, where it is."""
        return rank.can_go_on and self.can_use(rank.worker)

    def open_incidents(self) -> list[Incident]:
        """Return those that are not cured yet, oldest first; asked after every event."""
        while self.num_over < len(self.incidents) and not self.incidents[self.num_over].is_open:
            self.num_over += 1
        return [each for each in self.incidents[self.num_over :] if each.is_open]

    def reopen(self, incident: Incident, at: float) -> None:
        """What was taken for cured is not: it was a part of something that shows only now."""
        incident.become(IncidentState.DECIDED)
        incident.reopened_at = at
        incident.resolved_at = incident.recovery_s = incident.acting_at = None
        self.num_over = min(self.num_over, self.incidents.index(incident))

    def find_incident(self, name: str) -> Incident | None:
        """Return the incident called ``name``, or None where another one has absorbed it."""
        return next((incident for incident in self.incidents if incident.name == name), None)

    def pending_plan(self) -> Plan | None:
        """Return the plan that waits for a decision; there is at most one."""
        return self._plan_that_is(PlanState.PENDING)

    def executing_plan(self) -> Plan | None:
        """Return the plan that is being carried out; there is at most one."""
        return self._plan_that_is(PlanState.APPROVED)

    def _plan_that_is(self, wanted: PlanState) -> Plan | None:
        """Asked several times in every event."""
        plans, open_states = self.plans, {PlanState.PENDING, PlanState.APPROVED}
        while (
            self.num_plans_over < len(plans) and plans[self.num_plans_over].state not in open_states
        ):
            self.num_plans_over += 1
        newest = range(self.num_plans_over, len(plans))
        return next((plans[i] for i in newest if plans[i].state is wanted), None)
