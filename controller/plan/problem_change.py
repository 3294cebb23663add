"""What-if: a problem with something changed. Pure; the answer is the planner's.

Workers that are lost fault the tasks that are named with them; who is not named has lost none. Nothing is
assumed of where the workers were.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.plan.problem_file import MAX_WORKERS, ProblemFile, ProblemTask
from profiles.records import RecordError


@dataclass(frozen=True, slots=True)
class Change:
    """What is different.

    Attributes:
        num_lost: Workers that are lost.
        num_added: Workers that join.
        faulted: Tasks that lost a worker.
        finished: Tasks that are over.
        weights: New weights, by task.
    """

    num_lost: int = 0
    num_added: int = 0
    faulted: Sequence[str] = ()
    finished: Sequence[str] = ()
    weights: Sequence[tuple[str, float]] = ()


def apply_change(problem: ProblemFile, change: Change) -> ProblemFile:
    """Return the problem after the change.

    Raises:
        RecordError: It names a task that there is not, takes more workers than there are, or
            makes more than a problem can have.
    """
    names = [task.name for task in problem.tasks]
    for name in (*change.faulted, *change.finished, *(name for name, _ in change.weights)):
        if name not in names:
            raise RecordError(f"there is no task {name!r}; there are {', '.join(names) or 'none'}")
    workers = problem.workers - change.num_lost + change.num_added
    if change.num_lost > problem.workers:
        raise RecordError(f"--lose {change.num_lost}: there are {problem.workers} workers")
    if workers > MAX_WORKERS:
        raise RecordError(f"--add {change.num_added}: makes more than {MAX_WORKERS} workers")
    weights = dict(change.weights)
    tasks = [
        _changed_task(task, weights.get(task.name, task.weight), is_hit=task.name in change.faulted)
        for task in problem.tasks
        if task.name not in change.finished
    ]
    return problem.model_copy(update={"workers": workers, "tasks": tasks})


def _changed_task(task: ProblemTask, weight: float, *, is_hit: bool) -> ProblemTask:
    return task.model_copy(update={"weight": weight, "faulted": task.faulted or is_hit})
