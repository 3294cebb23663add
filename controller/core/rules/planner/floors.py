"""Floors: tasks that keep running while there is room for their smallest size.

By the paper's rule every task may be stopped. A task with ``keeps_running`` may be stopped only if
it has no room. The tasks with this mark are looked at from the largest weight to the smallest. Of
equal weights a task that runs comes before one that does not, then the first name. A task is *kept*
if its smallest size fits beside the smallest sizes of the tasks kept before it. A kept task can't
have size 0, and the planner finds the best of the divisions that are left.

A task with the mark that is not kept is an ordinary task: it may use workers that are left over.

Which tasks are kept does not depend on faults, so plans for many cases can share it. Whether the
ranks have places on nodes is looked at in ``controller.core.planning.placed_division``.
"""

from collections.abc import Callable, Collection, Sequence

from controller.core.rules.planner.cost import PlanTask, Quantum
from controller.core.rules.planner.options import Options
from nodeagent.protocol.ids import TaskId


def kept_tasks(tasks: Sequence[PlanTask], num_workers: int) -> frozenset[TaskId]:
    """Return the tasks that may not be stopped, if only the number of workers matters.

    Args:
        tasks: All tasks, in any order.
        num_workers: Workers that may be divided, 0 or more.

    Returns:
        Names of tasks with ``keeps_running`` whose smallest sizes fit together.
    """

    def has_room(kept: Sequence[PlanTask]) -> bool:
        sizes = [task.smallest_size for task in kept]
        return None not in sizes and sum(filter(None, sizes)) <= num_workers

    return frozenset(task.name for task in heaviest_with_room(tasks, has_room))


def heaviest_with_room(
    tasks: Sequence[PlanTask], has_room: Callable[[Sequence[PlanTask]], bool]
) -> list[PlanTask]:
    """Return the tasks that are kept, the heaviest first.

    Args:
        tasks: All tasks, in any order.
        has_room: Whether the smallest sizes of these tasks fit together. Where it holds for some
            tasks it must hold for any part of them.
    """
    marked = [task for task in tasks if task.keeps_running]
    marked.sort(key=lambda task: (-task.weight, not task.workers, task.name))
    # Mostly all have room, and one look is enough.
    if not marked or has_room(marked):
        return marked
    kept: list[PlanTask] = []
    for task in marked:
        if has_room([*kept, task]):
            kept.append(task)
    return kept


def options_of(
    tasks: Sequence[PlanTask],
    quantum: Quantum,
    num_workers: int,
    running_s: float,
    kept: Collection[TaskId],
) -> list[Options]:
    """Return the options of each task, in the order of ``tasks``.

    Args:
        tasks: The tasks.
        quantum: The unit of the gains.
        num_workers: No option is larger.
        running_s: D_running, seconds until the next expected fault.
        kept: Tasks without the option 0. Such a task has no option if its smallest size is larger
            than ``num_workers``.
    """
    options = [quantum.options(task, num_workers, running_s) for task in tasks]
    if not kept:
        return options
    return [
        each.without(0) if task.name in kept else each
        for task, each in zip(tasks, options, strict=True)
    ]
