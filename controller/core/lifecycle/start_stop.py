"""Start and stop of a task's ranks, level-based.

The wanted state of each task is compared with its present state, so no module has to remember to
start it. A waiting task starts once it has a target, all workers of the target are free, and their
nodes are in contact. A stop ends when every rank is known to be gone: it exited, its launch failed,
its node was lost, or the agent carried the stop out and no longer lists it.
"""

from collections.abc import Iterable

from controller.core.instructions import DropRendezvous, StopRanks
from controller.core.lifecycle.generation_start import begin_generation
from controller.core.lifecycle.obstacles import note_obstacle
from controller.core.lifecycle.parking import boundary_limit_s, checkpoint_limit_s
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Intent, Spares
from controller.core.state.turn import Turn
from controller.core.timers import InspectionDue, StopOverdue
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.regroup import Resume


def start_what_can_start(turn: Turn) -> None:
    """Start every waiting task whose target is free and in contact."""
    for task in turn.state.tasks.values():
        target = task.assignment.target
        if task.lifecycle.phase is not TaskPhase.WAITING or not target:
            continue
        if not note_obstacle(turn, task, target):
            ranks = {number: RankState(worker) for number, worker in enumerate(target.placement)}
            begin_generation(turn, task, target, ranks, Resume(), Spares(next_number=len(ranks)))


def leave_behind_unreachable(turn: Turn) -> None:
    """A task that is being killed does not wait for ranks on nodes that no order reaches.

    Their generation is over, so they can do no harm, and they are ended when their node is back.
    """
    for task in turn.state.tasks.values():
        if task.lifecycle.phase is not TaskPhase.STOPPING or task.stopping.is_graceful:
            continue
        for number, rank in task.living_ranks.items():
            node = turn.state.nodes[rank.worker.node]
            if node.contact.condition is NodeCondition.UNREACHABLE:
                lose_rank(turn, task, number)


def stop(turn: Turn, task: TaskState, *, is_graceful: bool, intent: Intent, note: str) -> None:
    """End the task's ranks; what comes next is ``intent``. A kill overrides a graceful stop.

    Of a task without ranks only the intent changes.
    """
    stopping = task.stopping
    stopping.intend(intent)
    if task.can_regroup:
        task.lifecycle.begin_stopping(note)
        stopping.restart_clock(turn.at)
    elif task.lifecycle.phase is not TaskPhase.STOPPING:
        task.lifecycle.rest(task.stopping.intent)
        if task.lifecycle.phase is TaskPhase.STOPPED:
            task.lifecycle.explain(note)
        return
    elif is_graceful or not stopping.is_graceful:
        return
    stopping.begin(is_graceful=is_graceful)
    if not is_graceful:
        turn.emit(DropRendezvous(turn.cause, task.spec.task, task.generation))
    send_stop(turn, task, task.nodes)
    if is_graceful:
        limit_s = task.spec.stop_limit_s or _graceful_limit_s(turn, task)
        turn.set_timer(StopOverdue(task.spec.task, task.generation), limit_s)
        turn.set_timer(InspectionDue(task.spec.task, task.generation), turn.policy.look_interval_s)
    finish_stop(turn, task)


def _graceful_limit_s(turn: Turn, task: TaskState) -> float:
    """Return how long ranks may take to finish their iteration and save a checkpoint."""
    return boundary_limit_s(turn.policy, task) + checkpoint_limit_s(turn.policy, task)


def send_stop(turn: Turn, task: TaskState, nodes: Iterable[NodeId]) -> None:
    """Have the task's ranks on these nodes stopped."""
    reachable = tuple(nodes)
    if reachable:
        order = StopOrder(
            task=task.spec.task,
            generation=task.generation,
            is_graceful=task.stopping.is_graceful,
        )
        turn.emit(StopRanks(turn.cause, reachable, order))


def note_stop(task: TaskState, node: NodeId) -> None:
    """A node has carried the stop out: ranks that it does not list from now on are gone."""
    if task.lifecycle.phase is TaskPhase.STOPPING and not task.stopping.is_graceful:
        task.stopping.note_stopped(node)


def finish_stop(turn: Turn, task: TaskState) -> None:
    """If the task is stopping and no rank is left, move on to what it is meant for."""
    if task.lifecycle.phase is not TaskPhase.STOPPING or task.living_ranks:
        return
    turn.emit(DropRendezvous(turn.cause, task.spec.task, task.generation))
    task.stopping.end(turn.at)
    task.lifecycle.end_stopping(task.stopping.intent)


def lose_rank(turn: Turn, task: TaskState, global_rank: int) -> None:
    """Note that a rank has no process any more, and finish what waited for that."""
    rank = task.ranks[global_rank]
    rank.note_gone()
    if task.lifecycle.parking:
        task.lifecycle.parking.note_loss(rank.worker.node)
    finish_stop(turn, task)
    if task.can_regroup and all(
        r.done == "finished" and not r.is_alive for r in task.ranks.values()
    ):
        task.lifecycle.finish()
        task.assignment.lose_target()
        text = f"has finished {task.progress.iteration} iterations"
        turn.announce("good", "finished", task.spec.task, text)
