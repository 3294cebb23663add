"""What the core remembers of an incident: one fault from its first trace to its cure."""

from dataclasses import dataclass, field

from controller.core.rules.evidence import Evidence
from controller.core.state.phases import IncidentState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.regroup import StateSource
from profiles.faults.status import Status


@dataclass(slots=True)
class Cause:
    """The named cause of an incident, and its cure. Written by ``incidents.naming``."""

    fault_at: float
    node: NodeId | None = None
    global_rank: int | None = None
    status: Status | None = None
    severity: str = "unknown"
    method: str = "unknown"
    action: str = "none"
    reason: str = ""
    nodes: tuple[NodeId, ...] = ()
    """All nodes that were lost together, ``node`` first; empty if the fault is of no node."""
    decided_at: float | None = None
    """When the cause was named."""
    is_drill: bool = False
    """An operator broke it on purpose."""


@dataclass(slots=True)
class Recovery:
    """How training continued after an incident. Written by ``incidents.resolution``."""

    resume: str = ""
    """How training was taken up again, and why so."""
    recovery_s: float | None = None
    """From the fault to the first iteration that the next generation committed."""
    is_unseen: bool = False
    """It hit a command of which no iteration was ever seen: no time can be measured."""
    recomputed_micro_batches: int = 0
    saved_micro_batches: int = 0
    state_source: StateSource | None = None
    """The farthest place that a rank of the next generation had to get its state from."""


@dataclass(slots=True)
class Incident:
    """One fault from its first trace to its cure.

    Its own fields are written by ``incidents.incident_log``.
    """

    name: str
    task: TaskId | None
    covers: dict[TaskId, Generation]
    """Tasks that the fault hit, with the generation: later evidence about it is part of this."""
    detected_at: float
    cause: Cause
    state: IncidentState = IncidentState.DETECTED
    evidence: list[Evidence] = field(default_factory=list)
    acting_at: float | None = None
    """When the cure began: at once, or when its plan was approved."""
    resolved_at: float | None = None
    reopened_at: float | None = None
    """When it was seen to be a part of a worse fault; its times count from then."""
    recovery: Recovery = field(default_factory=Recovery)

    @property
    def is_open(self) -> bool:
        """Whether the fault is not cured yet."""
        return self.state is not IncidentState.RESOLVED


@dataclass(slots=True)
class IncidentLog:
    """All incidents of the run, oldest first. Written by ``incidents.incident_log``."""

    all: list[Incident] = field(default_factory=list)
    num_named: int = 0
    """Names given so far; an incident that becomes part of another one leaves a gap."""
    num_over: int = 0
    """So many incidents at the beginning are resolved: a search for open ones begins after them."""

    def open(self) -> list[Incident]:
        """Return the incidents that are not cured yet, oldest first."""
        return [each for each in self.all[self.num_over :] if each.is_open]

    def find(self, name: str) -> Incident | None:
        """Return the incident called ``name``, or None if another one has absorbed it."""
        return next((incident for incident in self.all if incident.name == name), None)
