"""What a regroup of a task can't use. The one writer of ``RegroupLimits``."""

from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import RankHalted, RankJoined


def take_unsupported(turn: Turn, task: TaskState, told: RankJoined | RankHalted) -> None:
    """Tell operators once what the task does not recover from in process, and remember it."""
    new = [each for each in told.unsupported if each not in task.limits.unsupported]
    if not new:
        return
    task.limits.unsupported = (*task.limits.unsupported, *new)
    turn.announce(
        "warning", "unsupported", task.spec.task,
        "cannot recover in process: after a fault all its processes restart from disk: "
        + "; ".join(new),
        unsupported="; ".join(new),
    )  # fmt: skip


def note_failed_copies(task: TaskState) -> None:
    """Copies of the state did not get complete: this generation does not try it again."""
    task.limits.copies_failed_in = task.generation


def forget_failed_copies(task: TaskState) -> None:
    """The task is where it is to be: another plan may need copies again."""
    task.limits.copies_failed_in = None
