"""Processes that wait beside their task, with their models, and join when it grows.

Forking a process takes a moment and building a model may take long. A task may be about to continue
with more workers, or on other workers. Then the processes that it will need are started, and build
their models, before it is parked. The processes of a replica that has lost a rank have models
already. They wait while no plan says where the task is to be, or if the plan includes them. When
all needed processes wait, or have had time enough, the task is parked at the end of its iteration.
They are then taken over like parked survivors that have no state.

They are called by numbers of the generation that trains, beyond those of its ranks. One that fails
costs nothing: its rank gets a new process when the generation begins.
"""

from collections.abc import Collection

from controller.core.instructions import PrepareSpares, StopRanks
from controller.core.rules.placement import Worker
from controller.core.rules.regroup.replicas import ModelPart, part_of
from controller.core.state.phases import NodeCondition
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from controller.core.timers import SparesOverdue
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import (
    LaunchFailed,
    RankExited,
    RankObservation,
    RankRaised,
)
from nodeagent.protocol.orders import StopOrder


def is_prepared(turn: Turn, task: TaskState, target: Target, staying: Collection[int]) -> bool:
    """Begin what the task needs to continue at ``target``; return whether it need not wait for it.

    Args:
        turn: The turn.
        task: A task that trains elsewhere.
        target: Where it is to be; free, and in contact.
        staying: Ranks of the target whose processes continue.
    """
    occupied = task.occupied_workers - set(task.leaving.workers.values())
    missing = [
        place
        for place, worker in enumerate(target.placement)
        if place not in staying and worker not in occupied
    ]
    if any(target.placement[place] in task.leaving.workers.values() for place in missing):
        return False  # its memory may not have room for both
    spares = task.spares
    if missing and spares.target != target:
        _begin(turn, task, target, missing)
        return False
    return not awaits_spares(task)


def _begin(turn: Turn, task: TaskState, target: Target, places: list[int]) -> None:
    spares = task.spares
    added = {
        spares.next_number + offset: (target.placement[place], place)
        for offset, place in enumerate(places)
    }
    parts = {
        number: (worker, part_of(target.layout, place)) for number, (worker, place) in added.items()
    }
    spares.prepare(target, parts)
    turn.emit(
        PrepareSpares(
            turn.cause, task.spec.task, task.generation, target.layout, added,
            task.membership.program,
        )
    )  # fmt: skip
    turn.set_timer(SparesOverdue(task.spec.task, task.generation), turn.policy.prepare_limit_s)
    nodes = ", ".join(sorted({worker.node for worker, _ in added.values()}))
    turn.announce(
        "info", "prepare", task.spec.task,
        f"{len(added)} new process(es) on {nodes} prepare for {target.layout} while it trains on",
        generation=task.generation, num_new=len(added),
    )  # fmt: skip


def awaits_spares(task: TaskState) -> bool:
    """Return whether the task waits for spares that still build their models.

    Spares report about in their order: those that are awaited come last.
    """
    spares = task.spares
    return not spares.is_over and any(
        rank.position is None and rank.is_alive and not rank.is_broken
        for rank in reversed(spares.ranks.values())
    )


def ready_spares(turn: Turn, task: TaskState, target: Target) -> dict[int, int]:
    """Return, by number, the rank of ``target`` that each process that waits can be."""
    spares = task.spares
    return {
        number: place
        for number, rank in spares.ranks.items()
        if turn.state.is_fit(rank)
        and (place := place_in(target, rank.worker, spares.parts[number])) is not None
    }


def can_serve(turn: Turn, task: TaskState, worker: Worker, part: ModelPart) -> bool:
    """Return whether a process with this model part can be a rank at the target.

    While that is open it can, on a worker that no other task is to get.
    """
    if task.assignment.target is not None:
        return place_in(task.assignment.target, worker, part) is not None
    moving = (
        other.assignment.target
        for other in turn.state.tasks.values()
        if other.assignment.target and other.assignment.target.placement is not other.placement
    )
    return not any(worker in target.ranks for target in moving)


def place_in(target: Target, worker: Worker, part: ModelPart) -> int | None:
    """Return the rank of ``target`` that a process at ``worker`` with this part can be, if any."""
    place = target.ranks.get(worker)
    return place if place is not None and part_of(target.layout, place) == part else None


def observe_spare(turn: Turn, task: TaskState, observation: RankObservation) -> None:
    """Take what a process that prepares says into the state."""
    rank = task.spares.ranks.get(observation.global_rank)
    if rank is None:
        if isinstance(observation, RankExited | LaunchFailed):
            task.leaving.note_end(observation.generation, observation.global_rank)
        return
    rank.observe_as_spare(observation)
    match observation:
        case RankRaised():
            rank.note_broken()
            _announce_failure(turn, task, observation.message)
        case LaunchFailed():
            lose_spare(turn, task, observation.global_rank, observation.reason)
        case RankExited():
            lose_spare(turn, task, observation.global_rank, "its process ended")
        case _:
            pass


def lose_spare(turn: Turn, task: TaskState, number: int, reason: str) -> None:
    """A process that waits, or prepares, is gone."""
    task.spares.ranks[number].note_gone()
    _announce_failure(turn, task, reason)


def lose_unseen_spares(turn: Turn, task: TaskState, node: NodeId, reason: str) -> None:
    """A node refused a start: drop its spares that have not reported yet."""
    for number, rank in task.spares.ranks.items():
        if rank.worker.node == node and rank.continues and rank.is_alive and not rank.is_seen:
            lose_spare(turn, task, number, reason)


def _announce_failure(turn: Turn, task: TaskState, reason: str) -> None:
    turn.announce(
        "warning", "prepare", task.spec.task,
        f"a spare is lost; a new process will be started when it is needed: {reason}",
    )  # fmt: skip


def drop_useless_spares(turn: Turn) -> None:
    """End spares that can't have a part any more where their task is to be."""
    for task in turn.state.tasks.values():
        spares = task.spares
        if not spares.ranks and spares.target is None:
            continue
        useless = {
            number: rank
            for number, rank in spares.ranks.items()
            if not _is_of_use(turn, task, rank, spares.parts[number])
        }
        spares.drop(useless, task.assignment.target)
        living = {number: rank for number, rank in useless.items() if rank.is_alive}
        task.leaving.begin(
            task.generation, {number: rank.worker for number, rank in living.items()}
        )
        for node in sorted({rank.worker.node for rank in living.values()}):
            if turn.state.nodes[node].contact.condition is NodeCondition.HEALTHY:
                numbers = tuple(n for n, rank in living.items() if rank.worker.node == node)
                kill = StopOrder(
                    task=task.spec.task,
                    generation=task.generation,
                    is_graceful=False,
                    only=numbers,
                )
                turn.emit(StopRanks(turn.cause, (node,), kill))


def _is_of_use(turn: Turn, task: TaskState, rank: RankState, part: ModelPart) -> bool:
    is_fit = rank.is_alive and not rank.is_broken
    return is_fit and task.can_regroup and can_serve(turn, task, rank.worker, part)
