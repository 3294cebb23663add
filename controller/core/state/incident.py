"""What the core remembers of an incident: one fault from its first trace to its cure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from controller.core.rules.evidence import Evidence
from controller.core.state.phases import INCIDENT_CHANGES, IncidentState, advance
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.regroup import StateSource
from profiles.faults.status import Status

_MOST_KEPT: Final = 200
"""Decisions need the newest few; people look at older ones in the history beside the journal."""


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an incident, and its cure, as far as they are known."""

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
    """How training continued after an incident."""

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

    def note_resume(self, reason: str, *, num_recomputed: int, num_saved: int) -> None:
        """The parked generation is followed by another one; micro-batches are counted."""
        self.resume = reason
        self.recomputed_micro_batches += num_recomputed
        self.saved_micro_batches += num_saved

    def note_source(self, source: StateSource) -> None:
        """The next generation has its state."""
        self.state_source = source

    def count_recomputed(self, num_micro_batches: int) -> None:
        """Micro-batches of whole iterations are run again."""
        self.recomputed_micro_batches += num_micro_batches

    def note_unseen(self) -> None:
        """Nobody sees when training continues."""
        self.is_unseen = True

    def note_recovered(self, recovery_s: float | None) -> None:
        """Training continues; None if that is still to come, after all."""
        self.recovery_s = recovery_s


@dataclass(frozen=True, slots=True)
class RehearsedCure:
    """A cure that a rehearsal has recorded, and the operator's approval of it.

    Attributes:
        at: When.
        action: What: an action of ``rules.actions``, or ``reconfigure`` for a plan.
        reason: Why.
        approved_by: Who had it done; empty while nobody has.
        approved_at: When.
    """

    at: float
    action: str
    reason: str
    approved_by: str = ""
    approved_at: float | None = None


@dataclass(slots=True)
class Incident:
    """One fault from its first trace to its cure.

    Methods that change the state raise ``InvariantViolationError`` where the table in
    ``state.phases`` does not allow it: that is a bug of the core.
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
    rehearsed: RehearsedCure | None = None

    @property
    def awaits_consent(self) -> bool:
        """Whether an operator has to approve its cure, in a rehearsal."""
        asked = self.rehearsed
        return self.is_open and asked is not None and asked.approved_at is None

    def rehearse(self, at: float, action: str, reason: str) -> bool:
        """Record what would be done now; return whether that is news."""
        known = self.rehearsed
        if known is not None and known.action == action:
            return False
        self.rehearsed = RehearsedCure(at, action, reason)
        return True

    def consent(self, actor: str, at: float) -> None:
        """An operator has the rehearsed cure done."""
        if self.rehearsed is not None:
            self.rehearsed = replace(self.rehearsed, approved_by=actor, approved_at=at)

    @property
    def is_open(self) -> bool:
        """Whether the fault is not cured yet."""
        return self.state is not IncidentState.RESOLVED

    def name_cause(self, cause: Cause) -> None:
        """Keep what is known of the cause."""
        self.cause = cause

    def add_evidence(self, evidence: Iterable[Evidence]) -> None:
        """Keep pieces of evidence."""
        self.evidence += evidence

    def absorb(self, other: "Incident") -> None:
        """Another incident turns out to be a part of this one."""
        self.add_evidence(other.evidence)
        self.task = self.task or other.task

    def cover(self, tasks: Iterable[TaskState]) -> None:
        """The fault hits these tasks, in their present generations."""
        self.covers |= {task.spec.task: task.generation for task in tasks}

    def cover_only(self, tasks: Sequence[TaskState]) -> None:
        """The fault hits these tasks and no other ones."""
        self.task = tasks[0].spec.task if tasks else None
        self.covers = {task.spec.task: task.generation for task in tasks}

    def cover_nothing(self) -> None:
        """The fault ends no generation, so evidence of another fault does not join the incident."""
        self.covers = {}

    def keep_root(self, evidence: Evidence) -> None:
        """Keep the evidence of the root cause, if the incident was not opened on it."""
        if evidence not in self.evidence:
            self.evidence.append(evidence)

    def _become(self, state: IncidentState) -> None:
        self.state = advance(INCIDENT_CHANGES, self.state, state, self.name)

    def decide(self) -> None:
        """The cause is named; a plan has to cure it."""
        self._become(IncidentState.DECIDED)

    def decide_again(self) -> None:
        """The cause is named, maybe once more; a plan has to cure it."""
        if self.state is not IncidentState.DECIDED:
            self.decide()

    def act(self, at: float) -> None:
        """The cure begins."""
        self._become(IncidentState.ACTING)
        self.acting_at = at

    def hold(self) -> None:
        """Hand a named fault to the operator."""
        if self.state in {IncidentState.DECIDED, IncidentState.ACTING}:
            self.hand_to_operator()

    def hand_to_operator(self) -> None:
        """The operator has to cure the fault."""
        self._become(IncidentState.HELD)

    def close(self, at: float) -> None:
        """The fault is cured."""
        self._become(IncidentState.RESOLVED)
        self.resolved_at = at

    def reopen(self, at: float) -> None:
        """A cured fault was a part of one that shows only now: its recovery is still to come."""
        self.decide()
        self.reopened_at = at
        self.resolved_at = self.acting_at = None
        self.recovery.note_recovered(None)


@dataclass(slots=True)
class IncidentLog:
    """Incidents of the run, oldest first: the open ones, and the newest of the others."""

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

    def next_name(self) -> str:
        """Return the name of an incident that is opened now."""
        self.num_named += 1
        return f"I-{self.num_named}"

    def keep(self, incident: Incident) -> None:
        """Keep a new incident; the oldest that is cured is forgotten if there are too many."""
        self.all.append(incident)
        if len(self.all) > _MOST_KEPT:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        for place, incident in enumerate(self.all):
            if not incident.is_open:
                del self.all[place]
                self.num_over -= place < self.num_over
                return

    def absorb(self, incident: Incident, other: Incident) -> None:
        """The other incident turns out to be a part of this one."""
        incident.absorb(other)
        self.all.remove(other)

    def close(self, incident: Incident, at: float) -> None:
        """The fault is cured. Searches for open incidents begin after those that are over."""
        incident.close(at)
        while self.num_over < len(self.all) and not self.all[self.num_over].is_open:
            self.num_over += 1

    def reopen(self, incident: Incident, at: float) -> None:
        """A cured fault was a part of one that shows only now."""
        incident.reopen(at)
        self.num_over = min(self.num_over, self.all.index(incident))
