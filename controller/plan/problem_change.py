"""What-if on a problem file: applies a change to the problem. The planner then solves it.

Only the named tasks are faulted when workers are lost. The places of the lost workers are not
considered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.plan.problem_file import MAX_WORKERS, ProblemFile
from profiles.records import RecordError


@dataclass(frozen=True, slots=True)
class Change:
    """A supposed change of a problem.

    Attributes:
        num_lost: Number of workers lost.
        num_added: Number of workers added.
        faulted: Tasks that lost a worker.
        finished: Tasks that have finished.
        weights: New weights, by task.
        keeps_running: Whether it keeps running, by task.
    """

    num_lost: int = 0
    num_added: int = 0
    faulted: Sequence[str] = ()
    finished: Sequence[str] = ()
    weights: Sequence[tuple[str, float]] = ()
    keeps_running: Sequence[tuple[str, bool]] = ()


def apply_change(problem: ProblemFile, change: Change) -> ProblemFile:
    """Return the problem after the change.

    Raises:
        RecordError: The change names an unknown task, or the number of workers becomes less than 0
            or more than a problem can have.
    """
    names = [task.name for task in problem.tasks]
    marks = dict(change.keeps_running)
    weights = dict(change.weights)
    for name in (*change.faulted, *change.finished, *weights, *marks):
        if name not in names:
            raise RecordError(f"there is no task {name!r}; tasks: {', '.join(names) or 'none'}")
    workers = problem.workers - change.num_lost + change.num_added
    if change.num_lost > problem.workers:
        raise RecordError(f"--lose {change.num_lost}: there are only {problem.workers} workers")
    if workers > MAX_WORKERS:
        raise RecordError(
            f"--add {change.num_added}: makes {workers} workers; at most {MAX_WORKERS} are allowed"
        )
    tasks = [
        task.model_copy(
            update={
                "weight": weights.get(task.name, task.weight),
                "faulted": task.faulted or task.name in change.faulted,
                "keeps_running": marks.get(task.name, task.keeps_running),
            }
        )
        for task in problem.tasks
        if task.name not in change.finished
    ]
    return problem.model_copy(update={"workers": workers, "tasks": tasks})
