"""The start of a task's next generation.

Each start is a new generation, which makes every process of an older one harmless. Who decides that
a generation begins: ``lifecycle.start_stop`` for new processes, and ``recovery.generations`` for
generations that follow one another in the same processes.
"""

import math
from collections.abc import Collection, Mapping

from controller.core.instructions import ParkedSpare, StartRanks
from controller.core.lifecycle.command_tasks import watch_command
from controller.core.rules.regroup.replicas import part_of
from controller.core.rules.transitions import Transition, kind_of
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Spares, Target
from controller.core.state.turn import Turn
from controller.core.timers import InspectionDue, SparesOverdue, StartOverdue
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout


def begin_generation(
    turn: Turn,
    task: TaskState,
    target: Target,
    ranks: Mapping[int, RankState],
    resume: Resume,
    spares: Spares,
) -> None:
    """Start the task's next generation at ``target``, with these ranks and the spares beside it."""
    if all(rank.continues is None for rank in ranks.values()):
        task.begin_program(target.layout)
    # Transition, speed and watch need the old place. ``task.begin_generation`` replaces it.
    task.transitions.begin(_transition(turn, task, target, ranks))
    task.progress.begin_generation(task.layout, target.layout)
    watch = task.watch.of_next_generation(turn.at, _scale(task, target))
    task.begin_generation(target, ranks, resume, spares, watch)
    waiting = tuple(spares.ranks)
    send_start(turn, task, (*task.ranks, *waiting))
    if task.spec.is_command:
        watch_command(turn, task)
    # A command that never printed an iteration is not late with one.
    if not task.spec.is_command or task.progress.iteration:
        limit_s = task.spec.start_limit_s or turn.policy.start_limit_s
        turn.set_timer(StartOverdue(task.spec.task, task.generation), limit_s)
    turn.set_timer(InspectionDue(task.spec.task, task.generation), turn.policy.look_interval_s)
    if waiting:
        turn.set_timer(SparesOverdue(task.spec.task, task.generation), turn.policy.prepare_limit_s)
    nodes = ", ".join(sorted({worker.node for worker in task.placement}))
    num_new = sum(rank.continues is None for rank in task.ranks.values())
    wait = f", {len(waiting)} more wait as spares" if waiting else ""
    turn.announce(
        "info",
        "start",
        task.spec.task,
        f"starts generation {task.generation} on {nodes} with {target.layout}:"
        f" {num_new} new processes, {len(task.ranks) - num_new} continue{wait}",
        generation=task.generation,
        workers=target.layout.num_workers,
        num_new=num_new,
        num_waiting=len(waiting),
    )


def _transition(
    turn: Turn, task: TaskState, target: Target, ranks: Mapping[int, RankState]
) -> Transition | None:
    """Return the transition to ``target``; the first generation of a task is none."""
    place, parking = task.place, task.lifecycle.parking
    if place is None:
        return None
    kind = kind_of(
        place.layout,
        target.layout,
        is_same_place=place.placement == target.placement,
        has_new_process=any(rank.continues is None for rank in ranks.values()),
    )
    begin, step_s = task.transitions.experience.begin, turn.policy.step_s
    if parking is None:
        return begin(kind, ("stop", task.stopping.took_s), turn.at, step_s)
    park_s = (turn.at if parking.parked_at is None else parking.parked_at) - parking.since
    return begin(kind, ("park", park_s), turn.at, step_s)


def _scale(task: TaskState, target: Target) -> float | None:
    """Return how many times as long iterations take at ``target``; None with another tp or pp.

    The replica with the most micro-batches decides.
    """
    old, new = task.layout, target.layout
    if old is None or (old.tp, old.pp) != (new.tp, new.pp):
        return None
    num = task.spec.num_micro_batches
    return math.ceil(num / new.dp) / math.ceil(num / old.dp)


def send_start(turn: Turn, task: TaskState, numbers: Collection[int]) -> None:
    """Have these ranks of the present generation started, and these spares wait beside it."""
    assert task.layout is not None
    global_ranks = tuple(number for number in numbers if number in task.ranks)
    turn.emit(
        StartRanks(
            turn.cause,
            task.spec.task,
            task.generation,
            task.layout,
            task.placement,
            global_ranks,
            {
                number: ref
                for number in global_ranks
                if (ref := task.ranks[number].continues) is not None
            },
            task.resume,
            _parked_spares_among(task, task.layout, numbers),
            program=task.membership.program,
        )
    )


def _parked_spares_among(
    task: TaskState, layout: Layout, numbers: Collection[int]
) -> dict[int, ParkedSpare]:
    """Return the processes among ``numbers`` that were ranks before and are spares now."""
    if not task.spares.ranks:
        return {}
    stands_for = {part_of(layout, number): number for number in range(layout.num_workers)}
    return {
        number: ParkedSpare(rank.worker, rank.continues, stands_for[task.spares.parts[number]])
        for number, rank in task.spares.ranks.items()
        if number in numbers and rank.continues is not None
    }
