"""Requests of operators: decide on a plan, ask for one, judge a node, run a drill.

Each request is answered exactly once. What can't be done is refused with a code for programs and a
sentence for people, and changes nothing.
"""

from collections.abc import Collection
from typing import Final, assert_never

from controller.core.events import (
    DrillRequested,
    LossDecided,
    MeasurementCancelled,
    MeasurementRequested,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    Request,
    UncordonRequested,
)
from controller.core.instructions import AnswerRequest, CarryOutDrill
from controller.core.isolation import release_gpu
from controller.core.measuring import Refusal, begin_measurement, cancel_measurement
from controller.core.node_evidence import gather
from controller.core.nodes import declare_lost, wait_for
from controller.core.phases import NodeCondition, PlanState, TaskPhase
from controller.core.placement import Worker
from controller.core.planning import approve, propose, reconsider, reject
from controller.core.state import Drill, NodeState, Plan
from controller.core.tasks import TaskState
from controller.core.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId
from profiles.drills.catalogue import DRILL_BY_KIND
from profiles.drills.programs import why_not_staged

_MAX_DRILLS: Final = 50


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
        case _:
            assert_never(request)


def approve_plan(turn: Turn, event: PlanApproved) -> None:
    """Apply a pending plan, exactly as of the revision that the operator saw."""
    plan = _decidable(turn, event)
    if plan:
        _answer(turn, event.request_id, f"{plan.name} is approved")
        approve(turn, plan, event.actor)


def reject_plan(turn: Turn, event: PlanRejected) -> None:
    """Decline a pending plan."""
    plan = _decidable(turn, event)
    if plan:
        _answer(turn, event.request_id, f"{plan.name} is rejected; the tasks stay as they are")
        reject(turn, plan, event.actor, event.reason)


def request_plan(turn: Turn, event: PlanRequested) -> None:
    """Propose a plan for the present state, for instance after a rejection."""
    pending = turn.state.pending_plan()
    if pending:
        _refuse(turn, event.request_id, "pending", f"{pending.name} waits for a decision already")
        return
    trigger = f"request of {event.actor}"
    plan = propose(turn, trigger=trigger, seen="an operator asked", includes_held=True)
    if plan:
        _answer(turn, event.request_id, f"{plan.name} is proposed")
    else:
        _refuse(turn, event.request_id, "nothing", "no plan would change anything")


def uncordon(turn: Turn, event: UncordonRequested) -> None:
    """Take an isolated node or GPU back into service, if its checks pass: contact, no open finding."""
    node = _node_of(turn, event)
    if node is None:
        return
    gpus = set(node.isolated_gpus) if event.gpu is None else {event.gpu} & set(node.isolated_gpus)
    is_node = bool(node.isolated) and event.gpu is None
    what = str(event.node) if event.gpu is None else f"GPU {event.gpu} of {event.node}"
    if not is_node and not gpus:
        _refuse(turn, event.request_id, "nothing", f"{what} is not isolated")
        return
    if failed := [] if event.is_forced else _failed_checks(node, None if is_node else gpus):
        text = f"{what} stays isolated: {'; '.join(failed)}; mend it, or force it"
        _refuse(turn, event.request_id, "unfit", text)
        return
    for slot in gpus:
        release_gpu(node, slot)
    if is_node:
        node.isolated = ""
        node.record.clear()
        node.messages.clear()
    back: set[NodeId | Worker] = {Worker(event.node, slot) for slot in gpus}
    if is_node:
        back.add(event.node)
    for task in turn.state.tasks.values():
        task.suspects = [each for each in task.suspects if each not in back]
    turn.tell(
        "good", "uncordon", event.node, f"{event.actor} takes {what} back into service",
        is_forced=event.is_forced,
    )  # fmt: skip
    still = f"; {event.node} itself stays isolated" if node.isolated else ""
    _answer(turn, event.request_id, f"{what} is back in service{still}")
    reconsider(turn, trigger=event.node, seen=f"{what} is back in service")


