"""Everything that can happen, as the core receives it: past tense, immutable, journaled.

The runtime wraps each body in an ``Event`` with a number and a time before the machine sees it.
Instructions repeat the number of the event that caused them, so any effect leads back to its
cause. A fault of the cluster is a value in here, never an exception.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from controller.core.rules.node_loss import ProbeOutcome
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.timers import Timer
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import AnyObservation
from nodeagent.protocol.rank_status import RankStatus

RankCommandKind = Literal["start", "halt", "stop", "inspect", "drill"]
"""What a command about ranks wants."""


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller began its work: the run's first, or one that takes over from its predecessor.

    Attributes:
        run_id: The same for all controllers of a run.
        term: 1 for the first of them; an agent refuses an older one than it has met.
        started_wall_s: Wall clock at the run's start, seconds since the epoch.
    """

    run_id: str
    term: int
    started_wall_s: float


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """Operators decided something else in advance. Every run begins with the default policy."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class NodeAdded:
    """A node belongs to the cluster from now on, or a node of this name has another address."""

    spec: NodeSpec


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node is to leave the cluster, once no process of a task is there any more."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class TaskAdded:
    """A task belongs to the cluster from now on."""

    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class TaskChanged:
    """A task has other settings.

    What concerns running ranks, such as the program, takes effect at the next start of all ranks.
    """

    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class TaskRemoved:
    """A task is to end, after a checkpoint."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class NodeAttached:
    """A session with the node's agent began; ``ranks`` is everything that lives there."""

    node: NodeId
    agent_id: AgentId
    agent_pid: int
    ranks: tuple[RankStatus, ...]


@dataclass(frozen=True, slots=True)
class ContactLost:
    """The session with the node's agent ended, or no message came for too long."""

    node: NodeId
    last_message_at: float
    reason: str


