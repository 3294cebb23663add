"""One generation after another in the same processes: when a task parks, and how it continues.

Level-based, after every event. A task that does not train at its target is parked at the end of its
iteration. A parked task continues once all its ranks have reported their positions and its fault
has a name. ``controller.core.recovery.next_target`` says where, and
``controller.core.rules.regroup.next_generation`` how the iteration is finished.

A task stops with a checkpoint instead, and starts from it, if its next layout has another tp or pp,
or if some part of its state would be lost (``controller.core.lifecycle.start_stop``). So does a
task that can't recover in process: after a fault all its processes start anew, from disk.
"""

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace

from controller.core.incidents.cures import name_cause
from controller.core.incidents.evidence_intake import incident_of
from controller.core.incidents.resolution import note_resume
from controller.core.instructions import DropRendezvous
from controller.core.lifecycle.generation_start import begin_generation
from controller.core.lifecycle.obstacles import obstacle
from controller.core.lifecycle.parking import awaits_ranks, halt, has_doubtful_node
from controller.core.lifecycle.progress import take_vote
from controller.core.lifecycle.spares import is_prepared, ready_spares
from controller.core.lifecycle.start_stop import stop
from controller.core.recovery.next_target import (
    goal_of,
    is_same_model,
    is_without_hope,
    with_waiting_ranks,
)
from controller.core.recovery.processes import (
    continuing_rank,
    fit_ranks,
    leave_out,
    parts_left,
    processes_of,
    spares_of,
)
from controller.core.rules.placement import Placement
from controller.core.rules.regroup.copy_holders import copy_holders
from controller.core.rules.regroup.next_generation import (
    ResumeDecision,
    Source,
    decide,
    known_votes,
)
from controller.core.rules.regroup.parked import Parked
from controller.core.rules.regroup.replicas import parts_of
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from profiles.layout import Layout

_MAX_REUSES = 2
"""Recoveries in a row that may use partial results; after that an iteration begins afresh."""

_MAX_MEMORY_USES = 2
"""The same of in-memory checkpoints: one that led nowhere may have met with another fault only."""


def park_what_moves(turn: Turn) -> None:
    """Park every task that trains elsewhere than it is to be, once it can go there.

    One that holds workers which another task is to get does not wait for its own: each would wait
    for the other.
    """
    for task in turn.state.tasks.values():
        target = task.assignment.target
        if task.is_at(target):
            task.limits.forget_failed_copies()  # another plan has withdrawn what they were for
            continue
        if task.lifecycle.phase is not TaskPhase.RUNNING or target is None:
            continue
        if any(
            turn.state.nodes[n].contact.condition is not NodeCondition.HEALTHY for n in task.nodes
        ):
            continue
        needs_copies = not keeps_state(task, target, with_copies=False)
        is_blocked = bool(obstacle(turn, task, target))
        if is_blocked and not _is_in_the_way(turn, task, target):
            continue
        # A blocked task may have to continue with less than the target keeps.
        if needs_copies and (is_blocked or not keeps_state(task, target)):
            note = f"stops, to continue with {target.layout}"
            stop(turn, task, is_graceful=True, intent="run", note=note)
            continue
        staying = set(_continues(task, target, task.living_ranks).values())
        if is_blocked or is_prepared(turn, task, target, staying):
            note = f"parks, to continue with {target.layout}"
            halt(turn, task, at_boundary=True, completes_copies=needs_copies, note=note)


def continue_parked(turn: Turn) -> None:
    """Begin the next generation of every parked task that knows how."""
    for task in turn.state.tasks.values():
        if task.lifecycle.parking is None or awaits_ranks(turn, task):
            continue
        if has_doubtful_node(turn, task) or _awaits_node(turn, task):
            continue
        if task.assignment.target is None and turn.state.bursts.gathers_until is not None:
            continue  # its plan waits for further losses; anything sooner is one generation more
        task.lifecycle.parking.note_parked(turn.at)
        if not name_cause(turn, task) or task.lifecycle.parking is None:
            continue
        goal = goal_of(turn, task) or _goal_with_waiting(turn, task)
        if goal is not None:
            step = _step_to(turn, task, goal)
            if _loses_state(turn, task, step):
                _go_on_as_before(turn, task)
            else:
                _regroup(turn, task, step)
        elif is_without_hope(turn, task):
            stop(turn, task, is_graceful=False, intent="run", note="no whole replica is left")


