"""Where a parked task continues, and whether waiting for that place makes sense.

It continues at its target. Without a target it continues with its present ranks: as before, or with
the whole replicas that remain. If too few remain, spares join, provided that ranks and memory have
the state. If other tasks still hold workers of the target, it waits ``Policy.capacity_limit_s`` for
them, and then continues with the replicas that stay. A task that gets another tp or pp first
continues as it is, so that it can save its state.

Waiting is pointless if no rank can continue, if no operator will decide, or if two tasks hold each
other's workers. Such a task gives its workers back and starts from its checkpoint.
``controller.core.recovery.generations`` begins the next generation.
"""

from collections.abc import Collection

from controller.core.lifecycle.obstacles import note_obstacle, obstacle
from controller.core.lifecycle.parking import await_capacity
from controller.core.rules.placement import Worker
from controller.core.rules.regroup.replicas import living_replicas, place_replicas, with_waiting
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from profiles.layout import Layout


def is_same_model(old: Layout, new: Layout) -> bool:
    """Return whether a rank's part of the model is the same in both layouts."""
    return (old.tp, old.pp) == (new.tp, new.pp)


def goal_of(turn: Turn, task: TaskState) -> Target | None:
    """Return where the parked task can continue now; None if it has to wait."""
    parking, target = task.lifecycle.parking, task.assignment.target
    assert parking is not None
    if target is None:
        return _interim(turn, task)
    if task.layout is not None and not is_same_model(task.layout, target.layout):
        # The ranks that are left continue in the old layout first: they save their state before it
        # is divided anew.
        interim = _interim(turn, task, fewest=1)
        if interim is not None:
            return interim
    if not note_obstacle(turn, task, target):
        return target
    await_capacity(turn, task)
    return _interim(turn, task, target.ranks.keys()) if parking.is_impatient else None


def _interim(
    turn: Turn,
    task: TaskState,
    within: Collection[Worker] | None = None,
    *,
    fewest: int | None = None,
) -> Target | None:
    """Return where the task can continue with its own ranks: as before, or with whole replicas.

    Args:
        turn: The turn.
        task: The task, parked.
        within: Workers that it may use; None for all that it has.
        fewest: Smallest number of workers to continue with; None for the task's ``min_workers``.
    """
    if task.layout is None:
        return None
    if (
        task.assignment.interim
        and task.assignment.interim == task.place
        and not obstacle(turn, task, task.assignment.interim)
    ):
        return task.assignment.interim
    fit = {
        rank.worker
        for rank in task.ranks.values()
        if turn.state.is_fit(rank) and (within is None or rank.worker in within)
    }
    interim = _made_of(Target(task.layout, task.placement), fit)
    return task.assignment.settle_for(interim, task.spec.min_workers if fewest is None else fewest)


def with_waiting_ranks(turn: Turn, task: TaskState) -> Target | None:
    """Return where a task could continue with its ranks and its spares together, of any size."""
    spares = task.spares
    if task.assignment.target is not None or task.layout is None or not spares.ranks:
        return None
    fit = {rank.worker for rank in task.ranks.values() if turn.state.is_fit(rank)}
    waiting = [
        (rank.worker, spares.parts[number])
        for number, rank in task.spares.ranks.items()
        if turn.state.is_fit(rank)
    ]
    fit |= {worker for worker, _ in waiting}
    return _made_of(Target(*with_waiting(task.layout, task.placement, waiting)), fit)


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
    assert task.lifecycle.parking is not None
    if not any(rank.can_go_on for rank in task.ranks.values()):
        return not _has_rank_out_of_sight(turn, task)
    if task.assignment.target is None:
        # An operator, or a countdown, may still decide otherwise.
        return turn.heals and turn.state.plans.pending() is None
    if not task.lifecycle.parking.is_impatient:
        return False
    return any(
        other is not task
        and other.lifecycle.parking is not None
        and other.assignment.target is not None
        and set(other.assignment.target.placement) & task.occupied_workers
        and set(task.assignment.target.placement) & other.occupied_workers
        for other in turn.state.tasks.values()
    )


def _has_rank_out_of_sight(turn: Turn, task: TaskState) -> bool:
    """Return whether a rank with the state may live on a node that lately lost contact."""
    nodes = [turn.state.nodes[rank.worker.node] for rank in task.living_ranks.values()]
    return any(
        node.contact.condition is NodeCondition.UNREACHABLE
        and turn.at - node.contact.lost_contact_at < turn.policy.refusal_grace_s
        for node in nodes
    )
