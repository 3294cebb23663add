"""Requests of operators: decide on a plan, ask for one, judge a node, measure a task.

Each request is answered exactly once. What can't be done is refused with a code for programs and a
sentence for people, and changes nothing.
"""

from collections.abc import Collection
from typing import assert_never

from controller.core.events import (
    DrillRequested,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    Request,
    ShutdownRequested,
    UncordonRequested,
)
from controller.core.measuring.sizes import Refusal, begin_measurement, cancel_measurement
from controller.core.nodes.contact import declare_lost, wait_for
from controller.core.nodes.node_evidence import gather
from controller.core.planning.plans import approve, propose, reconsider, reject
from controller.core.requests.drill_requests import request_drill
from controller.core.rules.placement import Worker
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition, PlanState
from controller.core.state.plan import Plan
from controller.core.state.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId


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
        case ShutdownRequested():
            turn.announce("warning", "down", "unicron", f"{request.actor} ends the run")
            turn.answer(request.request_id, "ending")
        case _:
            assert_never(request)


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


def uncordon(turn: Turn, event: UncordonRequested) -> None:
    """Take an isolated node or GPU back into service, if it is in contact without findings."""
    node = _node_of(turn, event)
    if node is None:
        return
    gpus = (
        set(node.service.isolated_gpus)
        if event.gpu is None
        else {event.gpu} & set(node.service.isolated_gpus)
    )
    is_node = bool(node.service.isolated) and event.gpu is None
    what = str(event.node) if event.gpu is None else f"GPU {event.gpu} of {event.node}"
    if not is_node and not gpus:
        turn.refuse(event.request_id, "nothing", f"{what} is not isolated")
        return
    if failed := [] if event.is_forced else _failed_checks(node, None if is_node else gpus):
        text = f"{what} stays isolated: {'; '.join(failed)}; fix it, or use --force"
        turn.refuse(event.request_id, "unfit", text)
        return
    for slot in gpus:
        node.service.release_gpu(Worker(node.spec.node, slot))
    if is_node:
        node.service.release()
        node.findings.forget_messages()
    back: set[NodeId | Worker] = {Worker(event.node, slot) for slot in gpus}
    if is_node:
        back.add(event.node)
    for task in turn.state.tasks.values():
        task.faults.clear_of_blame(back)
    turn.announce(
        "good", "uncordon", event.node, f"{event.actor} takes {what} back into service",
        is_forced=event.is_forced,
    )  # fmt: skip
    still = f"; {event.node} itself stays isolated" if node.service.isolated else ""
    turn.answer(event.request_id, f"{what} is back in service{still}")
    reconsider(turn, trigger=event.node, seen=f"{what} is back in service")


def decide_loss(turn: Turn, event: LossDecided) -> None:
    """Declare a node lost that is out of contact, or wait for it.

    It is refused if a task of the node advances: then the node is not lost.
    """
    node = _node_of(turn, event)
    if node is None:
        return
    if node.contact.condition is not NodeCondition.UNREACHABLE:
        text = f"{event.node} is {node.contact.condition}, not out of contact"
        turn.refuse(event.request_id, "nothing", text)
    elif not event.is_lost:
        wait_for(turn, node, event.actor)
        again_s = turn.policy.uncorroborated_limit_s
        text = f"Unicron waits for {event.node}; it judges {event.node} again after {again_s:g} s"
        turn.answer(event.request_id, text)
    elif advanced := gather(turn, node).advanced:
        turn.refuse(event.request_id, "unfit", f"{event.node} is not lost: {advanced}")
    else:
        text = f"{event.node} counts as lost; a plan divides the remaining nodes"
        turn.answer(event.request_id, text)
        declare_lost(turn, node, f"{event.actor} declared it lost")


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


def _node_of(turn: Turn, event: UncordonRequested | LossDecided) -> NodeState | None:
    node = turn.state.nodes.get(event.node)
    if node is None:
        text = f"there is no node {event.node}: {', '.join(turn.state.nodes)} exist"
        turn.refuse(event.request_id, "unknown", text)
    return node


def _failed_checks(node: NodeState, gpus: Collection[int] | None) -> list[str]:
    """Return why the node, or these GPUs of it, can't be used."""
    failed = []
    if node.contact.condition is not NodeCondition.HEALTHY:
        failed.append(f"it is {node.contact.condition}")
    subjects = None if gpus is None else {f"GPU {slot}" for slot in gpus}
    failed += [
        f"{finding.probe} still finds {finding.first_line}"
        for finding in node.findings.present.values()
        if finding.probe != "clock"  # nothing is decided by it
        and (subjects is None or finding.subject in subjects or _hides_gpus(finding))
    ]
    return failed


def _hides_gpus(finding: NodeFinding) -> bool:
    """Return whether the finding is that no GPU can be looked at."""
    return finding.probe == "gpu" and finding.sign == "unreadable"


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
