"""How far tasks are: committed iterations, how fast, and with which loss.

The one writer of ``RunProgress``.

An iteration is new once; after a restore from an older state it is run again, and its loss must be
the one that was recorded first. An iteration whose commit nobody could report any more (the
reporting rank died) is known from the result of its vote, which its peers hold.
"""

from typing import Final

from controller.core.lifecycle.fault_history import forget_cures
from controller.core.lifecycle.phase_changes import begin_training
from controller.core.lifecycle.rank_records import note_iteration
from controller.core.lifecycle.transition_times import finish_transition
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import CheckpointSaved, IterationCommitted, ProgressUnread
from nodeagent.protocol.regroup import StateSource, VoteResult

LOSS_TOLERANCE: Final = 1e-4
"""Largest relative difference of a loss that was run again, also on other workers (float32)."""

_TOLERANCE_OF_OTHER_MODEL: Final = 1e-2
"""The same with another tp or pp, where masks of dropout are other ones, and sums in bfloat16."""

_SMOOTHING: Final = 0.3
"""Weight of the newest iteration in the moving averages."""


def take_vote(turn: Turn, task: TaskState, vote: VoteResult) -> None:
    """Take in that an iteration is committed by its vote, unless it was reported before."""
    task.progress.state_iteration = max(task.progress.state_iteration, vote.iteration)
    if vote.iteration <= task.progress.iteration:
        return
    task.progress.voted_iteration = vote.iteration
    _note_new(task, vote.iteration, vote.loss)
    turn.announce(
        "trace", "iteration", task.spec.task,
        f"iteration {vote.iteration}: loss {vote.loss:.6f}, by its vote",
        iteration=vote.iteration, loss=vote.loss, generation=task.generation,
        is_rerun=False, deviation=None, duration_s=None,
    )  # fmt: skip


def note_life(task: TaskState) -> None:
    """The present generation trains, as far as its program shows."""
    task.progress.trained_in = task.generation


def _note_new(task: TaskState, iteration: int, loss: float | None) -> None:
    note_life(task)
    task.progress.iteration = iteration
    if loss is not None:
        task.progress.losses[iteration] = loss
    forget_cures(task)


def is_reporter(task: TaskState, commit: IterationCommitted) -> bool:
    """Return whether the rank's iterations count: every rank of a command may print the same."""
    if task.progress.reporter is None:
        task.progress.reporter = commit.global_rank
    return task.progress.reporter == commit.global_rank


def take_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    """Take in an iteration that the present generation has committed."""
    progress = task.progress
    is_known = commit.iteration == progress.voted_iteration
    progress.voted_iteration = None
    note_life(task)
    if not is_known:
        _note_commit(turn, task, commit)
    progress.state_iteration = commit.iteration
    progress.num_memory_uses = 0
    _measure_speed(task, commit)
    progress.committed_at = turn.at
    note_advance(turn, task, commit.iteration)
    note_iteration(task, commit)
    if task.lifecycle.phase is TaskPhase.STARTING:
        begin_training(task)
        turn.announce("good", "running", task.spec.task, f"trains on {len(task.ranks)} workers")
        finish_transition(turn, task)


def take_unread(turn: Turn, task: TaskState, unread: ProgressUnread) -> None:
    """Announce once that a command's lines look like iterations, and how to have them read."""
    progress = task.progress
    if progress.is_unread_told or progress.iteration > 0:
        return
    progress.is_unread_told = True
    turn.announce(
        "warning", "progress_unread", task.spec.task,
        f"its lines look like iterations, but no pattern reads them: {unread.line!r}."
        f" Add to its [task.command]: progress = '{unread.pattern}'",
        line=unread.line, pattern=unread.pattern,
    )  # fmt: skip


