"""What the core remembers of a node: its records, each with one writing module."""

from dataclasses import dataclass, field

from controller.core.rules.actions import Occurrence
from controller.core.rules.evidence import Evidence
from controller.core.rules.node_loss import ProbeOutcome
from controller.core.rules.placement import Worker
from controller.core.specs import NodeSpec
from controller.core.state.phases import NodeCondition
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, NodeId, TaskId


@dataclass(frozen=True, slots=True)
class Message:
    """Words that a node's probe has reported."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class SeenProgress:
    """How far a task was, and when that was seen."""

    iteration: int
    seen_at: float


@dataclass(slots=True)
class Contact:
    """The controller's contact with a node. Written by ``nodes.contact``."""

    condition: NodeCondition = NodeCondition.EXPECTED
    note: str = ""
    agent_id: AgentId | None = None
    agent_pid: int | None = None
    rss_bytes: int | None = None
    last_message_at: float | None = None
    awaited_since: float = 0.0
    """When it was added to the cluster."""
    in_contact_since: float = 0.0
    """When contact was last gained."""
    lost_contact_at: float = 0.0


@dataclass(slots=True)
class LossInquiry:
    """Whether a node out of contact is lost: answers so far. Written by ``nodes.contact``."""

    judged_from: float = 0.0
    """The node is not judged before this: the controller has just begun to look for it."""
    answers: dict[NodeId, ProbeOutcome] = field(default_factory=dict)
    """What each peer last found at the node's SSH port since contact was lost."""
    last_asked: dict[NodeId, float] = field(default_factory=dict)
    """When each peer was last asked to look at its SSH port, since contact was lost."""
    open_probes: set[NodeId] = field(default_factory=set)
    """Asked peers that have not answered yet."""
    asked_at: float | None = None
    """Since when operators are asked whether it is lost; None if they are not asked."""
    waits_since: float = 0.0
    """When an operator last chose to wait for it."""


@dataclass(slots=True)
class PeerReach:
    """Which peers can see the node's SSH port. Written by ``nodes.peer_reach``."""

    tried_by: set[NodeId] = field(default_factory=set)
    """Peers that were asked to look while it was in contact."""
    reached_by: set[NodeId] = field(default_factory=set)
    """Peers that have had an answer from it at any time."""


@dataclass(slots=True)
class TaskSightings:
    """How far the node's tasks were when it last reported. Written by ``nodes.node_evidence``."""

    by_task: dict[TaskId, SeenProgress] = field(default_factory=dict)
    """Of a node out of contact: how far the task was last seen to advance since."""


@dataclass(slots=True)
class Service:
    """Whether ranks may run on the node. Written by ``incidents.isolation``."""

    isolated: str = ""
    """Why no rank may run there although it is in contact; empty for a node in service."""
    isolated_gpus: dict[int, str] = field(default_factory=dict)
    """Why no rank may run on these workers, by slot, although the node is in service."""
    faults: list[Occurrence] = field(default_factory=list)
    """Its faults, while they count; faults of drills only if policy counts them."""


@dataclass(slots=True)
class NodeMembership:
    """Whether the node belongs to the cluster. Written by ``membership.node_membership``."""

    is_leaving: bool = False
    """It was removed, and still has processes of tasks. A plan gives it no workers any more."""


@dataclass(slots=True)
class Inventory:
    """What lives on the node and should not. Written by ``nodes.inventory``."""

    strays: set[Worker] = field(default_factory=set)
    """Workers with a process of a measurement that is over: it was left behind out of contact."""


@dataclass(slots=True)
class Findings:
    """What the node's probes report. Written by ``incidents.node_findings``."""

    present: dict[tuple[str, str], NodeFinding] = field(default_factory=dict)
    """What its probes find now, by sign and subject; findings that are over are left out."""
    found_at: dict[tuple[str, str], float] = field(default_factory=dict)
    """When each present finding was found first."""
    messages: list[Message] = field(default_factory=list)
    """The newest words of its kernel and tools: some faults take several to be understood."""


@dataclass(slots=True)
class Unclaimed:
    """Findings that no incident explains yet. Written by ``incidents.evidence_intake``."""

    evidence: list[Evidence] = field(default_factory=list)
    """The newest ones: a rank may be about to report the same fault."""


@dataclass(slots=True)
class ClockOffset:
    """The node's wall clock, as its heartbeats show it. Written by ``nodes.node_clocks``."""

    ages_s: list[float] = field(default_factory=list)
    """Ages of its newest heartbeats."""


@dataclass(slots=True)
class NodeState:
    """One node: what it is, and its records.

    Its own field ``spec`` is written by ``membership.node_membership``.
    """

    spec: NodeSpec
    contact: Contact = field(default_factory=Contact)
    inquiry: LossInquiry = field(default_factory=LossInquiry)
    reach: PeerReach = field(default_factory=PeerReach)
    sightings: TaskSightings = field(default_factory=TaskSightings)
    membership: NodeMembership = field(default_factory=NodeMembership)
    service: Service = field(default_factory=Service)
    inventory: Inventory = field(default_factory=Inventory)
    findings: Findings = field(default_factory=Findings)
    unclaimed: Unclaimed = field(default_factory=Unclaimed)
    clock: ClockOffset = field(default_factory=ClockOffset)

    @property
    def is_in_service(self) -> bool:
        """Whether a plan may give its workers to tasks."""
        is_wanted = not self.service.isolated and not self.membership.is_leaving
        return self.contact.condition is NodeCondition.HEALTHY and is_wanted
