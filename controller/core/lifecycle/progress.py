"""How far tasks are: iterations that were committed, how fast, and with which loss.

An iteration is new once; after a restore from an older state it is run again, and its loss must be
the one that was recorded first. An iteration whose commit nobody could report any more (the
reporting rank died) is known from the result of its vote, which its peers hold.
"""

from typing import Final

from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import IterationCommitted
from nodeagent.protocol.regroup import VoteResult

LOSS_TOLERANCE: Final = 1e-4
"""Largest relative difference of a loss that was run again, also on other workers (float32)."""

_TOLERANCE_OF_OTHER_MODEL: Final = 1e-2
"""The same with another tp or pp, where masks of dropout are other ones, and sums in bfloat16."""

_SMOOTHING: Final = 0.3
"""Weight of the newest iteration in the moving averages."""


def take_vote(turn: Turn, task: TaskState, vote: VoteResult) -> None:
    """Take in that an iteration is committed by its vote, unless it was reported before."""
    task.state_iteration = max(task.state_iteration, vote.iteration)
    if vote.iteration <= task.iteration:
        return
    task.voted_iteration = vote.iteration
    _note_new(task, vote.iteration, vote.loss)
    turn.tell(
        "trace", "iteration", task.spec.task,
        f"iteration {vote.iteration}: loss {vote.loss:.6f}, by its vote",
        iteration=vote.iteration, loss=vote.loss, generation=task.generation,
        is_rerun=False, deviation=None, duration_s=None,
    )  # fmt: skip


def _note_new(task: TaskState, iteration: int, loss: float | None) -> None:
    task.iteration = iteration
    if loss is not None:
        task.losses[iteration] = loss
    task.forget_cures()


def is_reporter(task: TaskState, commit: IterationCommitted) -> bool:
    """Return whether the rank's iterations count: every rank of a command may print the same."""
    if task.reporter is None:
        task.reporter = commit.global_rank
    return task.reporter == commit.global_rank


def take_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    """Take in an iteration that the present generation has committed."""
    is_known = commit.iteration == task.voted_iteration
    task.voted_iteration = None
    if not is_known:
        _note_commit(turn, task, commit)
    task.state_iteration = commit.iteration
    task.num_memory_uses = 0
    _measure_speed(task, commit)
    task.committed_at = turn.at
    task.note_iteration(commit.global_rank, commit.iteration, turn.at)
    if task.phase is TaskPhase.STARTING:
        task.become(TaskPhase.RUNNING)
        turn.tell("good", "running", task.spec.task, f"trains on {len(task.ranks)} workers")
        finish_transition(turn, task)


def finish_transition(turn: Turn, task: TaskState) -> None:
    """The task trains again: learn what the transition took."""
    transition = task.transition
    if transition is None:
        return
    if task.spec.is_command:
        # Nobody tells when its ranks had met and loaded: all of it is in the first iteration.
        transition.join(transition.decided_at, form_s=0.0, state_s=0.0)
    transition.finish(turn.at)
    task.experience.learn(transition)
    took_s, predicted_s = transition.total_actual_s, transition.total_predicted_s
    steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in transition.actual_s.items())
    turn.tell(
        "info", "transition", task.spec.task,
        f"{transition.kind} in {took_s:.2f} s (predicted {predicted_s:.2f} s): {steps}",
        transition=transition.kind, generation=task.generation, took_s=took_s,
        predicted_s=predicted_s,
        **{f"{step.replace(' ', '_')}_s": seconds for step, seconds in transition.actual_s.items()},
    )  # fmt: skip


def _note_commit(turn: Turn, task: TaskState, commit: IterationCommitted) -> None:
    is_rerun = commit.iteration <= task.iteration
    deviation = None
    if is_rerun:
        task.num_rerun_iterations += 1
        # A command promises nothing about losses that are run again.
        recorded = None if task.spec.is_command else task.losses.get(commit.iteration)
        deviation = _deviation(commit.loss, recorded)
    else:
        _note_new(task, commit.iteration, commit.loss)
    turn.tell(
        "trace", "iteration", task.spec.task,
        f"iteration {commit.iteration}{' run again' if is_rerun else ''}{_loss_words(commit)}",
        iteration=commit.iteration, loss=commit.loss, generation=commit.generation,
        is_rerun=is_rerun, deviation=deviation, duration_s=commit.duration_s,
    )  # fmt: skip
    is_of_other_model = commit.iteration <= task.redivided_after
    tolerance = _TOLERANCE_OF_OTHER_MODEL if is_of_other_model else LOSS_TOLERANCE
    if deviation is not None and deviation > tolerance:
        turn.tell(
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
    if task.phase is TaskPhase.STARTING and task.mean_iteration_s is not None:
        return  # the first one after a regroup holds the recovery
    is_known = commit.num_tokens > 0 and commit.duration_s > 0
    rate = commit.num_tokens / commit.duration_s if is_known else None
    if task.mean_iteration_s is None:
        task.mean_iteration_s, task.tokens_per_s = commit.duration_s, rate
        return
    task.mean_iteration_s += _SMOOTHING * (commit.duration_s - task.mean_iteration_s)
    if rate is not None:
        known = rate if task.tokens_per_s is None else task.tokens_per_s
        task.tokens_per_s = known + _SMOOTHING * (rate - known)
