"""Commands of consoles as events of the core."""

from typing import assert_never

from controller.api import wire
from controller.core.events import (
    DrillRequested,
    EventBody,
    LossDecided,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    UncordonRequested,
)
from nodeagent.protocol.ids import NodeId, TaskId


def event_of(
    command: wire.ApprovePlan
    | wire.RejectPlan
    | wire.RequestPlan
    | wire.UncordonNode
    | wire.DecideLoss
    | wire.RunDrill,
) -> EventBody:
    """Return the event that ``command`` asks for."""
    match command:
        case wire.ApprovePlan():
            return PlanApproved(command.request_id, command.actor, command.plan, command.revision)
        case wire.RejectPlan():
            return PlanRejected(
                command.request_id, command.actor, command.plan, command.revision, command.reason
            )
        case wire.RequestPlan():
            return PlanRequested(command.request_id, command.actor)
        case wire.UncordonNode():
            return UncordonRequested(
                command.request_id,
                command.actor,
                NodeId(command.node),
                command.is_forced,
                command.gpu,
            )
        case wire.DecideLoss():
            return LossDecided(
                command.request_id, command.actor, NodeId(command.node), command.is_lost
            )
        case wire.RunDrill():
            return DrillRequested(
                command.request_id,
                command.actor,
                command.drill,
                TaskId(command.task) if command.task else None,
                command.rank,
                NodeId(command.node) if command.node else None,
            )
        case _:
            assert_never(command)
