"""Requests of operators: decide on a plan, ask for one, judge a node, measure a task.

Each request is answered exactly once. What can't be done is refused with a code for programs and a
sentence for people, and changes nothing.
"""

from typing import assert_never

from controller.core.events import (
    AutomationResumed,
    CureApproved,
    DrillRequested,
    FileReloaded,
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
    TaskSubmitted,
    UncordonRequested,
)
from controller.core.measuring.sizes import Refusal, begin_measurement, cancel_measurement
from controller.core.requests.drill_requests import request_drill
from controller.core.requests.node_requests import decide_loss, order_node, uncordon
from controller.core.requests.plan_requests import take_plan_request
from controller.core.requests.task_requests import limit_task, order_task, submit_tasks
from controller.core.state.turn import Turn


def take_request(turn: Turn, request: Request) -> None:
    """Do what an operator asks for, or refuse it."""
    match request:
        case (
            PlanApproved()
            | PlanRejected()
            | PlanDeferred()
            | PlanRequested()
            | AutomationResumed()
            | CureApproved()
        ):
            take_plan_request(turn, request)
        case UncordonRequested():
            uncordon(turn, request)
        case LossDecided():
            decide_loss(turn, request)
        case MeasurementRequested():
            request_measurement(turn, request)
        case MeasurementCancelled():
            end_measurement(turn, request)
        case DrillRequested():
            request_drill(turn, request)
        case TaskOrdered():
            order_task(turn, request)
        case TaskLimited():
            limit_task(turn, request)
        case TaskSubmitted():
            submit_tasks(turn, request)
        case NodeOrdered():
            order_node(turn, request)
        case FileReloaded():
            _note_reload(turn, request)
        case ShutdownRequested():
            turn.announce("warning", "down", "unicron", f"{request.actor} ends the run")
            turn.answer(request.request_id, "ending")
        case _:
            assert_never(request)


def _note_reload(turn: Turn, event: FileReloaded) -> None:
    if not event.changes:
        turn.refuse(event.request_id, "nothing", "nothing has changed in the cluster file")
        return
    text = f"{len(event.changes)} changes of the cluster file are taken in"
    turn.announce("info", "reload", "unicron", f"{text}, for {event.actor}")
    turn.answer(event.request_id, text)


def request_measurement(turn: Turn, event: MeasurementRequested) -> None:
    """Measure a task's speed on idle workers; the answer's code is the measurement's name."""
    begun = begin_measurement(turn, event)
    if isinstance(begun, Refusal):
        turn.refuse(event.request_id, *begun)
        return
    text = (
        f"measures {begun.task} at {', '.join(str(size.workers) for size in begun.sizes)} worker(s)"
    )
    turn.announce("info", "measurement", begun.name, f"{text}, for {event.actor}")
    turn.answer(event.request_id, f"{begun.name} {text}", code=begun.name)


def end_measurement(turn: Turn, event: MeasurementCancelled) -> None:
    """Cancel a measurement; what is measured stays."""
    refusal = cancel_measurement(turn, event.measurement, event.actor)
    if refusal is not None:
        turn.refuse(event.request_id, *refusal)
    else:
        turn.answer(event.request_id, f"{event.measurement} is cancelled")
