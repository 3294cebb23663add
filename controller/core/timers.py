"""Timers that the core sets. Each is a value; setting an equal one again moves it.

The runtime waits and posts ``TimerFired``; the core decides whether a timer that fires still means
anything, so none ever has to be cancelled.
"""

from dataclasses import dataclass
from typing import Literal

from nodeagent.protocol.ids import Generation, NodeId, TaskId


@dataclass(frozen=True, slots=True)
class SettleIncident:
    """Evidence of an incident has been collected for long enough to look at it."""

    incident: str
    kind: Literal["settle_incident"] = "settle_incident"


@dataclass(frozen=True, slots=True)
class JudgeNode:
    """An unreachable node is to be judged, and probed, again."""

    node: NodeId
    kind: Literal["judge_node"] = "judge_node"


@dataclass(frozen=True, slots=True)
class JoinOverdue:
    """The first contact with a node that was added is overdue."""

    node: NodeId
    kind: Literal["join_overdue"] = "join_overdue"


@dataclass(frozen=True, slots=True)
class BurstOver:
    """Nodes that are lost or return have been gathered for as long as policy allows.

    ``subject`` is the incident of the losses, or the first node that returned.
    """

    subject: str
    kind: Literal["burst_over"] = "burst_over"


@dataclass(frozen=True, slots=True)
class StartOverdue:
    """The first iteration of a generation is overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["start_overdue"] = "start_overdue"


@dataclass(frozen=True, slots=True)
class CommandLives:
    """The processes of a command have had time to fail, and may have printed nothing."""

    task: TaskId
    generation: Generation
    kind: Literal["command_lives"] = "command_lives"


@dataclass(frozen=True, slots=True)
class StopOverdue:
    """The end of a graceful stop is overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["stop_overdue"] = "stop_overdue"


@dataclass(frozen=True, slots=True)
class HaltOverdue:
    """A generation was halted, and the parking of its ranks is overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["halt_overdue"] = "halt_overdue"


@dataclass(frozen=True, slots=True)
class ReplicaPeersOverdue:
    """Ranks whose replica has parked ranks should have parked too, unless they wait for these."""

    task: TaskId
    generation: Generation
    kind: Literal["replica_peers_overdue"] = "replica_peers_overdue"


@dataclass(frozen=True, slots=True)
class CapacityOverdue:
    """A parked task has waited long enough for workers that others are to free."""

    task: TaskId
    generation: Generation
    kind: Literal["capacity_overdue"] = "capacity_overdue"


@dataclass(frozen=True, slots=True)
class HeldRetryDue:
    """A task that was handed to the operator is to be tried again, if it still is held."""

    task: TaskId
    generation: Generation
    kind: Literal["held_retry_due"] = "held_retry_due"


@dataclass(frozen=True, slots=True)
class SparesOverdue:
    """The spares by which a task is to grow are overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["spares_overdue"] = "spares_overdue"


@dataclass(frozen=True, slots=True)
class IterationOverdue:
    """The next iteration of a generation is overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["iteration_overdue"] = "iteration_overdue"


@dataclass(frozen=True, slots=True)
class InspectionDue:
    """The ranks of a generation that forms, or ends, are to be looked at if it still does."""

    task: TaskId
    generation: Generation
    kind: Literal["inspection_due"] = "inspection_due"


@dataclass(frozen=True, slots=True)
class InspectionOverdue:
    """The agents' reports on the ranks of a stalled task are overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["inspection_overdue"] = "inspection_overdue"


@dataclass(frozen=True, slots=True)
class MeasurementOverdue:
    """The next iteration of measured ranks is overdue."""

    task: TaskId
    generation: Generation
    kind: Literal["measurement_overdue"] = "measurement_overdue"


@dataclass(frozen=True, slots=True)
class PlanDue:
    """A plan that nobody has decided on is to be applied, if this is still its revision."""

    plan: str
    revision: int
    kind: Literal["plan_due"] = "plan_due"


TaskTimer = (
    StartOverdue
    | StopOverdue
    | HaltOverdue
    | ReplicaPeersOverdue
    | IterationOverdue
    | InspectionDue
    | InspectionOverdue
    | CapacityOverdue
    | SparesOverdue
    | HeldRetryDue
    | CommandLives
)
"""Timers of one generation of a task."""

Timer = (
    SettleIncident | JudgeNode | JoinOverdue | BurstOver | MeasurementOverdue | PlanDue | TaskTimer
)