def begin_progress(task: TaskState, target: Target) -> None:
    """A generation begins at ``target``: with more replicas an iteration takes less time."""
    layout, progress = task.layout, task.progress
    progress.tokens_per_s = progress.committed_at = progress.reporter = None
    if layout is None or (layout.tp, layout.pp) != (target.layout.tp, target.layout.pp):
        progress.mean_iteration_s = None
        progress.redivided_after = progress.iteration
    elif progress.mean_iteration_s is not None:
        progress.mean_iteration_s *= layout.dp / target.layout.dp


def note_advance(turn: Turn, task: TaskState, iteration: int) -> None:
    """A rank has finished ``iteration``: the task has advanced if no other rank had."""
    if iteration > task.newest_iteration:
        task.progress.advanced_at = turn.at


def note_checkpoint(task: TaskState, saved: CheckpointSaved) -> None:
    """A checkpoint is complete on disk."""
    progress = task.progress
    progress.checkpoint_iteration = max(progress.checkpoint_iteration, saved.iteration)
    progress.checkpoint_s = max(progress.checkpoint_s, saved.duration_s)


def note_memory_use(task: TaskState) -> None:
    """A generation takes state from in-memory checkpoints."""
    task.progress.num_memory_uses += 1


def resume_from(task: TaskState, iteration: int, source: StateSource) -> int:
    """All ranks have the state of ``iteration``; return how many iterations are run again."""
    progress = task.progress
    num_lost = max(0, progress.state_iteration - iteration)
    progress.state_iteration = iteration
    if source in {"disk", "seed"}:
        # Newer checkpoints were damaged, or did not hold what they promised.
        progress.checkpoint_iteration = iteration
    return num_lost


def _note_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    is_rerun = commit.iteration <= task.progress.iteration
    deviation = None
    if is_rerun:
        task.progress.num_rerun_iterations += 1
        # A command promises nothing about losses that are run again.
        recorded = None if task.spec.is_command else task.progress.losses.get(commit.iteration)
        deviation = _deviation(commit.loss, recorded)
    else:
        _note_new(task, commit.iteration, commit.loss)
    turn.announce(
        "trace", "iteration", task.spec.task,
        f"iteration {commit.iteration}{' run again' if is_rerun else ''}{_loss_words(commit)}",
        iteration=commit.iteration, loss=commit.loss, generation=commit.generation,
        is_rerun=is_rerun, deviation=deviation, duration_s=commit.duration_s,
    )  # fmt: skip
    is_of_other_model = commit.iteration <= task.progress.redivided_after
    tolerance = _TOLERANCE_OF_OTHER_MODEL if is_of_other_model else LOSS_TOLERANCE
    if deviation is not None and deviation > tolerance:
        turn.announce(
            "error", "loss_mismatch", task.spec.task,
            f"iteration {commit.iteration} run again gave another loss:"
            f" relative difference {deviation:.1e}",
            iteration=commit.iteration, deviation=deviation,
        )  # fmt: skip


def _loss_words(commit: IterationCommitted) -> str:
    return "" if commit.loss is None else f": loss {commit.loss:.6f}"


def _deviation(loss: float | None, recorded: float | None) -> float | None:
    """Return the relative difference to the loss that was recorded first."""
    if loss is None or recorded is None:
        return None
    return abs(loss - recorded) / max(abs(recorded), 1e-12)


def _measure_speed(task: TaskState, commit: IterationCommitted) -> None:
    progress = task.progress
    if task.lifecycle.phase is TaskPhase.STARTING and progress.mean_iteration_s is not None:
        return  # the first one after a regroup holds the recovery
    is_known = commit.num_tokens > 0 and commit.duration_s > 0
    rate = commit.num_tokens / commit.duration_s if is_known else None
    if progress.mean_iteration_s is None:
        progress.mean_iteration_s, progress.tokens_per_s = commit.duration_s, rate
        return
    progress.mean_iteration_s += _SMOOTHING * (commit.duration_s - progress.mean_iteration_s)
    if rate is not None:
        known = rate if progress.tokens_per_s is None else progress.tokens_per_s
        progress.tokens_per_s = known + _SMOOTHING * (rate - known)
