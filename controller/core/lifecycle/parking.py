"""Parks a generation: sends the halt, counts parked ranks, and waits for the remaining ones.

A halt goes to every node of the task, also to a node that has lost all its ranks. An agent that
carries the halt out shows that its node lives: its rank died alone. The halt is repeated when more
ranks are found broken, and when a node attaches. Agents accept it any number of times.

A replica without a broken rank finishes its computation. One of its ranks may park first, and its
peers then wait for it. With gloo the parked rank wakes them by ending its connections. NCCL has no
such way. So the controller sends the peers the list of parked ranks from time to time.

``controller.core.recovery.generations`` decides what follows from the positions.
"""

from typing import Final

from controller.core.instructions import HaltRanks
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Parking
from controller.core.state.turn import Turn
from controller.core.timers import CapacityOverdue, HaltOverdue, ReplicaPeersOverdue
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.orders import HaltOrder

_MATES_LIMIT: Final = 0.3
"""Share of the parking limit after which the replica peers of a parked rank are woken."""


def halt(
    turn: Turn,
    task: TaskState,
    *,
    at_boundary: bool = False,
    completes_copies: bool = False,
    note: str = "",
) -> None:
    """Have the task's ranks park; a rank that parks at once need not reach a boundary."""
    broken = _broken_ranks(task)
    parking = task.lifecycle.parking
    if parking is None:
        parking = Parking(turn.at, at_boundary, broken, completes_copies)
        task.lifecycle.begin_parking(parking, note)
        _set_limits(turn, task)
    else:
        is_hastened = parking.at_boundary and not at_boundary
        if parking.broken == broken and not is_hastened:
            return
        parking.spread(broken, at_boundary=at_boundary)
        if is_hastened:
            _set_limits(turn, task)
    _send_halt(turn, task, _reachable_nodes(turn, task))


def _set_limits(turn: Turn, task: TaskState) -> None:
    assert task.lifecycle.parking is not None
    name, generation = task.spec.task, task.generation
    if task.lifecycle.parking.at_boundary:
        limit_s = boundary_limit_s(turn.policy, task)
        if task.lifecycle.parking.completes_copies:
            # How long copies take is not known. They save it a checkpoint, so as long as that may
            # take.
            limit_s += checkpoint_limit_s(turn.policy, task)
        turn.set_timer(HaltOverdue(name, generation), limit_s)
        return
    limit_s = halt_limit_s(turn.policy, task)
    turn.set_timer(HaltOverdue(name, generation), limit_s)
    _set_mates_limit(turn, task)


def _set_mates_limit(turn: Turn, task: TaskState) -> None:
    limit_s = _MATES_LIMIT * halt_limit_s(turn.policy, task)
    turn.set_timer(ReplicaPeersOverdue(task.spec.task, task.generation), limit_s)


def wake_replica_peers(turn: Turn, task: TaskState) -> None:
    """Wake ranks that have not parked from waiting for ranks of their replica that have."""
    if task.lifecycle.parking is None or task.layout is None:
        return
    waiting = {task.layout.dp_rank(number) for number in awaited_ranks(turn, task)}
    left_them = {
        number
        for number, rank in task.ranks.items()
        if rank.position is not None and task.layout.dp_rank(number) in waiting
    }
    if left_them - task.lifecycle.parking.left:
        task.lifecycle.parking.leave(left_them)
        _send_halt(turn, task, _reachable_nodes(turn, task))
    if task.lifecycle.parking.parked_at is None:
        _set_mates_limit(turn, task)


def halt_again(turn: Turn, task: TaskState, node: NodeId) -> None:
    """Repeat the halt of a parking task to a node that may have missed it."""
    if task.lifecycle.parking and any(worker.node == node for worker in task.placement):
        _send_halt(turn, task, (node,))


def halt_limit_s(policy: Policy, task: TaskState) -> float:
    """Return how long ranks may take to park: a whole replica finishes its micro-batch first."""
    return max(policy.halt_limit_s, policy.stall_factor * (task.progress.mean_iteration_s or 0.0))


def boundary_limit_s(policy: Policy, task: TaskState) -> float:
    """Return how long ranks may take to come to the end of their iteration."""
    return max(policy.stop_limit_s, policy.stall_factor * (task.progress.mean_iteration_s or 0.0))


def checkpoint_limit_s(policy: Policy, task: TaskState) -> float:
    """Return how long a checkpoint may take to be complete, if it is saved at all."""
    if task.spec.is_command:
        return 0.0
    return (
        policy.stall_factor * task.progress.checkpoint_s
        if task.progress.checkpoint_s
        else policy.start_limit_s
    )


def await_capacity(turn: Turn, task: TaskState) -> None:
    """Wait for workers of other tasks, for a limited time."""
    parking = task.lifecycle.parking
    if parking and not parking.waits_for_capacity:
        parking.await_capacity()
        timer = CapacityOverdue(task.spec.task, task.generation)
        turn.set_timer(timer, turn.policy.capacity_limit_s)


def awaited_ranks(turn: Turn, task: TaskState) -> list[int]:
    """Return the ranks of a parking task that should still say where they stand.

    A new process without a report yet has nothing to lose: it is replaced. What is out of
    contact is waited for elsewhere, as a node.
    """
    return [number for number, rank in task.ranks.items() if _is_awaited(turn, rank)]


def awaits_ranks(turn: Turn, task: TaskState) -> bool:
    """Return whether there are any.

    Ranks report about in their order: those that are awaited come last.
    """
    for rank in reversed(task.ranks.values()):
        if rank.position is None and _is_awaited(turn, rank):
            return True
    return False


def _is_awaited(turn: Turn, rank: RankState) -> bool:
    return (
        rank.position is None
        and rank.is_alive
        and not rank.is_broken
        and rank.done is None
        and (rank.is_seen or rank.continues is not None)
        and turn.state.nodes[rank.worker.node].contact.condition is NodeCondition.HEALTHY
    )


def has_doubtful_node(turn: Turn, task: TaskState) -> bool:
    """Return whether a node in contact lost a rank and has not answered since."""
    assert task.lifecycle.parking is not None
    return not task.lifecycle.parking.is_settled and any(
        not rank.is_alive
        and turn.state.nodes[rank.worker.node].contact.condition is NodeCondition.HEALTHY
        and rank.worker.node not in task.lifecycle.parking.answered_nodes
        for rank in task.ranks.values()
    )


def _broken_ranks(task: TaskState) -> tuple[int, ...]:
    return tuple(
        number for number, rank in sorted(task.ranks.items()) if rank.is_broken or not rank.is_alive
    )


def _reachable_nodes(turn: Turn, task: TaskState) -> tuple[NodeId, ...]:
    nodes = {rank.worker.node for rank in task.ranks.values()}
    return tuple(
        node
        for node in sorted(nodes)
        if turn.state.nodes[node].contact.condition is NodeCondition.HEALTHY
    )


def _send_halt(turn: Turn, task: TaskState, nodes: tuple[NodeId, ...]) -> None:
    parking = task.lifecycle.parking
    assert parking is not None
    if nodes:
        order = HaltOrder(
            task=task.spec.task,
            generation=task.generation,
            broken=tuple(sorted({*parking.broken, *parking.left})),
            at_boundary=parking.at_boundary,
            completes_copies=parking.completes_copies,
        )
        turn.emit(HaltRanks(turn.cause, nodes, order))