def decide_loss(turn: Turn, event: LossDecided) -> None:
    """Give a node up that is out of contact, or wait for it; one whose tasks advance is not lost."""
    node = _node_of(turn, event)
    if node is None:
        return
    if node.condition is not NodeCondition.UNREACHABLE:
        text = f"{event.node} is {node.condition}, not out of contact"
        _refuse(turn, event.request_id, "nothing", text)
    elif not event.is_lost:
        wait_for(turn, node, event.actor)
        _answer(turn, event.request_id, f"{event.node} is waited for")
    elif advanced := gather(turn, node).advanced:
        _refuse(turn, event.request_id, "unfit", f"{event.node} is not lost: {advanced}")
    else:
        _answer(turn, event.request_id, f"{event.node} is given up")
        declare_lost(turn, node, f"{event.actor} has given it up")


def request_measurement(turn: Turn, event: MeasurementRequested) -> None:
    """Measure a task's speed on idle workers; the answer's code is the measurement's name."""
    begun = begin_measurement(turn, event)
    if isinstance(begun, Refusal):
        _refuse(turn, event.request_id, *begun)
        return
    text = (
        f"measures {begun.task} at {', '.join(str(size.workers) for size in begun.sizes)} worker(s)"
    )
    turn.tell("info", "measurement", begun.name, f"{text}, for {event.actor}")
    _answer(turn, event.request_id, f"{begun.name} {text}", code=begun.name)


def end_measurement(turn: Turn, event: MeasurementCancelled) -> None:
    """Cancel a measurement; what is measured stays."""
    refusal = cancel_measurement(turn, event.measurement, event.actor)
    if refusal is not None:
        _refuse(turn, event.request_id, *refusal)
    else:
        _answer(turn, event.request_id, f"{event.measurement} is cancelled")


def _node_of(turn: Turn, event: UncordonRequested | LossDecided) -> NodeState | None:
    node = turn.state.nodes.get(event.node)
    if node is None:
        text = f"there is no node {event.node}: {', '.join(turn.state.nodes)} exist"
        _refuse(turn, event.request_id, "unknown", text)
    return node


def _failed_checks(node: NodeState, gpus: Collection[int] | None) -> list[str]:
    """Return what speaks against the node, or against these GPUs of it alone."""
    failed = []
    if node.condition is not NodeCondition.HEALTHY:
        failed.append(f"it is {node.condition}")
    subjects = None if gpus is None else {f"GPU {slot}" for slot in gpus}
    failed += [
        f"{finding.probe} still finds {finding.first_line}"
        for finding in node.findings.values()
        if finding.probe != "clock"  # nothing is decided by it
        and (subjects is None or finding.subject in subjects or _hides_gpus(finding))
    ]
    return failed


def _hides_gpus(finding: NodeFinding) -> bool:
    """Return whether the finding is that no GPU can be looked at."""
    return finding.probe == "gpu" and finding.sign == "unreadable"


def request_drill(turn: Turn, event: DrillRequested) -> None:
    """Fill in the target of a drill and have it carried out."""
    drill = _resolve(turn, event)
    if isinstance(drill, str):
        code = "no_target" if event.drill in DRILL_BY_KIND else "unsupported"
        _refuse(turn, event.request_id, code, drill)
        return
    if reason := _why_not_staged(turn, drill):
        _refuse(turn, event.request_id, "unsupported", reason)
        return
    target: str = drill.node or "the controller"
    if drill.global_rank is not None:
        target = f"rank {drill.global_rank} of {drill.task} on {drill.node}"
    source = drill.task or drill.node or "controller"
    turn.tell(
        "drill", "drill", source, f"{event.actor} runs {drill.drill} on {target}",
        drill=drill.drill, node=drill.node, rank=drill.global_rank,
    )  # fmt: skip
    _answer(turn, event.request_id, f"{drill.drill} on {target}")
    if drill.node:
        broken = Drill(turn.at, drill.node, drill.task)
        turn.state.drills = [*turn.state.drills[-_MAX_DRILLS + 1 :], broken]
    turn.emit(drill)


