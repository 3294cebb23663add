"""Compares the ranks that an agent lists with the expected ranks of its node.

Strays are ended, missing ranks are noted, and orders that a lost connection may have dropped are
sent again.
"""

from collections.abc import Sequence

from controller.core.instructions import StopRanks
from controller.core.lifecycle.generation_start import send_start
from controller.core.lifecycle.parking import halt_again
from controller.core.lifecycle.start_stop import lose_rank, send_stop
from controller.core.rules.placement import Worker
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.rank_status import RankStatus


def compare_inventory(
    turn: Turn, node: NodeId, ranks: tuple[RankStatus, ...], *, is_attach: bool
) -> None:
    """Compare the listed ranks of ``node`` with the expected ones: end strays, note missing ranks.

    On an attach, ranks that should have been started but were not are asked for again, and so is
    a stop that is still wanted: the commands may have been lost with the connection.
    """
    measured = turn.state.measurements.current.run if turn.state.measurements.current else None
    strays = {
        Worker(node, status.worker)
        for status in ranks
        if status.task not in turn.state.tasks
        and not (measured is not None and measured.holds(node, status))
    }
    turn.state.nodes[node].inventory.note_strays(strays)
    for status in ranks:
        if measured is not None and measured.holds(node, status):
            continue
        if is_attach:
            _note_return(turn, node, status)
        _take_status(turn, node, status)
    listed = {(status.task, status.generation, status.global_rank) for status in ranks}
    for task in turn.state.tasks.values():
        if task.leaving.workers:
            task.leaving.forget_unlisted(task.spec.task, node, listed)
        missing = [
            number
            for number in task.numbers_on.get(node, ())
            if task.ranks[number].is_alive
            and (task.spec.task, task.generation, number) not in listed
        ]
        if task.lifecycle.phase is TaskPhase.STOPPING:
            _pursue_stop(turn, task, node, missing, is_attach=is_attach)
        elif is_attach and task.can_regroup:
            _start_missing(turn, task, missing if task.is_active else [], node)
            halt_again(turn, task, node)


def is_as_expected(state: ClusterState, node: NodeId, ranks: Sequence[RankStatus]) -> bool:
    """Return whether a heartbeat with these ranks leaves ``compare_inventory`` nothing to do.

    The same holds for ``compare_run``. It looks at what is on the node, and at no other rank.
    """
    run = state.measurements.current.run if state.measurements.current else None
    if run is not None and run.is_ending and node in run.stopped_nodes and node in run.nodes:
        return False
    listed = set[tuple[TaskId, Generation, int]]()
    for status in ranks:
        listed.add((status.task, status.generation, status.global_rank))
        if run is not None and run.holds(node, status):
            continue
        if not _is_expected(state, node, status):
            return False
    if state.nodes[node].inventory.strays:
        return False
    for task in state.tasks.values():
        is_stopping = task.lifecycle.phase is TaskPhase.STOPPING
        if is_stopping and node in task.stopping.stopped_nodes and task.runs_on(node):
            return False
        if task.leaving.workers and task.leaving.has_unlisted(task.spec.task, node, listed):
            return False
    return True


def _is_expected(state: ClusterState, node: NodeId, status: RankStatus) -> bool:
    task = state.tasks.get(status.task)
    if task is None:
        return False
    if status.generation == task.generation:
        rank = task.ranks.get(status.global_rank)
        if rank is not None and rank.worker.node == node:
            if rank.is_alive:
                return rank.is_seen and not _says_more(task, rank, status)
            return task.lifecycle.phase is TaskPhase.STOPPING
        if rank is None:
            spare = task.spares.ranks.get(status.global_rank)
            is_ours = spare is not None and spare.worker.node == node
            return spare is not None and is_ours and spare.is_seen and spare.pid == status.pid
    return _is_being_taken_over(task, node)


def _says_more(task: TaskState, rank: RankState, status: RankStatus) -> bool:
    """Return whether a rank has another process, has attached, or has trained for the first time.

    Of a command, that says whether its ranks show their progress.
    """
    has_begun = task.spec.is_command and status.iteration > 0 and not rank.iteration
    return rank.pid != status.pid or rank.is_attached != status.is_attached or has_begun


def _pursue_stop(
    turn: Turn, task: TaskState, node: NodeId, missing: list[int], *, is_attach: bool
) -> None:
    """After a stop, unlisted ranks are gone. Listed ranks get the stop again."""
    if node in task.stopping.stopped_nodes:
        for number in missing:
            lose_rank(turn, task, number)
    elif not is_attach:
        return
    if task.runs_on(node):
        send_stop(turn, task, (node,))


def _note_return(turn: Turn, node: NodeId, status: RankStatus) -> None:
    """A rank that was given up with its node lives: a stop of its task waits for its end too."""
    task = turn.state.tasks.get(status.task)
    if task is None or task.lifecycle.phase is not TaskPhase.STOPPING:
        return
    rank = task.ranks.get(status.global_rank)
    if rank and rank.worker.node == node and status.generation == task.generation:
        rank.note_returned()


def _take_status(turn: Turn, node: NodeId, status: RankStatus) -> None:
    task = turn.state.tasks.get(status.task)
    rank = task.ranks.get(status.global_rank) if task else None
    is_ours = (
        task is not None
        and rank is not None
        and rank.worker.node == node
        and status.generation == task.generation
    )
    if task is not None and rank is not None and is_ours and rank.is_alive:
        task.note_advance(turn.at, status.global_rank, status.iteration)
        rank.note_listed(status)
    elif task is not None and status.generation == task.generation and rank is None:
        _take_spare_status(turn, task, node, status)
    elif task is not None and not is_ours and _is_being_taken_over(task, node):
        return  # sent before the agent had its orders; a stop would hit ranks that continue
    elif not is_ours or task is None or task.lifecycle.phase is not TaskPhase.STOPPING:
        kill = StopOrder(task=status.task, generation=status.generation, is_graceful=False)
        turn.emit(StopRanks(turn.cause, (node,), kill))


def _take_spare_status(turn: Turn, task: TaskState, node: NodeId, status: RankStatus) -> None:
    """A process that prepares is no stray; one that nobody waits for is ended, and no other."""
    spare = task.spares.ranks.get(status.global_rank)
    if spare is not None and spare.worker.node == node:
        spare.note_listed_as_spare(status)
        return
    kill = StopOrder(
        task=status.task,
        generation=status.generation,
        is_graceful=False,
        only=(status.global_rank,),
    )
    turn.emit(StopRanks(turn.cause, (node,), kill))


def _is_being_taken_over(task: TaskState, node: NodeId) -> bool:
    """Return whether the node has parked processes with an order but without an answer."""
    return any(
        rank.worker.node == node and rank.continues and not rank.is_seen
        for rank in (*task.living_ranks.values(), *task.spares.ranks.values())
        if rank.is_alive
    )


def _start_missing(turn: Turn, task: TaskState, missing: list[int], node: NodeId) -> None:
    """Start ranks that the node has never reported, and have processes wait there."""
    never_seen = [number for number in missing if not task.ranks[number].is_seen]
    never_seen += [
        number
        for number, rank in task.spares.ranks.items()
        if rank.worker.node == node and rank.continues and rank.is_alive and not rank.is_seen
    ]
    if never_seen:
        send_start(turn, task, never_seen)
