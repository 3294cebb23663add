"""The processes of a parked task: which can continue, wait as spares, or are ended."""

from collections.abc import Collection, Mapping

from controller.core.instructions import StopRanks
from controller.core.lifecycle.spares import can_serve
from controller.core.rules.regroup.replicas import ModelPart, part_of, parts_of
from controller.core.state.phases import NodeCondition
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Spares, Target
from controller.core.state.turn import Turn
from nodeagent.protocol.orders import StopOrder
from nodeagent.protocol.regroup import RankRef


def fit_ranks(turn: Turn, task: TaskState) -> list[int]:
    """Return the ranks whose parked processes can be ranks of another generation."""
    return [number for number, rank in task.ranks.items() if turn.state.is_fit(rank)]


def parts_left(
    turn: Turn, task: TaskState, goal: Target, continues: Collection[int]
) -> dict[int, ModelPart]:
    """Return the processes without a part at ``goal`` that may have one at the next target.

    The ranks of a replica that has lost one are such, and those that wait already, in contact or
    not. They keep their models, of which the parts are returned, by number.
    """
    if task.layout is None:
        return {}
    parts = {
        number: part_of(task.layout, number)
        for number, rank in task.ranks.items()
        if number not in continues and turn.state.is_fit(rank)
    }
    parts |= {
        number: task.spares.parts[number]
        for number, rank in task.spares.ranks.items()
        if number not in continues
        and rank.is_alive
        and not rank.is_broken
        and (rank.is_seen or rank.continues)
    }
    if not parts:
        return {}
    processes = processes_of(task)
    workers = {number: processes[number].worker for number in parts}
    known = set(parts_of(goal.layout))
    return {
        number: part
        for number, part in sorted(parts.items())
        if part in known
        and workers[number] not in goal.ranks
        and can_serve(turn, task, workers[number], part)
    }


def spares_of(task: TaskState, goal: Target, parked_spares: Mapping[int, ModelPart]) -> Spares:
    """Return the spares beside the next generation, numbered after its ranks."""
    numbers = dict(enumerate(parked_spares, goal.layout.num_workers))
    processes = processes_of(task)
    return Spares(
        {new: continuing_rank(task, processes[old], old) for new, old in numbers.items()},
        {new: parked_spares[old] for new, old in numbers.items()},
        next_number=goal.layout.num_workers + len(numbers),
    )


def leave_out(turn: Turn, task: TaskState, goal: Target, staying: Collection[int]) -> None:
    """End the processes that do not stay; where some do, the agent's fence ends the others."""
    processes = processes_of(task)
    left_out = {
        number: rank.worker
        for number, rank in processes.items()
        if rank.is_alive and number not in staying
    }
    task.leaving.begin(task.generation, left_out)
    fenced = {w.node for w in goal.placement} | {processes[n].worker.node for n in staying}
    nodes = {worker.node for worker in left_out.values()} - fenced
    reachable = tuple(
        node
        for node in sorted(nodes)
        if turn.state.nodes[node].contact.condition is NodeCondition.HEALTHY
    )
    if reachable:
        kill = StopOrder(task=task.spec.task, generation=task.generation, is_graceful=False)
        turn.emit(StopRanks(turn.cause, reachable, kill))


def continuing_rank(task: TaskState, old: RankState, old_number: int) -> RankState:
    """Return the rank, or spare, of the next generation that continues in an old one's process."""
    return RankState(
        old.worker,
        pid=old.pid,
        iteration=old.iteration,
        continues=RankRef(generation=task.generation, global_rank=old_number),
    )


def processes_of(task: TaskState) -> dict[int, RankState]:
    """Return the ranks of the generation and those that wait beside it."""
    return task.ranks | task.spares.ranks
