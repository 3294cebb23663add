"""Which drills a rank can stage that is a command, and how a refusal is worded. Pure."""

from profiles.drills.drill import Drill
from profiles.drills.drill_catalogue import DRILLS


def why_not_staged(drill: Drill, task: str, global_rank: int, *, is_attached: bool) -> str:
    """Return why a rank of ``task``, a command, can't stage ``drill``; empty if it can.

    Args:
        drill: A drill on ranks.
        task: The rank's task.
        global_rank: The rank.
        is_attached: Whether its program has attached, so that it receives drills at all.
    """
    if drill.needs == "process" or (drill.needs == "call" and is_attached):
        return ""
    if drill.needs == "call":
        return (
            f"rank {global_rank} of {task} is a command that has not attached:"
            f" {drill.kind} needs one that has"
        )
    return no_loop(drill, task)


def no_loop(drill: Drill, task: str) -> str:
    """Return why ``task``, a command, can't stage a drill of Unicron's own training loop."""
    others = [each.kind for each in DRILLS if each.target == "rank" and each.needs != "loop"]
    return (
        f"{task} is a command: {drill.kind} needs a training loop that Unicron runs; of the drills on"
        f" ranks it can have {', '.join(others)}"
    )
