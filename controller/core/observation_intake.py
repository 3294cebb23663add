"""What agents observe, taken into the state: progress, and traces of faults.

An observation of an older generation changes nothing but this: the worker of a process that has
ended is free.
"""

from typing import Final, assert_never

from controller.core.events import Observed
from controller.core.incidents.cures import take_hardware
from controller.core.incidents.evidence_intake import incident_of, take_evidence, take_late
from controller.core.incidents.node_findings import take_finding
from controller.core.incidents.resolution import note_source
from controller.core.lifecycle.progress import (
    take_commit,
    take_unread,
)
from controller.core.lifecycle.spares import observe_spare
from controller.core.lifecycle.start_stop import lose_rank
from controller.core.measuring.measured_ranks import observe_run
from controller.core.monitoring.divergence import note_figures, note_loss_scale
from controller.core.monitoring.stalls import note_commit, note_joined, take_look
from controller.core.nodes.contact import judge_nodes_of
from controller.core.rules.evidence import Evidence, evidence_of
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.observations import (
    CheckpointMissed,
    CheckpointSaved,
    IterationCommitted,
    LaunchFailed,
    ProgressUnread,
    RankDone,
    RankExited,
    RankHalted,
    RankInspected,
    RankJoined,
    RankObservation,
    RankRaised,
    RankStarted,
)
from nodeagent.protocol.regroup import StateSource
from profiles.faults.status import Severity

SOURCES_BY_DISTANCE: Final[tuple[StateSource, ...]] = ("own", "peer", "memory", "disk", "seed")


def observe(turn: Turn, event: Observed) -> None:
    """Take one observation into the state."""
    observation = event.observation
    if isinstance(observation, NodeFinding):
        take_finding(turn, event, observation)
        return
    task = turn.state.tasks.get(observation.task)
    if task is None:
        observe_run(turn, event, observation)
        return
    if observation.generation != task.generation:
        if isinstance(observation, RankExited | LaunchFailed):
            task.leaving.note_end(observation.generation, observation.global_rank)
        if isinstance(observation, RankRaised | RankExited) and not _is_expected(observation):
            evidence = _evidence(turn, event, observation)
            take_late(turn, task, observation.generation, evidence)
    elif observation.global_rank in task.ranks:
        _observe_rank(turn, task, event, observation)
    else:
        observe_spare(turn, task, observation)


def _is_expected(observation: RankRaised | RankExited) -> bool:
    return isinstance(observation, RankExited) and observation.is_expected


def _observe_rank(
    turn: Turn, task: TaskState, event: Observed, observation: RankObservation
) -> None:
    rank = task.ranks[observation.global_rank]
    if isinstance(observation, RankHalted):
        turn.note_repetition(is_repetition=_is_known(task, observation))
    rank.observe(observation)
    match observation:
        case RankHalted() | RankJoined():
            # First, since they are the most: one of each rank, in every transition.
            _take_step(turn, task, observation)
        case RankStarted():
            turn.announce(
                "trace", "rank_started", task.spec.task,
                f"rank {observation.global_rank} runs on {event.node} as {observation.pid}",
                rank=observation.global_rank, pid=observation.pid, node=event.node,
                generation=observation.generation, is_warm=observation.warm,
                start_s=observation.start_s,
            )  # fmt: skip
        case RankExited():
            _take_exit(turn, task, event, observation)
        case RankRaised():
            _take_raised(turn, task, event, observation)
        case LaunchFailed():
            rank.note_broken()
            _take_fault(turn, task, _evidence(turn, event, observation))
            lose_rank(turn, task, observation.global_rank)
        case IterationCommitted():
            if not task.progress.is_reported_by(observation.global_rank):
                return
            if observation.iteration > task.progress.iteration:
                note_figures(turn, task, observation, event.observed_at)
            note_loss_scale(turn, task, observation)
            take_commit(turn, task, observation)
            note_commit(turn, task, observation, event.observed_at)
        case ProgressUnread():
            take_unread(turn, task, observation)
        case CheckpointSaved() | CheckpointMissed():
            _take_checkpoint(turn, task, observation)
        case RankDone():
            task.watch.note_done_rank(turn.at)
        case RankInspected():
            take_look(turn, task, observation)
        case _:
            assert_never(observation)


def _take_step(turn: Turn, task: TaskState, step: RankHalted | RankJoined) -> None:
    if step.unsupported:
        _take_unsupported(turn, task, step)
    if isinstance(step, RankJoined):
        _take_joined(turn, task)
    else:
        task.lifecycle.note_answer(task.ranks[step.global_rank].worker.node)