@dataclass(frozen=True, slots=True)
class RanksListed:
    """A heartbeat lists other ranks of the node than the core expects, or says more of them.

    ``ranks`` is everything that lives there.
    """

    node: NodeId
    ranks: tuple[RankStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeFellSilent:
    """A node in contact has sent nothing for so long that it may be lost."""

    node: NodeId
    last_message_at: float


@dataclass(frozen=True, slots=True)
class NodeAnswered:
    """A node has sent a heartbeat that the core waits for.

    It is the first after a silence, or shows that the node did not go with a rank that is lost.
    """

    node: NodeId


@dataclass(frozen=True, slots=True)
class RankVanished:
    """A node has not listed a rank for a while, though nobody has reported its end."""

    node: NodeId
    task: TaskId
    generation: Generation
    global_rank: int
    missing_since: float


@dataclass(frozen=True, slots=True)
class TaskAdvanced:
    """A heartbeat shows that a rank has finished an iteration of which no report has come."""

    node: NodeId
    task: TaskId
    generation: Generation
    global_rank: int
    iteration: int


@dataclass(frozen=True, slots=True)
class ClockMeasured:
    """A node's wall clock has begun to be off, has moved since, or is right again.

    ``offset_s`` is by how much it is ahead of the controller's, or behind if negative.
    """

    node: NodeId
    offset_s: float


@dataclass(frozen=True, slots=True)
class StragglerFound:
    """A rank has been slower than its peers for long enough.

    Times are those of one iteration's own computing: the rank's, the median of its peers, and for
    how long of it the rank waited for a core.
    """

    task: TaskId
    generation: Generation
    global_rank: int
    busy_s: float
    peers_s: float
    waited_s: float


@dataclass(frozen=True, slots=True)
class StragglerOver:
    """A rank has been as fast as its peers for long enough."""

    task: TaskId
    generation: Generation
    global_rank: int


@dataclass(frozen=True, slots=True)
class WaitingChanged:
    """The ranks of a task wait for a core for longer, or less long, than they did.

    ``waited_s`` is the longest time of a rank in one iteration.
    """

    task: TaskId
    generation: Generation
    waited_s: float


@dataclass(frozen=True, slots=True)
class PeerProbed:
    """``by`` tried the SSH port of ``node``."""

    node: NodeId
    by: NodeId
    outcome: ProbeOutcome | None
    """None where the probe itself could not be made."""


@dataclass(frozen=True, slots=True)
class Observed:
    """An agent reported an observation. Reports arrive in order and once per ``(node, seq)``."""

    node: NodeId
    seq: int
    observed_at: float
    observation: AnyObservation


@dataclass(frozen=True, slots=True)
class StopCarriedOut:
    """The agent has sent the signals of a ``StopRanks``; exits follow as observations."""

    node: NodeId
    task: TaskId
    generation: Generation


@dataclass(frozen=True, slots=True)
class HaltCarriedOut:
    """The agent has passed a ``HaltRanks`` to its ranks.

    Each rank reports itself when it has parked.
    """

    node: NodeId
    task: TaskId
    generation: Generation


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """An agent refused a command about ``task``, or its outcome can't be known.

    ``is_outcome_unknown`` is true where the connection ended before the answer: the command may
    have been carried out. What is missing is asked for again when the node attaches.
    """

    node: NodeId
    command: RankCommandKind
    task: TaskId
    generation: Generation
    error: str
    is_outcome_unknown: bool


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that the core had set has run out."""

    timer: Timer


@dataclass(frozen=True, slots=True)
class OperatorRequest:
    """What every request of an operator says: a name for its answer, and who asks.

    The other fields are those of the command of the same meaning in ``controller.api.wire``.

    Attributes:
        VERB: What ``verb`` returns, if that is always the same.
        ABOUT: The field with the name of what it is about; empty if that is the cluster.
    """

    VERB: ClassVar[str] = ""
    ABOUT: ClassVar[str] = ""
    request_id: str
    actor: str

    @property
    def verb(self) -> str:
        """What is asked for, in the words of the command line."""
        return self.VERB

    @property
    def subject(self) -> str:
        """What it is about: a plan, node, task or measurement; empty if it is the cluster."""
        return str(getattr(self, self.ABOUT) or "") if self.ABOUT else ""


@dataclass(frozen=True, slots=True)
class PlanApproved(OperatorRequest):
    """An operator approved the plan as of ``revision``."""

    VERB = "approve"
    ABOUT = "plan"
    plan: str
    revision: int


@dataclass(frozen=True, slots=True)
class CureApproved(OperatorRequest):
    """An operator has the cure done that a rehearsal has recorded for an incident.

    Attributes:
        action: What he has seen; another one is refused.
    """

    VERB = "approve"
    ABOUT = "incident"
    incident: str
    action: str


@dataclass(frozen=True, slots=True)
class PlanRejected(OperatorRequest):
    """An operator declined the plan as of ``revision``."""

    VERB = "reject"
    ABOUT = "plan"
    plan: str
    revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlanDeferred(OperatorRequest):
    """An operator wants more time before the plan as of ``revision`` is applied by itself."""

    VERB = "defer"
    ABOUT = "plan"
    plan: str
    revision: int
    for_s: float


@dataclass(frozen=True, slots=True)
class AutomationResumed(OperatorRequest):
    """An operator lets policy apply plans again, after it was stopped in a storm."""

    VERB = "resume"


@dataclass(frozen=True, slots=True)
class PlanRequested(OperatorRequest):
    """An operator asked for a plan for the present state."""

    VERB = "propose"


@dataclass(frozen=True, slots=True)
class UncordonRequested(OperatorRequest):
    """An operator wants an isolated node back in service; forced, even if its checks do not pass.

    With ``gpu`` only that one of it; without, the node and every single GPU of it.
    """

    VERB = "uncordon"
    ABOUT = "node"
    node: NodeId
    is_forced: bool = False
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class LossDecided(OperatorRequest):
    """An operator says whether a node out of contact is lost, or is to be waited for."""

    VERB = "unreachable"
    ABOUT = "node"
    node: NodeId
    is_lost: bool


@dataclass(frozen=True, slots=True)
class MeasurementRequested(OperatorRequest):
    """An operator wants a task's speed measured on idle workers.

    At ``sizes``, or at all sizes if ``sizes`` is empty.

    Attributes:
        is_contained: Of a command task: the operator says that the command writes its files only
            into the directory that it is given.
    """

    VERB = "profile measure"
    ABOUT = "task"
    task: TaskId
    sizes: tuple[int, ...]
    num_iterations: int
    is_contained: bool = False


@dataclass(frozen=True, slots=True)
class MeasurementCancelled(OperatorRequest):
    """An operator does not want to wait for a measurement."""

    VERB = "cancel measurement"
    ABOUT = "measurement"
    measurement: str


@dataclass(frozen=True, slots=True)
class DrillRequested(OperatorRequest):
    """Someone asked to break something on purpose; fields left None are chosen by the core."""

    VERB = "drill"
    ABOUT = "node"
    drill: str
    task: TaskId | None = None
    global_rank: int | None = None
    node: NodeId | None = None


TaskOrder = Literal["stop", "start", "finish", "archive"]
NodeOrder = Literal["cordon", "drain", "isolate", "repair", "return"]


@dataclass(frozen=True, slots=True)
class TaskOrdered(OperatorRequest):
    """An operator stops, starts, finishes or archives a task."""

    ABOUT = "task"
    order: TaskOrder
    task: TaskId

    @property
    @override
    def verb(self) -> str:
        return self.order


@dataclass(frozen=True, slots=True)
class TaskLimited(OperatorRequest):
    """An operator gives a task another weight or other limits. None leaves a setting as it is.

    Attributes:
        max_workers: 0 takes the limit away.
    """

    ABOUT = "task"
    task: TaskId
    weight: float | None = None
    min_workers: int | None = None
    max_workers: int | None = None
    keeps_running: bool | None = None

    @property
    @override
    def verb(self) -> str:
        sizes = (self.min_workers, self.max_workers, self.keeps_running)
        return "weight" if sizes == (None, None, None) else "limits"


@dataclass(frozen=True, slots=True)
class TaskSubmitted(OperatorRequest):
    """An operator wants further tasks trained: all of them or, if one can't be taken, none."""

    VERB = "submit"
    specs: tuple[TaskSpec, ...]

    @property
    @override
    def subject(self) -> str:
        return ", ".join(spec.task for spec in self.specs)


@dataclass(frozen=True, slots=True)
class NodeOrdered(OperatorRequest):
    """An operator takes a node out of service, or says that its repair is over.

    Attributes:
        reason: Why, for the record.
        is_forced: Of a drain: tasks that have no room elsewhere may stop. Of a return: the checks
            need not pass.
    """

    ABOUT = "node"
    order: NodeOrder
    node: NodeId
    reason: str = ""
    is_forced: bool = False

    @property
    @override
    def verb(self) -> str:
        return "repair --done" if self.order == "return" else self.order


@dataclass(frozen=True, slots=True)
class FileReloaded(OperatorRequest):
    """An operator had a changed cluster file taken in: the events before this one.

    Attributes:
        changes: What has changed, a line each.
    """

    VERB = "reload"
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShutdownRequested(OperatorRequest):
    """Someone asked for the end of the run. The edge carries it out."""

    VERB = "down"


Request = (
    PlanApproved
    | PlanRejected
    | PlanDeferred
    | PlanRequested
    | AutomationResumed
    | CureApproved
    | UncordonRequested
    | LossDecided
    | MeasurementRequested
    | MeasurementCancelled
    | DrillRequested
    | TaskOrdered
    | TaskLimited
    | TaskSubmitted
    | NodeOrdered
    | FileReloaded
    | ShutdownRequested
)
"""What an operator asks for."""

HeartbeatChange = (
    RanksListed
    | NodeFellSilent
    | NodeAnswered
    | RankVanished
    | TaskAdvanced
    | ClockMeasured
    | StragglerFound
    | StragglerOver
    | WaitingChanged
)
"""What heartbeats show that the core has to know. See ``controller.core.heartbeats``."""

MembershipChange = NodeAdded | NodeRemoved | TaskAdded | TaskChanged | TaskRemoved | PolicyChanged
"""What belongs to the cluster, and under which policy, has changed."""

EventBody = (
    ControllerStarted
    | MembershipChange
    | NodeAttached
    | ContactLost
    | HeartbeatChange
    | PeerProbed
    | Observed
    | StopCarriedOut
    | HaltCarriedOut
    | CommandFailed
    | TimerFired
    | Request
)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the journal.

    Attributes:
        number: Counts from 1 without gaps.
        at: Seconds since the start of the run; never decreases, also from one controller to the
            next.
        body: What happened.
    """

    number: int
    at: float
    body: EventBody
