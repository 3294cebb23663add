"""Which drills a rank can stage that is a command, and how a refusal is worded. Pure."""

from profiles.drills.catalogue import DRILLS
from profiles.drills.drill import Drill


def can_stage(drill: Drill, *, is_attached: bool) -> bool:
    """Return whether a command can stage ``drill``, which is on a rank.

    Args:
        drill: The drill.
        is_attached: Whether the command has attached, so that it hears of drills at all.
    """
    return drill.needs == "process" or (drill.needs == "call" and is_attached)


def no_loop(drill: Drill, task: str) -> str:
    """Return why ``task``, a command, can't stage a drill of Unicron's own training loop."""
    others = [each.kind for each in DRILLS if each.target == "rank" and each.needs != "loop"]
    return (
        f"{task} is a command: {drill.kind} needs a training loop that Unicron runs; of the drills on"
        f" ranks it can have {', '.join(others)}"
    )