def _take_unsupported(turn: Turn, task: TaskState, step: RankHalted | RankJoined) -> None:
    """Announce once which settings rule out recovery in process."""
    if new := "; ".join(task.limits.add_unsupported(step.unsupported)):
        turn.announce(
            "warning", "unsupported", task.spec.task,
            f"cannot recover in process: after a fault all its processes restart from disk: {new}",
            unsupported=new,
        )  # fmt: skip


def _is_known(task: TaskState, halted: RankHalted) -> bool:
    """Return whether a parked rank's report changes nothing."""
    rank, parking = task.ranks[halted.global_rank], task.lifecycle.parking
    return (
        rank.position is not None
        and rank.is_seen
        and rank.position == halted.position
        and (parking is None or rank.worker.node in parking.answered_nodes)
        and not set(halted.unsupported) - set(task.limits.unsupported)
    )


def _take_checkpoint(
    turn: Turn, task: TaskState, saved: CheckpointSaved | CheckpointMissed
) -> None:
    if isinstance(saved, CheckpointMissed):
        what = f"no checkpoint of iteration {saved.iteration}"
        if saved.tier == "memory":
            what = (
                f"no in-memory checkpoints from iteration {saved.iteration} on, until the next"
                f" generation; rank {saved.global_rank}"
            )
        turn.announce(
            "warning", "checkpoint_missed", task.spec.task, f"{what}: {saved.reason}",
            iteration=saved.iteration,
        )  # fmt: skip
        return
    task.progress.note_checkpoint(saved)
    turn.announce(
        "trace", "checkpoint", task.spec.task,
        f"checkpoint of iteration {saved.iteration} saved",
        iteration=saved.iteration, duration_s=saved.duration_s,
    )  # fmt: skip


def _take_raised(turn: Turn, task: TaskState, event: Observed, raised: RankRaised) -> None:
    rank = task.ranks[raised.global_rank]
    if raised.position is not None:
        task.lifecycle.note_answer(rank.worker.node)
    evidence = _evidence(turn, event, raised)
    is_own = evidence.is_local and evidence.status.severity != Severity.SEV3
    if raised.position is None or is_own:
        rank.note_broken()
    else:
        rank.note_sound()
    _take_fault(turn, task, evidence)


def _take_exit(turn: Turn, task: TaskState, event: Observed, exited: RankExited) -> None:
    rank = task.ranks[exited.global_rank]
    if not rank.is_alive:
        return
    # One that was done and broken was left over, and ended for that.
    is_clean = rank.done is not None and (exited.exit_code == 0 or rank.is_broken)
    if not exited.is_expected and not is_clean:
        rank.note_broken()
        _take_fault(turn, task, _evidence(turn, event, exited))
    lose_rank(turn, task, exited.global_rank)


def _evidence(
    turn: Turn, event: Observed, observation: RankExited | RankRaised | LaunchFailed
) -> Evidence:
    return evidence_of(
        observation,
        node=event.node,
        at=turn.at,
        observed_at=min(event.observed_at, turn.at),
        is_command=turn.state.tasks[observation.task].spec.is_command,
    )


def _take_fault(turn: Turn, task: TaskState, evidence: Evidence) -> None:
    if task.can_regroup or task.lifecycle.phase is TaskPhase.STOPPING:
        take_evidence(turn, task, evidence)
        incident = incident_of(turn, task, task.generation)
        if incident and evidence.status.facts.names_device:
            take_hardware(turn, incident, evidence)
        judge_nodes_of(turn, task)


def _take_joined(turn: Turn, task: TaskState) -> None:
    """Once all ranks have their state, say where it came from and what has to be run again."""
    if task.awaits_states:
        return
    joined = [rank.joined for rank in task.ranks.values() if rank.joined]
    source = max((each.source for each in joined), key=SOURCES_BY_DISTANCE.index)
    iteration = min(each.iteration for each in joined)
    form_s = max(each.form_s for each in joined)
    state_s = max(each.state_s for each in joined)
    task.transitions.note_states(turn.at, form_s=form_s, state_s=state_s)
    num_lost = task.progress.resume_from(iteration, source)
    note_source(turn, task, source, num_lost=num_lost)
    note_joined(turn, task)
    lost = f"; iterations run again: {num_lost}" if num_lost else ""
    turn.announce(
        "warning" if num_lost else "info", "resume", task.spec.task,
        f"generation {task.generation} continues after iteration {iteration}; state from {source}{lost}",
        iteration=iteration, generation=task.generation, state_source=source,
        form_s=form_s, state_s=state_s,
    )  # fmt: skip
