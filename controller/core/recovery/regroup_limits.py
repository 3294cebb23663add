"""What a regroup of a task can't use. The one writer of ``RegroupLimits``."""

from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import RankHalted, RankJoined


def take_unsupported(
    turn: Turn, task: TaskState, joined_or_halted: RankJoined | RankHalted
) -> None:
    """Announce once which settings rule out recovery in process, and remember them."""
    known = task.limits.unsupported
    new = [each for each in joined_or_halted.unsupported if each not in known]
    if not new:
        return
    task.limits.unsupported = (*known, *new)
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
