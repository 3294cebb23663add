"""The states that nodes, tasks, incidents and plans can be in, and which may follow which.

The tables are data and total over their enumerations; ``advance`` is the only way to change a
state, so an impossible change is found where it is made.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar


class InvariantViolationError(Exception):
    """Our own bug: the core was about to break a promise.

    Attributes:
        subjects: Names of the tasks, nodes, incidents or plans that the promise is about.
        story: The last events that name a subject, one line each; ``Machine`` adds them.
    """

    def __init__(self, text: str, *subjects: str) -> None:
        super().__init__(text)
        self.subjects = subjects
        self.story: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [super().__str__()]
        if self.story:
            lines += [f"last events of {', '.join(self.subjects) or 'the cluster'}:", *self.story]
        return "\n  ".join(lines)


class NodeCondition(StrEnum):
    """What the controller believes about a node."""

    EXPECTED = "expected"
    """Named in the cluster, not seen yet."""
    HEALTHY = "healthy"
    """In contact."""
    UNREACHABLE = "unreachable"
    """Out of contact, presumed training: losing sight of a node is not losing the node."""
    LOST = "lost"
    """Evidence says that it is gone: it holds no worker of any task."""
    REMOVED = "removed"
    """Operators have removed it from the cluster. It may be added again."""


class TaskPhase(StrEnum):
    """Where a task is in its life."""

    WAITING = "waiting"
    """No rank runs; starts as soon as it has a target and its workers are free."""
    STARTING = "starting"
    """A generation forms, of new or of parked processes; it has not committed an iteration yet."""
    RUNNING = "running"
    PARKING = "parking"
    """Its ranks were ordered to park. The next generation begins once all have reported where."""
    STOPPING = "stopping"
    """Its ranks were ordered to end, or killed; some still live."""
    HELD = "held"
    """Recoveries did not help; nothing happens until an operator decides."""
    STOPPED = "stopped"
    """A plan gave it no workers."""
    FINISHED = "finished"


AT_REST: Final = frozenset(
    {TaskPhase.WAITING, TaskPhase.STOPPED, TaskPhase.HELD, TaskPhase.FINISHED}
)
"""Phases without ranks."""


class IncidentState(StrEnum):
    """Where an incident is between detection and cure."""

    DETECTED = "detected"
    """Evidence is being collected."""
    DECIDED = "decided"
    """The cause is named; a plan waits for approval."""
    ACTING = "acting"
    RESOLVED = "resolved"
    HELD = "held"
    """Handed to the operator."""


class PlanState(StrEnum):
    """Where a plan is between proposal and completion."""

    PENDING = "pending"
    APPROVED = "approved"
    APPLIED = "applied"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"


NODE_CHANGES: Final[Mapping[NodeCondition, frozenset[NodeCondition]]] = {
    NodeCondition.EXPECTED: frozenset(
        {NodeCondition.HEALTHY, NodeCondition.LOST, NodeCondition.REMOVED}
    ),
    NodeCondition.HEALTHY: frozenset({NodeCondition.UNREACHABLE, NodeCondition.REMOVED}),
    NodeCondition.UNREACHABLE: frozenset(
        {NodeCondition.HEALTHY, NodeCondition.LOST, NodeCondition.REMOVED}
    ),
    NodeCondition.LOST: frozenset({NodeCondition.HEALTHY, NodeCondition.REMOVED}),
    NodeCondition.REMOVED: frozenset({NodeCondition.EXPECTED}),
}

TASK_CHANGES: Final[Mapping[TaskPhase, frozenset[TaskPhase]]] = {
    TaskPhase.WAITING: frozenset(
        {TaskPhase.STARTING, TaskPhase.STOPPED, TaskPhase.HELD, TaskPhase.FINISHED}
    ),
    TaskPhase.STARTING: frozenset(
        {TaskPhase.RUNNING, TaskPhase.PARKING, TaskPhase.STOPPING, TaskPhase.FINISHED}
    ),
    TaskPhase.RUNNING: frozenset({TaskPhase.PARKING, TaskPhase.STOPPING, TaskPhase.FINISHED}),
    TaskPhase.PARKING: frozenset({TaskPhase.STARTING, TaskPhase.STOPPING, TaskPhase.FINISHED}),
    TaskPhase.STOPPING: frozenset({TaskPhase.WAITING, TaskPhase.STOPPED, TaskPhase.HELD}),
    TaskPhase.HELD: frozenset({TaskPhase.WAITING, TaskPhase.STOPPED}),
    TaskPhase.STOPPED: frozenset({TaskPhase.WAITING}),
    TaskPhase.FINISHED: frozenset(),
}

INCIDENT_CHANGES: Final[Mapping[IncidentState, frozenset[IncidentState]]] = {
    IncidentState.DETECTED: frozenset(
        {IncidentState.DECIDED, IncidentState.ACTING, IncidentState.HELD, IncidentState.RESOLVED}
    ),
    IncidentState.DECIDED: frozenset(
        {IncidentState.ACTING, IncidentState.HELD, IncidentState.RESOLVED}
    ),
    IncidentState.ACTING: frozenset(
        {IncidentState.DECIDED, IncidentState.RESOLVED, IncidentState.HELD}
    ),
    IncidentState.HELD: frozenset(
        {IncidentState.DECIDED, IncidentState.ACTING, IncidentState.RESOLVED}
    ),
    # Broken hardware that shows late.
    IncidentState.RESOLVED: frozenset({IncidentState.DECIDED}),
}

PLAN_CHANGES: Final[Mapping[PlanState, frozenset[PlanState]]] = {
    PlanState.PENDING: frozenset({PlanState.APPROVED, PlanState.REJECTED, PlanState.SUPERSEDED}),
    PlanState.APPROVED: frozenset({PlanState.APPLIED, PlanState.SUPERSEDED}),
    PlanState.APPLIED: frozenset(),
    PlanState.REJECTED: frozenset(),
    PlanState.SUPERSEDED: frozenset(),
}

StateT = TypeVar("StateT", bound=StrEnum)


def advance(
    changes: Mapping[StateT, frozenset[StateT]], now: StateT, then: StateT, who: str
) -> StateT:
    """Return ``then`` if ``now`` may become it.

    Raises:
        InvariantViolationError: The table does not allow the change; the text names ``who``.
    """
    if then not in changes[now]:
        raise InvariantViolationError(f"{who} can't go from {now} to {then}", who)
    return then
