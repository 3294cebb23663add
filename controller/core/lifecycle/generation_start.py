"""The start of a task's next generation, and what the task is. The one writer of ``TaskState``.

Each start is a new generation, which makes every process of an older one harmless. Who decides that
a generation begins: ``lifecycle.start_stop`` for new processes, and ``recovery.generations`` for
generations that follow one another in the same processes.

A changed spec that ranks can run with takes effect at once: a weight, a limit, another throughput
table. Any other waits for a start with new processes only, because the processes of a generation
must agree on their program.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from controller.core.instructions import ParkedSpare, StartRanks
from controller.core.lifecycle.assignments import arrive
from controller.core.lifecycle.command_tasks import watch_command
from controller.core.lifecycle.phase_changes import begin_starting
from controller.core.lifecycle.progress import begin_progress
from controller.core.lifecycle.transition_times import begin_transition
from controller.core.rules.regroup.replicas import part_of
from controller.core.specs import TaskSpec
from controller.core.state.phases import TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Spares, Target
from controller.core.state.turn import Turn
from controller.core.timers import InspectionDue, SparesOverdue, StartOverdue
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout

AT_REST = frozenset({TaskPhase.WAITING, TaskPhase.STOPPED, TaskPhase.HELD, TaskPhase.FINISHED})
"""Phases without ranks."""


def change_spec(task: TaskState, spec: TaskSpec) -> bool:
    """Give a task another spec; return whether all of it takes effect at once."""
    task.membership.next_spec = None
    if task.lifecycle.phase in AT_REST or task.spec.takes_effect_at_once(spec):
        task.spec = spec
        return True
    # Priorities concern the planner alone.
    task.spec = replace(task.spec, weight=spec.weight, keeps_running=spec.keeps_running)
    task.membership.next_spec = spec
    return False


def take_next_spec(task: TaskState) -> None:
    """A task without ranks becomes what it was changed to."""
    if task.membership.next_spec is not None:
        task.spec, task.membership.next_spec = task.membership.next_spec, None
    task.membership.is_rejoining = False


def begin_program(task: TaskState, layout: Layout) -> None:
    """A generation of new processes begins: they run the newest program that has ``layout``."""
    following = task.membership.next_spec
    if following is not None and has_layout(following, layout):
        take_next_spec(task)
    task.membership.program = task.spec.program


def has_layout(spec: TaskSpec, layout: Layout) -> bool:
    """Return whether a task of ``spec`` can run with ``layout``."""
    return any(point.layout == layout for point in spec.table.points)


def leave(task: TaskState) -> None:
    """The task was removed from the cluster."""
    task.membership.is_removed, task.membership.next_spec = True, None


def rejoin(task: TaskState, spec: TaskSpec) -> None:
    """A removed task was added again, while its ranks are being stopped."""
    task.membership.is_removed, task.membership.is_rejoining = False, True
    task.membership.next_spec = spec


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
        begin_program(task, target.layout)
    # These two compare the old place with the new one, so they come before it changes.
    begin_transition(turn, task, target, ranks)
    begin_progress(task, target)
    task.watch = task.watch.of_next_generation(turn.at, _scale(task, target))
    task.generation = Generation(task.generation + 1)
    task.layout, task.placement = target.layout, target.placement
    arrive(task, target)
    task.ranks = dict(ranks)
    task.spares = spares
    task.resume = resume
    begin_starting(task)
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
        f"starts generation {task.generation} on {nodes} with {task.layout}:"
        f" {num_new} new processes, {len(task.ranks) - num_new} continue{wait}",
        generation=task.generation,
        workers=task.layout.num_workers,
        num_new=num_new,
        num_waiting=len(waiting),
    )


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
