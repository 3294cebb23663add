"""Says why a task has no workers, and what would make room for it."""

from collections.abc import Mapping

from controller.core.rules.planner.solver import Division
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import TaskId


def explain_queued(turn: Turn, division: Division) -> None:
    """Note at each task without ranks that a division leaves out why it does."""
    for name, size in division.assignments.items():
        task = turn.state.tasks[name]
        if not size and task.lifecycle.phase is TaskPhase.STOPPED:
            reason = why_queued(task, division.assignments, division.problem.num_workers)
            task.lifecycle.explain(reason)


def why_queued(task: TaskState, sizes: Mapping[TaskId, int], num_workers: int) -> str:
    """Return why a task has no workers.

    Args:
        task: The task.
        sizes: The workers of each task.
        num_workers: Workers that can be used.
    """
    needed, free = task.spec.smallest_size, num_workers - sum(sizes.values())
    if free >= needed:
        return (
            f"queued: it needs {needed} workers and {free} are free, but they do not fit together, or"
            " the change would cost more than it gains"
        )
    holders = ", ".join(f"{name} ({size})" for name, size in sizes.items() if size)
    return (
        f"queued: it needs {needed} workers and {free} are free; {needed - free} more make room, of"
        f" further nodes{f' or of {holders}' if holders else ''}"
    )
