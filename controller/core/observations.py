"""What agents observe, taken into the state: progress, and traces of faults.

An observation of an older generation changes nothing: its ranks are being ended, or are gone.
"""

from typing import assert_never

from controller.core.events import Observed
from controller.core.faults import evidence_of
from controller.core.incidents import take_evidence
from controller.core.lifecycle import lose_rank
from controller.core.nodes import judge_nodes_of
from controller.core.phases import TaskPhase
from controller.core.state import TaskState
from controller.core.turn import Turn
from nodeagent.protocol.observations import (
    CheckpointLoaded,
    CheckpointSaved,
    IterationCommitted,
    LaunchFailed,
    RankDone,
    RankExited,
    RankRaised,
    RankStarted,
)

_SMOOTHING = 0.3
"""Weight of the newest iteration in the moving averages."""


def observe(turn: Turn, event: Observed) -> None:
    """Take one observation into the state."""
    observation = event.observation
    task = turn.state.tasks.get(observation.task)
    if task is None or observation.generation != task.generation:
        return
    rank = task.ranks.get(observation.global_rank)
    if rank is None:
        return
    match observation:
        case RankStarted():
            rank.pid = observation.pid
            turn.tell(
                "trace", "rank_started", task.spec.task,
                f"rank {observation.global_rank} runs on {event.node} as {observation.pid}",
                rank=observation.global_rank, pid=observation.pid, node=event.node,
                generation=observation.generation, is_warm=observation.warm,
                start_s=observation.start_s,
            )  # fmt: skip
        case RankExited():
            _take_exit(turn, task, event, observation)
        case RankRaised():
            _take_fault(turn, task, event, observation)
        case LaunchFailed():
            _take_fault(turn, task, event, observation)
            lose_rank(turn, task, observation.global_rank)
        case IterationCommitted():
            _take_commit(turn, task, observation)
        case CheckpointSaved():
            task.checkpoint_iteration = max(task.checkpoint_iteration, observation.iteration)
            turn.tell(
                "trace", "checkpoint", task.spec.task,
                f"checkpoint of iteration {observation.iteration} saved",
                iteration=observation.iteration, duration_s=observation.duration_s,
            )  # fmt: skip
        case CheckpointLoaded():
            _take_resume(turn, task, observation)
        case RankDone():
            rank.done = observation.reason
        case _:
            assert_never(observation)


def _take_exit(turn: Turn, task: TaskState, event: Observed, exited: RankExited) -> None:
    rank = task.ranks[exited.global_rank]
    if not rank.is_alive:
        return
    is_clean = rank.done is not None and exited.exit_code == 0
    if not exited.is_expected and not is_clean:
        _take_fault(turn, task, event, exited)
    lose_rank(turn, task, exited.global_rank)


def _take_fault(
    turn: Turn,
    task: TaskState,
    event: Observed,
    observation: RankExited | RankRaised | LaunchFailed,
) -> None:
    evidence = evidence_of(
        observation, node=event.node, at=turn.at, observed_at=min(event.observed_at, turn.at)
    )
    if task.is_active or task.phase is TaskPhase.STOPPING:
        take_evidence(turn, task, evidence)
        judge_nodes_of(turn, task)


def _take_resume(turn: Turn, task: TaskState, loaded: CheckpointLoaded) -> None:
    origin = f"the checkpoint of iteration {loaded.iteration}" if loaded.iteration else "the seed"
    turn.tell(
        "info", "resume", task.spec.task, f"generation {task.generation} begins from {origin}",
        iteration=loaded.iteration, generation=task.generation,
    )  # fmt: skip


def _take_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    is_rerun = commit.iteration <= task.iteration
    deviation = None
    if is_rerun:
        task.num_rerun_iterations += 1
        deviation = _deviation(commit.loss, task.losses.get(commit.iteration))
    else:
        task.iteration = commit.iteration
        task.losses[commit.iteration] = commit.loss
        task.num_recoveries = 0
    turn.tell(
        "trace", "iteration", task.spec.task,
        f"iteration {commit.iteration}{' run again' if is_rerun else ''}: loss {commit.loss:.6f}",
        iteration=commit.iteration, loss=commit.loss, generation=commit.generation,
        is_rerun=is_rerun, deviation=deviation, duration_s=commit.duration_s,
    )  # fmt: skip
    if deviation is not None and deviation > LOSS_TOLERANCE:
        turn.tell(
            "error", "loss_mismatch", task.spec.task,
            f"iteration {commit.iteration} run again gave another loss:"
            f" relative difference {deviation:.1e}",
            iteration=commit.iteration, deviation=deviation,
        )  # fmt: skip
    _measure_speed(task, commit)
    task.committed_at = turn.at
    rank = task.ranks[commit.global_rank]
    rank.iteration = max(rank.iteration, commit.iteration)
    if task.phase is TaskPhase.STARTING:
        task.become(TaskPhase.RUNNING)
        turn.tell("good", "running", task.spec.task, f"trains on {len(task.ranks)} workers")


def _deviation(loss: float, recorded: float | None) -> float | None:
    """Return the relative difference to the loss that was recorded first."""
    if recorded is None:
        return None
    return abs(loss - recorded) / max(abs(recorded), 1e-12)


def _measure_speed(task: TaskState, commit: IterationCommitted) -> None:
    rate = commit.num_tokens / commit.duration_s if commit.duration_s > 0 else None
    if task.mean_iteration_s is None:
        task.mean_iteration_s, task.tokens_per_s = commit.duration_s, rate
        return
    task.mean_iteration_s += _SMOOTHING * (commit.duration_s - task.mean_iteration_s)
    if rate is not None and task.tokens_per_s is not None:
        task.tokens_per_s += _SMOOTHING * (rate - task.tokens_per_s)


LOSS_TOLERANCE = 1e-4
"""Largest relative difference of a loss that was run again, also in another layout (float32)."""
