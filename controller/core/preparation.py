"""Ranks that prepare while their task trains on, and join when it grows.

Forking a process takes a moment and building a model may take long. So before a task is parked to go
on with more workers, or on other ones, the processes that it will need there are started and build
their models. When all of them wait, or have waited long enough, the task is parked at the end of its
iteration, and they are taken over like parked survivors that have no state.

They are called by numbers of the generation that trains, beyond those of its ranks. One that fails
costs nothing: its rank gets a new process when the generation begins.
"""

from collections.abc import Collection

from controller.core.instructions import PrepareRanks, StopRanks
from controller.core.phases import NodeCondition, TaskPhase
from controller.core.tasks import Preparation, RankState, Target, TaskState
from controller.core.timers import PrepareOverdue
from controller.core.turn import Turn
from nodeagent.protocol.observations import (
    LaunchFailed,
    RankExited,
    RankHalted,
    RankObservation,
    RankRaised,
    RankStarted,
)


def is_prepared(turn: Turn, task: TaskState, target: Target, staying: Collection[int]) -> bool:
    """Begin what the task needs to go on at ``target``; return whether it need not wait for it.

    Args:
        turn: The turn.
        task: A task that trains elsewhere.
        target: Where it is to be; free, and in contact.
        staying: Ranks of the target whose processes go on.
    """
    occupied = {rank.worker for rank in task.living_ranks.values()}
    missing = [
        place
        for place, worker in enumerate(target.placement)
        if place not in staying and worker not in occupied
    ]
    if task.preparation is None and missing:
        _begin(turn, task, target, missing)
    preparation = task.preparation
    return preparation is None or preparation.is_over or not _awaited(preparation)


def _begin(turn: Turn, task: TaskState, target: Target, places: list[int]) -> None:
    spares = {
        task.next_spare + offset: (target.placement[place], place)
        for offset, place in enumerate(places)
    }
    task.next_spare += len(spares)
    task.preparation = Preparation(
        target,
        {number: RankState(worker) for number, (worker, _) in spares.items()},
        {number: place for number, (_, place) in spares.items()},
    )
    turn.emit(PrepareRanks(turn.cause, task.spec.task, task.generation, target.layout, spares))
    turn.set_timer(PrepareOverdue(task.spec.task, task.generation), turn.policy.prepare_limit_s)
    nodes = ", ".join(sorted({worker.node for worker, _ in spares.values()}))
    turn.tell(
        "info", "prepare", task.spec.task,
        f"{len(spares)} new process(es) on {nodes} prepare for {target.layout} while it trains on",
        generation=task.generation, num_new=len(spares),
    )  # fmt: skip


def _awaited(preparation: Preparation) -> list[int]:
    return [
        number
        for number, rank in preparation.ranks.items()
        if rank.is_alive and not rank.is_broken and rank.position is None
    ]


def ready_spares(turn: Turn, task: TaskState, target: Target) -> dict[int, int]:
    """Return, by number, the rank of ``target`` that each process that waits can be."""
    preparation = task.preparation
    if preparation is None or preparation.target.layout != target.layout:
        return {}
    return {
        number: place
        for number, place in preparation.places.items()
        if preparation.ranks[number].can_go_on
        and target.placement[place] == preparation.ranks[number].worker
        and turn.state.can_use(target.placement[place])
    }


def observe_spare(turn: Turn, task: TaskState, observation: RankObservation) -> None:
    """Take what a process that prepares says into the state."""
    preparation = task.preparation
    rank = preparation.ranks.get(observation.global_rank) if preparation else None
    if preparation is None or rank is None:
        if isinstance(observation, RankExited | LaunchFailed):
            task.leaving.pop((observation.generation, observation.global_rank), None)
        return
    rank.is_seen = True
    match observation:
        case RankStarted():
            rank.pid = observation.pid
        case RankHalted():
            rank.position = observation.position
        case RankRaised():
            rank.is_broken = True
            _tell_failure(turn, task, observation.message)
        case LaunchFailed():
            rank.is_alive = False
            _tell_failure(turn, task, observation.reason)
        case RankExited():
            rank.is_alive = False
            _tell_failure(turn, task, "its process ended")
        case _:
            pass


def _tell_failure(turn: Turn, task: TaskState, reason: str) -> None:
    turn.tell(
        "warning", "prepare", task.spec.task,
        f"a new rank could not prepare, a process is started later instead: {reason}",
    )  # fmt: skip


def end_preparation(task: TaskState) -> None:
    """No wait any more: what is not prepared by now is started with the generation."""
    if task.preparation is not None:
        task.preparation.is_over = True


def drop_useless_spares(turn: Turn) -> None:
    """End what was prepared for a place where its task is not to be any more."""
    for task in turn.state.tasks.values():
        preparation = task.preparation
        is_of_use = task.phase in {TaskPhase.RUNNING, TaskPhase.PARKING} and (
            preparation is not None and preparation.target == task.target
        )
        if preparation is None or is_of_use:
            continue
        task.preparation = None
        living = {n: rank for n, rank in preparation.ranks.items() if rank.is_alive}
        task.leaving |= {(task.generation, n): rank.worker for n, rank in living.items()}
        for node in sorted({rank.worker.node for rank in living.values()}):
            if turn.state.nodes[node].condition is NodeCondition.HEALTHY:
                numbers = tuple(n for n, rank in living.items() if rank.worker.node == node)
                turn.emit(
                    StopRanks(
                        turn.cause,
                        task.spec.task,
                        task.generation,
                        (node,),
                        is_graceful=False,
                        only=numbers,
                    )
                )