def _goal_with_waiting(turn: Turn, task: TaskState) -> Target | None:
    """Return where the task can continue with spares, if a source is nearer than the disk."""
    goal = with_waiting_ranks(turn, task)
    if goal is None or goal.layout.num_workers < task.spec.min_workers:
        return None
    decision = _decide(task, goal, _all_continuing(turn, task, goal))
    if decision.resume.source == "disk":
        return None
    return task.assignment.settle_for(goal, task.spec.min_workers)


def _all_continuing(turn: Turn, task: TaskState, goal: Target) -> dict[int, int]:
    """Return the new global rank of each parked or waiting process that continues at ``goal``."""
    if task.limits.unsupported:
        return {}
    return _continues(task, goal, fit_ranks(turn, task)) | ready_spares(turn, task, goal)


def _awaits_node(turn: Turn, task: TaskState) -> bool:
    """Return whether living ranks are on a node that a new controller still looks for."""
    nodes = turn.state.nodes
    return any(
        nodes[rank.worker.node].contact.condition is NodeCondition.UNREACHABLE
        and rank.is_alive
        and turn.at < nodes[rank.worker.node].inquiry.judged_from
        for rank in task.ranks.values()
    )


def _loses_state(turn: Turn, task: TaskState, step: "_Step") -> bool:
    """Return whether iterations that all parked ranks have would be lost at ``goal``.

    That is so if copies did not get complete, or if the task's goal has changed since its halt.
    """
    place = task.place
    if place is None or step.goal == place or incident_of(turn, task, task.generation):
        return False
    as_before = _continues(task, place, fit_ranks(turn, task))
    if len(as_before) < place.layout.num_workers or obstacle(turn, task, place):
        return False
    here = _decide(task, place, as_before).resume
    there = step.decision.resume
    return here.source == "peer" and (there.source != "peer" or there.level < here.level)


def _go_on_as_before(turn: Turn, task: TaskState) -> None:
    assert task.place is not None
    turn.announce(
        "warning", "copies", task.spec.task,
        "move postponed: some of the state has no complete in-memory copy; training continues, and"
        " the move will use a checkpoint on disk",
        generation=task.generation,
    )  # fmt: skip
    _regroup(turn, task, _step_to(turn, task, task.place))
    task.transitions.learn_nothing()  # it has waited for copies, and is no reattempt
    task.limits.note_failed_copies(task.generation)


def keeps_state(task: TaskState, target: Target, *, with_copies: bool = True) -> bool:
    """Whether living ranks that stay have all of the state when the task parks for ``target``.

    Each (tp, pp), and each shard of a sharded one, in a rank's own state or, ``with_copies``, in
    the copy that it holds of another's. Ranks can complete their copies before they park.
    """
    layout = task.layout
    if layout is None or task.limits.unsupported or not is_same_model(layout, target.layout):
        return False
    continues = _continues(task, target, task.living_ranks)
    is_sharded = task.spec.is_sharded
    shards = _shards(layout, is_sharded=is_sharded)
    lost = set(shards) - {shards[number] for number in continues}
    has_copies = task.spec.makes_copies and task.limits.copies_failed_in != task.generation
    if not lost or not with_copies or not has_copies:
        return not lost
    holders = _copy_holders(layout, task.placement, is_sharded=is_sharded)
    # The first rank that has a shard is the one whose copies are made.
    owners: dict[tuple[int, int, int], int] = {}
    for number, shard in enumerate(shards):
        owners.setdefault(shard, number)
    return all(holders[owners[shard]] in continues for shard in lost)


@functools.lru_cache(maxsize=256)
def _shards(layout: Layout, *, is_sharded: bool) -> tuple[tuple[int, int, int], ...]:
    """Return the part of the state that each rank has."""
    return tuple(
        (layout.tp_rank(number), layout.pp_rank(number), layout.dp_rank(number) * is_sharded)
        for number in range(layout.num_workers)
    )


