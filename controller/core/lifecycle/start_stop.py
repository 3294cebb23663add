"""Start and stop of a task's ranks, level-based: what a task should be is compared with what it is.

A task that waits starts once it has a target, all workers of the target are free, and their nodes
are in contact; nobody has to remember to start it. Each start is a new generation, which makes
whatever is left of an older one harmless. A stop ends when every rank is known to be gone: it
exited, its launch failed, its node was lost, or the agent carried the stop out and no longer lists
it. Generations that follow one another in the same processes are begun in
``controller.core.recovery.generations``.
"""

import math
from collections.abc import Collection, Iterable, Mapping

from controller.core.instructions import DropRendezvous, ParkedSpare, StartRanks, StopRanks
from controller.core.lifecycle.command_tasks import watch_command
from controller.core.lifecycle.parking import boundary_limit_s, checkpoint_limit_s, note_loss
from controller.core.rules.regroup.replicas import part_of
from controller.core.rules.transitions import Transition, kind_of
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import Intent, RankState, Spares, Target, TaskState
from controller.core.state.turn import Turn
from controller.core.timers import InspectionDue, SparesOverdue, StartOverdue, StopOverdue
from nodeagent.protocol.ids import Generation, NodeId
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout


def start_what_can_start(turn: Turn) -> None:
    """Start every waiting task whose target is free and in contact."""
    for task in turn.state.tasks.values():
        if task.phase is TaskPhase.WAITING and task.target:
            task.note = obstacle(turn, task, task.target) or ""
            if not task.note:
                ranks = {
                    number: RankState(worker) for number, worker in enumerate(task.target.placement)
                }
                begin_generation(turn, task, task.target, ranks, Resume())


def leave_behind_unreachable(turn: Turn) -> None:
    """A task that is being killed does not wait for ranks on nodes that no order reaches.

    Their generation is over, so they can do no harm, and they are ended when their node is back.
    """
    for task in turn.state.tasks.values():
        if task.phase is not TaskPhase.STOPPING or task.is_stop_graceful:
            continue
        for number, rank in task.living_ranks.items():
            if turn.state.nodes[rank.worker.node].condition is NodeCondition.UNREACHABLE:
                lose_rank(turn, task, number)


def obstacle(turn: Turn, task: TaskState, target: Target) -> str | None:
    """Return why the task can't be at ``target`` yet, in words for operators, or None."""
    # Nodes come about in their order: what is still missing at the start is at the end.
    missing = next((w for w in reversed(target.placement) if not turn.state.can_use(w)), None)
    if missing is not None:
        is_there = turn.state.nodes[missing.node].is_in_service
        return f"waits for {f'GPU {missing.slot} of ' if is_there else 'node '}{missing.node}"
    wanted = set(target.placement)
    for other in turn.state.tasks.values():
        if other is not task and not wanted.isdisjoint(other.occupied_workers):
            return f"waits for workers of {other.spec.task}"
    run = turn.state.measurement.run if turn.state.measurement else None
    if run is not None and not wanted.isdisjoint(run.living.values()):
        return f"waits for workers of {run.task}"
    stray = next((w for w in target.placement if w in turn.state.nodes[w.node].strays), None)
    return f"waits for the end of ranks that were measured on {stray}" if stray else None


def begin_generation(
    turn: Turn,
    task: TaskState,
    target: Target,
    ranks: Mapping[int, RankState],
    resume: Resume,
    parked_spares: Spares | None = None,
) -> None:
    """Start the task's next generation at ``target``, with these ranks; ``parked_spares`` wait beside it."""
    task.transition = _begin_transition(turn, task, target, ranks)
    task.watch.begin(turn.at, _scale(task, target))
    _scale_speed(task, target)
    task.generation = Generation(task.generation + 1)
    task.layout, task.placement = target.layout, target.placement
    if target is task.target:
        task.granted, task.interim = target.layout, None
    task.ranks = dict(ranks)
    task.spares = parked_spares
    waiting = tuple(parked_spares.ranks) if parked_spares else ()
    task.next_spare = len(task.ranks) + len(waiting)
    task.resume = resume
    task.parking = None
    task.stopped_nodes = set()
    task.tokens_per_s = None
    task.committed_at = None
    task.reporter = None
    task.become(TaskPhase.STARTING)
    send_start(turn, task, (*task.ranks, *waiting))
    if task.spec.is_command:
        watch_command(turn, task)
    # What has never printed an iteration is not late with one.
    if not task.spec.is_command or task.iteration:
        limit_s = task.spec.start_limit_s or turn.policy.start_limit_s
        turn.set_timer(StartOverdue(task.spec.task, task.generation), limit_s)
    turn.set_timer(InspectionDue(task.spec.task, task.generation), turn.policy.look_interval_s)
    if waiting:
        turn.set_timer(SparesOverdue(task.spec.task, task.generation), turn.policy.prepare_limit_s)
    nodes = ", ".join(sorted({worker.node for worker in task.placement}))
    num_new = sum(rank.continues is None for rank in task.ranks.values())
    wait = f", {len(waiting)} wait(s) with their models" if waiting else ""
    turn.tell(
        "info",
        "start",
        task.spec.task,
        f"starts generation {task.generation} on {nodes} with {task.layout}:"
        f" {num_new} new process(es), {len(task.ranks) - num_new} go on{wait}",
        generation=task.generation,
        workers=task.layout.num_workers,
        num_new=num_new,
        num_waiting=len(waiting),
    )


