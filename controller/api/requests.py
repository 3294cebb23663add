"""From a client's request to the event of the core."""

from typing import assert_never

from controller.api import wire
from controller.core.events import (
    DrillRequested,
    EventBody,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
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
    | wire.MeasureTask
    | wire.CancelMeasurement
    | wire.RunDrill,
) -> EventBody:
    """Return the event for ``command``."""
    match command:
        case wire.ApprovePlan() | wire.RejectPlan():
            return _decision(command)
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
        case wire.MeasureTask() | wire.CancelMeasurement():
            return _measurement(command)
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


def _decision(command: wire.ApprovePlan | wire.RejectPlan) -> EventBody:
    about = command.request_id, command.actor, command.plan, command.revision
    if isinstance(command, wire.ApprovePlan):
        return PlanApproved(*about)
    return PlanRejected(*about, command.reason)


def _measurement(command: wire.MeasureTask | wire.CancelMeasurement) -> EventBody:
    request_id, actor = command.request_id, command.actor
    if isinstance(command, wire.CancelMeasurement):
        return MeasurementCancelled(request_id, actor, command.measurement)
    return MeasurementRequested(
        request_id,
        actor,
        TaskId(command.task),
        command.sizes,
        command.num_iterations,
        command.is_contained,
    )
