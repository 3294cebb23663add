"""How far tasks are: committed iterations, how fast, and with which loss.

An iteration is new once; after a restore from an older state it is run again, and its loss must be
the one that was recorded first. An iteration whose commit nobody could report any more (the
reporting rank died) is known from the result of its vote, which its peers hold.
"""

from typing import Final

from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import IterationCommitted, ProgressUnread
from nodeagent.protocol.regroup import VoteResult

LOSS_TOLERANCE: Final = 1e-4
"""Largest relative difference of a loss that was run again, also on other workers (float32)."""

_TOLERANCE_OF_OTHER_MODEL: Final = 1e-2
"""The same with another tp or pp, where masks of dropout are other ones, and sums in bfloat16."""


def take_vote(turn: Turn, task: TaskState, vote: VoteResult) -> None:
    """Take in that an iteration is committed by its vote, unless it was reported before."""
    if not task.progress.note_vote(vote.iteration):
        return
    _note_new(task, vote.iteration, vote.loss)
    turn.announce(
        "trace", "iteration", task.spec.task,
        f"iteration {vote.iteration}: loss {vote.loss:.6f}, by its vote",
        iteration=vote.iteration, loss=vote.loss, generation=task.generation,
        is_rerun=False, deviation=None, duration_s=None,
    )  # fmt: skip


def _note_new(task: TaskState, iteration: int, loss: float | None) -> None:
    task.progress.note_life(task.generation)
    task.progress.note_new(iteration, loss)
    task.faults.forget_cures()


def take_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    """Take in an iteration that the present generation has committed."""
    progress = task.progress
    is_known = progress.take_voted(commit.iteration)
    progress.note_life(task.generation)
    if not is_known:
        _note_commit(turn, task, commit)
    progress.note_commit(commit.iteration, turn.at)
    _measure_speed(task, commit)
    task.note_advance(turn.at, commit.global_rank, commit.iteration)
    if task.lifecycle.phase is TaskPhase.STARTING:
        task.lifecycle.begin_training()
        turn.announce("good", "running", task.spec.task, f"trains on {len(task.ranks)} workers")
        _finish_transition(turn, task)


def take_unread(turn: Turn, task: TaskState, unread: ProgressUnread) -> None:
    """Announce once that a command's lines look like iterations, and how to have them read."""
    if not task.progress.tell_unread():
        return
    turn.announce(
        "warning", "progress_unread", task.spec.task,
        f"its lines look like iterations, but no pattern reads them: {unread.line!r}."
        f" Add to its [task.command]: progress = '{unread.pattern}'",
        line=unread.line, pattern=unread.pattern,
    )  # fmt: skip


def _finish_transition(turn: Turn, task: TaskState) -> None:
    """The task trains again: announce what the transition took."""
    current = task.transitions.current
    if current is not None and task.spec.is_command:
        # A command reports neither when its ranks met nor when they had loaded: the first
        # iteration holds both.
        task.transitions.note_states(current.decided_at, form_s=0.0, state_s=0.0)
    transition = task.transitions.finish(turn.at)
    if transition is None:
        return
    took_s, predicted_s = transition.total_actual_s, transition.total_predicted_s
    steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in transition.actual_s.items())
    turn.announce(
        "info", "transition", task.spec.task,
        f"{transition.kind} in {took_s:.2f} s (predicted {predicted_s:.2f} s): {steps}",
        transition=transition.kind, generation=task.generation, took_s=took_s,
        predicted_s=predicted_s,
        **{f"{step.replace(' ', '_')}_s": seconds for step, seconds in transition.actual_s.items()},
    )  # fmt: skip


def _note_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    is_rerun = commit.iteration <= task.progress.iteration
    deviation = None
    if is_rerun:
        task.progress.count_rerun()
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
    progress.add_speed(commit.duration_s, rate)