def _begin_transition(
    turn: Turn, task: TaskState, target: Target, ranks: Mapping[int, RankState]
) -> Transition | None:
    """Return the transition that begins with the next generation; the first one follows none."""
    place, parking = task.place, task.parking
    if place is None:
        return None
    kind = kind_of(
        place.layout,
        target.layout,
        is_same_place=place.placement == target.placement,
        has_new_process=any(rank.continues is None for rank in ranks.values()),
    )
    if parking is None:
        return task.experience.begin(kind, ("stop", task.stop_s), turn.at, turn.policy.step_s)
    park_s = (turn.at if parking.parked_at is None else parking.parked_at) - parking.since
    return task.experience.begin(kind, ("park", park_s), turn.at, turn.policy.step_s)


def _scale(task: TaskState, target: Target) -> float | None:
    """Return how many times as long iterations take at ``target``; None if the model is divided anew.

    The replica with the most micro-batches decides.
    """
    old, new = task.layout, target.layout
    if old is None or (old.tp, old.pp) != (new.tp, new.pp):
        return None
    num = task.spec.num_micro_batches
    return math.ceil(num / new.dp) / math.ceil(num / old.dp)


def _scale_speed(task: TaskState, target: Target) -> None:
    """With other micro-batches per replica an iteration takes longer, or shorter."""
    layout = task.layout
    if layout is None or (layout.tp, layout.pp) != (target.layout.tp, target.layout.pp):
        task.mean_iteration_s = None
        task.redivided_after = task.iteration
    elif task.mean_iteration_s is not None:
        task.mean_iteration_s *= layout.dp / target.layout.dp


def send_start(turn: Turn, task: TaskState, numbers: Collection[int]) -> None:
    """Have these ranks of the present generation started, and these processes wait beside it."""
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
            _reserves_among(task, task.layout, numbers),
        )
    )


def _reserves_among(
    task: TaskState, layout: Layout, numbers: Collection[int]
) -> dict[int, ParkedSpare]:
    """Return those of ``numbers`` that were ranks of the generation before and wait now."""
    if task.spares is None:
        return {}
    stands_for = {part_of(layout, number): number for number in range(layout.num_workers)}
    return {
        number: ParkedSpare(rank.worker, rank.continues, stands_for[task.spares.parts[number]])
        for number, rank in task.waiting.items()
        if number in numbers and rank.continues is not None
    }


def stop(turn: Turn, task: TaskState, *, is_graceful: bool, intent: Intent, note: str) -> None:
    """End the task's ranks; what comes next is ``intent``. A kill overrides a graceful stop.

    Nothing happens to a task that has no ranks but for its intent.
    """
    task.intent = intent
    if task.can_regroup:
        task.become(TaskPhase.STOPPING, note)
        task.parking = None
        task.stopping_since = turn.at
    elif task.phase is not TaskPhase.STOPPING:
        _rest(task)
        return
    elif is_graceful or not task.is_stop_graceful:
        return
    task.is_stop_graceful = is_graceful
    task.stopped_nodes = set()
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
        turn.emit(
            StopRanks(turn.cause, task.spec.task, task.generation, reachable, task.is_stop_graceful)
        )


def finish_stop(turn: Turn, task: TaskState) -> None:
    """If the task is stopping and no rank is left, move on to what it is meant for."""
    if task.phase is not TaskPhase.STOPPING or task.living_ranks:
        return
    turn.emit(DropRendezvous(turn.cause, task.spec.task, task.generation))
    task.stop_s = turn.at - task.stopping_since
    task.become(TaskPhase.WAITING)
    _rest(task)


def _rest(task: TaskState) -> None:
    """Put a task without ranks where its intent says."""
    resting = {
        "run": TaskPhase.WAITING,
        "stop": TaskPhase.STOPPED,
        "hold": TaskPhase.HELD,
    }[task.intent]
    if task.phase is TaskPhase.FINISHED or task.phase is resting:
        return
    if task.phase is not TaskPhase.WAITING and resting is not TaskPhase.WAITING:
        task.become(TaskPhase.WAITING)
    task.become(resting)


def lose_rank(turn: Turn, task: TaskState, global_rank: int) -> None:
    """Note that a rank has no process any more, and finish what waited for that."""
    rank = task.ranks[global_rank]
    rank.is_alive = False
    rank.rss_bytes = None
    note_loss(task, rank.worker.node)
    finish_stop(turn, task)
    if task.can_regroup and all(
        r.done == "finished" and not r.is_alive for r in task.ranks.values()
    ):
        task.become(TaskPhase.FINISHED)
        task.target = task.parking = None
        turn.tell("good", "finished", task.spec.task, f"has finished {task.iteration} iterations")
