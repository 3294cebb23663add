"""The division of the workers over all tasks: the paper's dynamic programme, exact.

    maximise  sum_i G(t_i, x_i)   subject to   sum_i x_i <= n'
    S(i, j) = max over k <= j of  S(i-1, j-k) + G(t_i, k),   S(0, j) = 0

S(i, j) is the best that the first i tasks can do with j workers; only the listed sizes of a task
are tried for k, so the cost is O(m n' s) for m tasks with s sizes each, at most O(m n'^2).

Equal sums must be equal to the last bit, or the order of evaluation would choose among ties. So
F x D_running and F x D_transition are rounded, separately, to multiples of one power of two that is
small enough not to matter (2^-50 of the largest sum) and summed as integers. Ties go to the
division that changes sizes least (smallest sum of |x' - x|), then to the larger size for the task
whose name sorts first. To get the last rule for free the tasks are taken in reverse order of name:
the first name is then decided last, with everything after it known.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.cost import PlanTask, gain
from nodeagent.protocol.ids import TaskId

_BITS: Final = 50

_Score = tuple[int, int]
"""Gain in quanta, and minus the sum of the changes in size: larger is better."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A division of the workers, and why it is this one.

    Attributes:
        assignments: Workers by task, every task included.
        objective: Sum of G, weighted FLOPs until the next failure, in float.
        waf_before: Sum of F at the sizes before the event.
        waf_after: Sum of F at ``assignments``.
        why: The reason, for operators.
    """

    assignments: Mapping[TaskId, int]
    objective: float
    waf_before: float
    waf_after: float
    why: str


def solve(tasks: Sequence[PlanTask], *, num_workers: int, running_s: float) -> Decision:
    """Return the division of ``num_workers`` with the largest sum of G.

    Args:
        tasks: Tasks with distinct names.
        num_workers: n', workers available after the event; may be fewer than run now, or 0.
        running_s: D_running, expected seconds until the next failure.

    Raises:
        ValueError: ``num_workers`` or ``running_s`` is negative.
    """
    if num_workers < 0 or running_s < 0:
        raise ValueError(
            f"num_workers {num_workers} and running_s {running_s} must not be negative"
        )
    ordered = sorted(tasks, key=lambda task: task.name)
    scores = _score_all(ordered, num_workers, running_s)
    best = _best_by_suffix(scores, num_workers)
    sizes = _trace(scores, best, num_workers)
    assignments = {task.name: size for task, size in zip(ordered, sizes, strict=True)}
    return Decision(
        assignments=assignments,
        objective=sum(gain(task, assignments[task.name], running_s) for task in ordered),
        waf_before=sum(task.waf(task.workers) for task in ordered),
        waf_after=sum(task.waf(assignments[task.name]) for task in ordered),
        why=_explain(ordered, assignments, num_workers),
    )


def _score_all(
    tasks: Sequence[PlanTask], num_workers: int, running_s: float
) -> list[dict[int, _Score]]:
    """Score every usable size of every task, in quanta of one power of two."""
    largest = sum(
        max(
            (task.waf(x) * max(running_s, task.transition_s) for x in (*task.table.sizes,)),
            default=0.0,
        )
        for task in tasks
    )
    quantum = math.ldexp(1.0, math.frexp(largest)[1] - _BITS) if largest > 0 else 1.0
    return [
        {
            size: (
                round(task.waf(size) * running_s / quantum)
                - task.pays(size) * round(task.waf(task.workers) * task.transition_s / quantum),
                -abs(size - task.workers),
            )
            for size in task.sizes(num_workers)
        }
        for task in tasks
    ]


def _best_by_suffix(scores: Sequence[Mapping[int, _Score]], num_workers: int) -> list[list[_Score]]:
    """Return best[i][j]: the best score of tasks i, i+1, ... with j workers."""
    best: list[list[_Score]] = [[(0, 0)] * (num_workers + 1)]
    for options in reversed(scores):
        rest = best[0]
        best.insert(
            0,
            [
                max(_sum(score, rest[j - size]) for size, score in options.items() if size <= j)
                for j in range(num_workers + 1)
            ],
        )
    return best


def _trace(
    scores: Sequence[Mapping[int, _Score]], best: Sequence[Sequence[_Score]], num_workers: int
) -> list[int]:
    """Read the sizes off the tables: for each task in turn the largest that attains the best."""
    sizes, left = [], num_workers
    for i, options in enumerate(scores):
        size = max(
            size
            for size, score in options.items()
            if size <= left and _sum(score, best[i + 1][left - size]) == best[i][left]
        )
        sizes.append(size)
        left -= size
    return sizes


def _sum(a: _Score, b: _Score) -> _Score:
    return a[0] + b[0], a[1] + b[1]


def _explain(tasks: Sequence[PlanTask], assignments: Mapping[TaskId, int], num_workers: int) -> str:
    parts = [_explain_task(task, assignments[task.name]) for task in tasks]
    before = sum(task.waf(task.workers) for task in tasks)
    after = sum(task.waf(assignments[task.name]) for task in tasks)
    share = f" ({after / before:.0%} of before)" if before else ""
    return (
        f"{', '.join(parts)}: the most weighted FLOP/s that {num_workers} workers give,"
        f" {after:.3g}{share}"
    )


def _explain_task(task: PlanTask, size: int) -> str:
    if size == task.workers:
        return f"{task.name} keeps {size}"
    verb = "stops" if size == 0 else "shrinks" if size < task.workers else "grows"
    return f"{task.name} {verb} {task.workers} -> {size}"