def _decidable(turn: Turn, event: PlanApproved | PlanRejected) -> Plan | None:
    plan = next((plan for plan in turn.state.plans if plan.name == event.plan), None)
    if plan is None:
        _refuse(turn, event.request_id, "unknown", f"there is no plan {event.plan}")
    elif plan.revision != event.revision:
        text = f"{plan.name} has changed: revision {plan.revision}, not {event.revision}"
        _refuse(turn, event.request_id, "superseded", text)
    elif plan.state is not PlanState.PENDING:
        by = f" by {plan.approved_by}" if plan.approved_by else ""
        _refuse(turn, event.request_id, "decided", f"{plan.name} is {plan.state} already{by}")
    else:
        return plan
    return None


def _resolve(turn: Turn, event: DrillRequested) -> CarryOutDrill | str:
    """Return the drill with its whole target, or why there is none."""
    if event.drill not in DRILL_BY_KIND:
        return f"unknown drill {event.drill!r}: known are {', '.join(DRILL_BY_KIND)}"
    target = DRILL_BY_KIND[event.drill].target
    if target == "controller":
        return CarryOutDrill(turn.cause, event.drill)
    if target == "node" and event.node is not None:
        return _on_node(turn, event, event.node)
    task = _task_of(turn, event)
    if isinstance(task, str):
        return task
    if target == "node":
        return _on_node(turn, event, task.placement[-1].node)
    return _on_rank(turn, event, task)


def _on_rank(turn: Turn, event: DrillRequested, task: TaskState) -> CarryOutDrill | str:
    default = 1 if len(task.ranks) > 1 else 0
    number = event.global_rank if event.global_rank is not None else default
    rank = task.ranks.get(number)
    if rank is None or not rank.is_alive:
        return f"{task.spec.task} has no living rank {number}: 0 to {len(task.ranks) - 1} exist"
    return CarryOutDrill(
        turn.cause, event.drill, rank.worker.node, task.spec.task, task.generation, number
    )


def _why_not_staged(turn: Turn, drill: CarryOutDrill) -> str:
    """Return why the program of the drill's rank can't do what is asked of it; empty if it can."""
    if drill.task is None or drill.global_rank is None:
        return ""
    task, kind = turn.state.tasks[drill.task], DRILL_BY_KIND[drill.drill]
    if not task.spec.is_command:
        return ""
    is_attached = task.ranks[drill.global_rank].is_attached
    return why_not_staged(kind, drill.task, drill.global_rank, is_attached=is_attached)


def _task_of(turn: Turn, event: DrillRequested) -> TaskState | str:
    if event.task is not None:
        task = turn.state.tasks.get(event.task)
        if task is None:
            return f"there is no task {event.task}: {', '.join(sorted(turn.state.tasks))} exist"
        if task.phase is not TaskPhase.RUNNING:
            return f"{event.task} is {task.phase}, not running"
        return task
    for name in sorted(turn.state.tasks):
        if turn.state.tasks[name].phase is TaskPhase.RUNNING:
            return turn.state.tasks[name]
    return "no task is running"


def _on_node(turn: Turn, event: DrillRequested, name: NodeId) -> CarryOutDrill | str:
    node = turn.state.nodes.get(name)
    if node is None:
        return f"there is no node {name}: {', '.join(turn.state.nodes)} exist"
    if node.condition is not NodeCondition.HEALTHY:
        return f"node {name} is {node.condition}, not healthy"
    return CarryOutDrill(turn.cause, event.drill, name)


def _answer(turn: Turn, request_id: str, message: str, code: str = "ok") -> None:
    turn.emit(AnswerRequest(turn.cause, request_id, is_ok=True, code=code, message=message))


def _refuse(turn: Turn, request_id: str, code: str, message: str) -> None:
    turn.emit(AnswerRequest(turn.cause, request_id, is_ok=False, code=code, message=message))
