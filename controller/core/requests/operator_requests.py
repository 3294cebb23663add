"""Requests of operators: decide on a plan, ask for one, judge a node, measure a task.

Each request is answered exactly once. What can't be done is refused with a code for programs and a
sentence for people, and changes nothing.
"""

from typing import assert_never

from controller.core.events import (
    DrillRequested,
    FileReloaded,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    NodeOrdered,
    PlanApproved,
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
from controller.core.planning.plans import approve, propose, reject
from controller.core.requests.drill_requests import request_drill
from controller.core.requests.node_requests import decide_loss, order_node, uncordon
from controller.core.requests.task_requests import limit_task, order_task, submit_tasks
from controller.core.state.phases import PlanState
from controller.core.state.plan import Plan
from controller.core.state.turn import Turn


def take_request(turn: Turn, request: Request) -> None:
    """Do what an operator asks for, or refuse it."""
    match request:
        case PlanApproved():
            approve_plan(turn, request)
        case PlanRejected():
            reject_plan(turn, request)
        case PlanRequested():
            request_plan(turn, request)
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


def approve_plan(turn: Turn, event: PlanApproved) -> None:
    """Apply a pending plan, exactly as of the revision that the operator saw."""
    plan = _decidable(turn, event)
    if plan:
        turn.answer(event.request_id, f"{plan.name} is approved")
        approve(turn, plan, event.actor)


def reject_plan(turn: Turn, event: PlanRejected) -> None:
    """Decline a pending plan."""
    plan = _decidable(turn, event)
    if plan:
        turn.answer(event.request_id, f"{plan.name} is rejected; the tasks stay as they are")
        reject(turn, plan, event.actor, event.reason)


def request_plan(turn: Turn, event: PlanRequested) -> None:
    """Propose a plan for the present state, for instance after a rejection."""
    pending = turn.state.plans.pending()
    if pending:
        turn.refuse(event.request_id, "pending", f"{pending.name} waits for a decision already")
        return
    trigger = f"request of {event.actor}"
    plan = propose(turn, trigger=trigger, seen="an operator asked", includes_held=True)
    if plan:
        turn.answer(event.request_id, f"{plan.name} is proposed")
    else:
        turn.refuse(event.request_id, "nothing", "no plan would change anything")


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


def _decidable(turn: Turn, event: PlanApproved | PlanRejected) -> Plan | None:
    plan = next((plan for plan in turn.state.plans.all if plan.name == event.plan), None)
    if plan is None:
        turn.refuse(event.request_id, "unknown", f"there is no plan {event.plan}")
    elif plan.revision != event.revision:
        text = f"{plan.name} has changed: revision {plan.revision}, not {event.revision}"
        turn.refuse(event.request_id, "superseded", text)
    elif plan.state is not PlanState.PENDING:
        by = f" by {plan.approved_by}" if plan.approved_by else ""
        turn.refuse(event.request_id, "decided", f"{plan.name} is {plan.state} already{by}")
    else:
        return plan
    return None