@functools.lru_cache(maxsize=64)
def _copy_holders(
    layout: Layout, placement: Placement, *, is_sharded: bool
) -> tuple[int | None, ...]:
    """The same after every event until the task parks; at thousands of ranks it takes a while."""
    return copy_holders(layout, placement, is_sharded=is_sharded)


def _is_in_the_way(turn: Turn, task: TaskState, target: Target) -> bool:
    given_up = task.occupied_workers - target.ranks.keys()
    return any(
        other is not task
        and other.assignment.target
        and not given_up.isdisjoint(other.assignment.target.ranks)
        for other in turn.state.tasks.values()
    )


# --- the step from one generation to the next ----------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """How a parked task can continue at a goal: which processes do, by new rank, and from what."""

    goal: Target
    continues: dict[int, int]
    decision: ResumeDecision


def _step_to(turn: Turn, task: TaskState, goal: Target) -> _Step:
    continues = _all_continuing(turn, task, goal)
    return _Step(goal, continues, _decide(task, goal, continues))


def _regroup(turn: Turn, task: TaskState, step: _Step) -> None:
    goal, continues, decision = step.goal, step.continues, step.decision
    note_resume(turn, task, decision)
    turn.announce(
        "info", "regroup", task.spec.task, decision.reason,
        generation=task.generation, rung=decision.rung, state_source=decision.resume.source,
        num_recomputed=decision.resume.num_recomputed, num_saved=decision.resume.num_saved,
    )  # fmt: skip
    _take_known_vote(turn, task, decision)
    if any(shard.is_copy for shard in decision.resume.shards):
        task.progress.note_memory_use()
    turn.emit(DropRendezvous(turn.cause, task.spec.task, task.generation))
    parked_spares = {} if task.limits.unsupported else parts_left(turn, task, goal, continues)
    leave_out(turn, task, goal, {*continues, *parked_spares})
    ranks = {number: RankState(worker) for number, worker in enumerate(goal.placement)}
    processes = processes_of(task)
    ranks |= {new: continuing_rank(task, processes[old], old) for old, new in continues.items()}
    begin_generation(turn, task, goal, ranks, decision.resume, spares_of(task, goal, parked_spares))


def _continues(task: TaskState, target: Target, ranks: Collection[int]) -> dict[int, int]:
    """Return the new global rank of each of these ranks that stays at its worker and (tp, pp).

    With another tp or pp no process's state can be reused; every process that stays continues.
    """
    old, new = task.layout, target.layout
    if old is None:
        return {}
    is_same = is_same_model(old, new)
    places, parts_before, parts_after = target.ranks, parts_of(old), parts_of(new)
    continues: dict[int, int] = {}
    for number in ranks:
        place = places.get(task.ranks[number].worker)
        if place is None:
            continue
        if not is_same or parts_before[number] == parts_after[place]:
            continues[number] = place
    return continues


def _parked(task: TaskState) -> Parked:
    assert task.layout is not None
    positions = {number: rank.position for number, rank in task.ranks.items() if rank.position}
    spec = task.spec
    return Parked(task.layout, spec.num_micro_batches, positions, task.resume, spec.is_sharded)


def _decide(task: TaskState, goal: Target, continues: dict[int, int]) -> ResumeDecision:
    if task.limits.unsupported:
        decision = decide(_parked(task), goal.layout, {}, excluded=("peer", "memory"))
        if task.spec.is_command:
            return replace(
                decision, reason="restart: a command task resumes from its own checkpoints"
            )
        names = ", ".join(each.partition(": ")[0] for each in task.limits.unsupported)
        return replace(decision, reason=f"restart from disk: not in process with {names}")
    excluded: tuple[Source, ...] = ()
    if task.progress.num_memory_uses >= _MAX_MEMORY_USES:
        excluded = ("memory",)
    return decide(
        _parked(task),
        goal.layout,
        continues,
        excluded=excluded,
        disk_iteration=task.progress.checkpoint_iteration,
        allows_reuse=task.faults.num_recoveries <= _MAX_REUSES,
    )


def _take_known_vote(turn: Turn, task: TaskState, decision: ResumeDecision) -> None:
    """What the next generation takes for committed is committed, also if its reporter is dead."""
    resume = decision.resume
    if resume.source != "peer":
        return
    vote = known_votes(_parked(task)).get(resume.level)
    if vote:
        take_vote(turn, task, vote)
