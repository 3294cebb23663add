"""Requests about plans: decide on one, defer it, ask for one, let automation continue."""

from typing import assert_never

from controller.core.events import (
    AutomationResumed,
    CureApproved,
    PlanApproved,
    PlanDeferred,
    PlanRejected,
    PlanRequested,
)
from controller.core.incidents.cures import carry_out_approved
from controller.core.planning.plans import (
    apply_by_policy,
    approve,
    count_down,
    propose,
    reject,
)
from controller.core.state.phases import PlanState
from controller.core.state.plan import Plan
from controller.core.state.turn import Turn

DecisionRequest = (
    PlanApproved | PlanRejected | PlanDeferred | PlanRequested | AutomationResumed | CureApproved
)


def take_plan_request(turn: Turn, request: DecisionRequest) -> None:
    """Do what an operator asks for, or refuse it."""
    match request:
        case PlanApproved():
            approve_plan(turn, request)
        case PlanRejected():
            reject_plan(turn, request)
        case PlanDeferred():
            defer_plan(turn, request)
        case AutomationResumed():
            resume_automation(turn, request)
        case PlanRequested():
            request_plan(turn, request)
        case CureApproved():
            approve_cure(turn, request)
        case _:
            assert_never(request)


def approve_plan(turn: Turn, event: PlanApproved) -> None:
    """Apply a pending plan, exactly as of the revision that the operator saw."""
    plan = _decidable(turn, event)
    if plan:
        turn.answer(event.request_id, f"{plan.name} is approved")
        approve(turn, plan, event.actor)


def approve_cure(turn: Turn, event: CureApproved) -> None:
    """Have the cure done that a rehearsal has shown, if it is still the same."""
    name, incident = event.incident, turn.state.incidents.find(event.incident)
    rehearsed = incident.rehearsed if incident is not None else None
    if incident is None:
        turn.refuse(event.request_id, "unknown", f"there is no incident {name}")
    elif rehearsed is None or not incident.is_open:
        turn.refuse(event.request_id, "nothing", f"{name} waits for no approval")
    elif not incident.awaits_consent:
        text = f"{name}: {rehearsed.action} was approved by {rehearsed.approved_by}"
        turn.refuse(event.request_id, "decided", text)
    elif rehearsed.action != event.action:
        text = f"{name}: it is {rehearsed.action} now, since there is more evidence: look again"
        turn.refuse(event.request_id, "superseded", text)
    elif (plan := turn.state.plans.pending()) is not None and name in plan.incidents:
        text = f"{name} waits for a plan: `unicron approve {plan.name}:{plan.revision}`"
        turn.refuse(event.request_id, "plan", text)
    else:
        incident.consent(event.actor, turn.at)
        turn.answer(event.request_id, f"{name}: {rehearsed.action} is approved")
        turn.announce("info", "approved", name, f"{rehearsed.action} is approved by {event.actor}")
        carry_out_approved(turn, incident)


def reject_plan(turn: Turn, event: PlanRejected) -> None:
    """Decline a pending plan."""
    plan = _decidable(turn, event)
    if plan:
        turn.answer(event.request_id, f"{plan.name} is rejected; the tasks stay as they are")
        reject(turn, plan, event.actor, event.reason)


def defer_plan(turn: Turn, event: PlanDeferred) -> None:
    """Give operators more time before a plan is applied by itself."""
    plan = _decidable(turn, event)
    if plan is None:
        return
    if plan.apply_at is None:
        text = f"{plan.name} waits for a decision without an end: there is nothing to defer"
        turn.refuse(event.request_id, "nothing", text)
        return
    count_down(turn, plan, event.for_s)
    text = f"is applied in {event.for_s:g} s unless it is decided on before"
    turn.announce("info", "plan", plan.name, f"deferred by {event.actor}: {text}")
    turn.answer(event.request_id, f"{plan.name} {text}")


def resume_automation(turn: Turn, event: AutomationResumed) -> None:
    """Let policy apply plans again; one that waits comes first."""
    automation = turn.state.automation
    if not automation.stopped:
        turn.refuse(event.request_id, "nothing", "automation is not stopped")
        return
    automation.resume(turn.at)
    turn.announce("info", "resume", "unicron", f"{event.actor} lets automation continue")
    turn.answer(event.request_id, "automation continues")
    if (pending := turn.state.plans.pending()) is not None:
        apply_by_policy(turn, pending)


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


def _decidable(turn: Turn, event: PlanApproved | PlanRejected | PlanDeferred) -> Plan | None:
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
