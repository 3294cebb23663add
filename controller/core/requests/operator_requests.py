"""Requests of operators: decide on a plan, ask for one, judge a node, measure a task.

Each request is answered exactly once. What can't be done is refused with a code for programs and a
sentence for people, and changes nothing. A request to break something is checked here, too: it gets
the whole target of its drill, or the reason why it can't be staged there.
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
from controller.core.instructions import CarryOutDrill
from controller.core.measuring.sizes import Refusal, begin_measurement, cancel_measurement
from controller.core.requests.node_requests import decide_loss, order_node, uncordon
from controller.core.requests.plan_requests import take_plan_request
from controller.core.requests.task_requests import limit_task, order_task, submit_tasks
from controller.core.state.cluster import StagedDrill
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId
from profiles.drills.drill_catalogue import DRILL_BY_KIND
from profiles.drills.programs import why_not_staged


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
            _request_drill(turn, request)
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


def _request_drill(turn: Turn, event: DrillRequested) -> None:
    """Fill in the target of a drill and have it carried out."""
    drill = _resolve(turn, event)
    if isinstance(drill, str):
        code = "no_target" if event.drill in DRILL_BY_KIND else "unsupported"
        turn.refuse(event.request_id, code, drill)
        return
    if reason := _why_not_staged(turn, drill):
        turn.refuse(event.request_id, "unsupported", reason)
        return
    target: str = drill.node or "the controller"
    if drill.global_rank is not None:
        target = f"rank {drill.global_rank} of {drill.task} on {drill.node}"
    source = drill.task or drill.node or "controller"
    turn.announce(
        "drill", "drill", source, f"{event.actor} runs {drill.drill} on {target}",
        drill=drill.drill, node=drill.node, rank=drill.global_rank,
    )  # fmt: skip
    turn.answer(event.request_id, f"{drill.drill} on {target}")
    if drill.node:
        turn.state.drills.note(StagedDrill(turn.at, drill.node, drill.task))
    turn.emit(drill)


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
        if task.lifecycle.phase is not TaskPhase.RUNNING:
            return f"{event.task} is {task.lifecycle.phase}, not running"
        return task
    for name in sorted(turn.state.tasks):
        if turn.state.tasks[name].lifecycle.phase is TaskPhase.RUNNING:
            return turn.state.tasks[name]
    return "no task is running"


def _on_node(turn: Turn, event: DrillRequested, name: NodeId) -> CarryOutDrill | str:
    node = turn.state.nodes.get(name)
    if node is None:
        return f"there is no node {name}: {', '.join(turn.state.nodes)} exist"
    if node.contact.condition is not NodeCondition.HEALTHY:
        return f"node {name} is {node.contact.condition}, not healthy"
    return CarryOutDrill(turn.cause, event.drill, name)
