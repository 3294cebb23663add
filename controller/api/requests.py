"""From a client's command to the event of the core: the same fields under another name."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from controller.api import wire
from controller.core.events import (
    AutomationResumed,
    CureApproved,
    DrillRequested,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeOrdered,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
    Request,
    ShutdownRequested,
    TaskLimited,
    TaskOrdered,
    UncordonRequested,
)

EVENT_BY_COMMAND: Final[Mapping[type[wire.ClientCommand], type[Request]]] = {
    wire.ApprovePlan: PlanApproved,
    wire.ApproveCure: CureApproved,
    wire.RejectPlan: PlanRejected,
    wire.DeferPlan: PlanDeferred,
    wire.ResumeAutomation: AutomationResumed,
    wire.RequestPlan: PlanRequested,
    wire.UncordonNode: UncordonRequested,
    wire.DecideLoss: LossDecided,
    wire.MeasureTask: MeasurementRequested,
    wire.CancelMeasurement: MeasurementCancelled,
    wire.RunDrill: DrillRequested,
    wire.OrderTask: TaskOrdered,
    wire.LimitTask: TaskLimited,
    wire.OrderNode: NodeOrdered,
    wire.Shutdown: ShutdownRequested,
}
"""Commands that the core decides on. A test compares their fields with those of the events."""

NAME_ON_WIRE: Final[Mapping[str, str]] = {"global_rank": "rank"}
"""Fields of events that commands call otherwise."""


def event_of(command: wire.ClientCommand) -> Request:
    """Return the event for a command that is in ``EVENT_BY_COMMAND``."""
    kind = EVENT_BY_COMMAND[type(command)]
    values: dict[str, Any] = {}
    for field in fields(kind):
        value = getattr(command, NAME_ON_WIRE.get(field.name, field.name))
        # What a client leaves empty is left to the core.
        values[field.name] = None if value == "" and field.default is None else value
    return kind(**values)
