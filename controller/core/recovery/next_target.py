"""Where a parked task goes on, and whether waiting for that is of any use.

It goes on where it is to be (``TaskState.target``). While that is not decided, it goes on with what it has:
as before, or with the replicas that its ranks still make; if they make none, or too few, with processes
that wait beside it, where ranks and memory have the state. Where other tasks are still to free workers that it
needs, it waits ``Policy.capacity_limit_s`` for them, and then goes on with the replicas that stay. A task
whose model is to be divided anew first goes on as it is, so that it can save its state.

Waiting leads nowhere where nobody is left who can go on, where nobody is asked to decide, or where two
tasks each hold what the other is to get. Such a task gives its workers back and starts from its
checkpoint. How the next generation is begun is in ``controller.core.recovery.generations``.
"""

from collections.abc import Collection

from controller.core.lifecycle.start_stop import obstacle
from controller.core.rules.placement import Worker
from controller.core.rules.regroup.replicas import living_replicas, place_replicas, with_waiting
from controller.core.state.phases import NodeCondition
from controller.core.state.task import Target, TaskState
from controller.core.state.turn import Turn
from controller.core.timers import CapacityOverdue
from profiles.layout import Layout


def is_same_model(old: Layout, new: Layout) -> bool:
    """Return whether a rank's part of the model is the same in both, so that its state is of use."""
    return (old.tp, old.pp) == (new.tp, new.pp)


def goal_of(turn: Turn, task: TaskState) -> Target | None:
    """Return where the parked task can go on now; None if it has to wait."""
    parking, target = task.parking, task.target
    assert parking is not None
    if target is None:
        return _interim(turn, task)
    if task.layout is not None and not is_same_model(task.layout, target.layout):
        # What is left first goes on as it is: it saves its state before it is divided anew.
        interim = _interim(turn, task, fewest=1)
        if interim is not None:
            return interim
    task.note = obstacle(turn, task, target) or ""
    if not task.note:
        return target
    if not parking.waits_for_capacity:
        parking.waits_for_capacity = True
        timer = CapacityOverdue(task.spec.task, task.generation)
        turn.set_timer(timer, turn.policy.capacity_limit_s)
    return _interim(turn, task, set(target.placement)) if parking.is_impatient else None


def _interim(
    turn: Turn,
    task: TaskState,
    within: Collection[Worker] | None = None,
    *,
    fewest: int | None = None,
) -> Target | None:
    """Return where the task can go on with what it has: as before, or with the replicas that are left.

    Args:
        turn: The turn.
        task: The task, parked.
        within: Workers that it may use; None for all that it has.
        fewest: Workers with which going on is of use; None for the task's ``min_workers``.
    """
    if task.layout is None:
        return None
    if task.interim and task.interim == task.place and not obstacle(turn, task, task.interim):
        return task.interim
    fit = {
        rank.worker
        for rank in task.ranks.values()
        if turn.state.is_fit(rank) and (within is None or rank.worker in within)
    }
    interim = _made_of(Target(task.layout, task.placement), fit)
    if interim is None:
        return None
    if interim.layout.num_workers < (task.spec.min_workers if fewest is None else fewest):
        return None
    task.interim = interim
    return interim


def with_waiting_ranks(turn: Turn, task: TaskState) -> Target | None:
    """Return where a task could go on with what is left and with processes that wait, if that is enough."""
    spares = task.spares
    if task.target is not None or task.layout is None or spares is None:
        return None
    fit = {rank.worker for rank in task.ranks.values() if turn.state.is_fit(rank)}
    waiting = [
        (rank.worker, spares.parts[number])
        for number, rank in task.waiting.items()
        if turn.state.is_fit(rank)
    ]
    fit |= {worker for worker, _ in waiting}
    found = _made_of(Target(*with_waiting(task.layout, task.placement, waiting)), fit)
    return found if found and found.layout.num_workers >= task.spec.min_workers else None


def _made_of(place: Target, fit: Collection[Worker]) -> Target | None:
    """Return what the replicas make that have all their ranks among ``fit``; None without any."""
    numbers = [number for number, worker in enumerate(place.placement) if worker in fit]
    replicas = living_replicas(place.layout, numbers)
    if not replicas:
        return None
    layout = Layout(place.layout.tp, place.layout.pp, len(replicas))
    return Target(layout, place_replicas(place.layout, place.placement, replicas))


def is_without_hope(turn: Turn, task: TaskState) -> bool:
    """Whether waiting parked leads nowhere, so that the workers are better given back."""
    assert task.parking is not None
    if not any(rank.can_go_on for rank in task.ranks.values()):
        return not _has_rank_out_of_sight(turn, task)
    if task.target is None:
        return turn.policy.is_auto_heal  # an operator may still decide otherwise
    if not task.parking.is_impatient:
        return False
    return any(
        other is not task
        and other.parking is not None
        and other.target is not None
        and set(other.target.placement) & task.occupied_workers
        and set(task.target.placement) & other.occupied_workers
        for other in turn.state.tasks.values()
    )


def _has_rank_out_of_sight(turn: Turn, task: TaskState) -> bool:
    """Return whether a rank may live, and hold the state, on a node that went out of contact lately."""
    nodes = [turn.state.nodes[rank.worker.node] for rank in task.living_ranks.values()]
    return any(
        node.condition is NodeCondition.UNREACHABLE
        and turn.at - node.lost_contact_at < turn.policy.refusal_grace_s
        for node in nodes
    )
