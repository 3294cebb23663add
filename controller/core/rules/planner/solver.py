"""The division of the workers over all tasks: the paper's dynamic program, exact.

    maximise  sum_i G(t_i, x_i)   subject to   sum_i x_i <= n'
    S(i, j) = max over k <= j of { S(i-1, j-k) + G(t_i, k) },   S(0, j) = 0

S(i, j) is the largest gain of i tasks with j workers (Unicron, arXiv 2401.00134, section 5). The
recurrence is exact because the tasks share nothing but the number of workers. G need not be concave
or monotone.

Gains are compared in whole quanta (``controller.core.rules.planner.cost``). Ties go to the division
with the smallest sum of |x' - x|. Further ties go to the larger size for the task with the first
name. ``controller.core.rules.planner.search`` finds the best division without filling all of S.
Tasks that keep running can't have size 0 (``controller.core.rules.planner.floors``).

``controller.core.rules.planner.explanation`` compares the division with others.
``controller.core.rules.placement`` places the ranks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.planner.cost import PlanTask, Problem, Quantum, gain
from controller.core.rules.planner.floors import kept_tasks, options_of
from controller.core.rules.planner.search import best_division
from nodeagent.protocol.ids import TaskId


@dataclass(frozen=True, slots=True)
class Division:
    """A division of the workers, and its worth.

    Attributes:
        problem: The planner's input.
        assignments: Workers by task, every task included, sorted by name.
        objective: Sum of G, weighted FLOP until the next expected fault, computed in float.
        waf_before: Sum of F at the sizes before the event, weighted FLOP/s.
        waf_after: Sum of F at ``assignments``, weighted FLOP/s.
        why: The changes in one sentence, for operators.
    """

    problem: Problem
    assignments: Mapping[TaskId, int]
    objective: float
    waf_before: float
    waf_after: float
    why: str


def solve(tasks: Sequence[PlanTask], *, num_workers: int, running_s: float) -> Division:
    """Return the division of ``num_workers`` with the largest sum of G.

    Equal inputs give equal divisions, whatever the order of ``tasks``. Workers may stay idle.

    Args:
        tasks: Tasks with distinct names; an empty sequence is allowed.
        num_workers: n', workers available after the event. 0 stops every task, also one that keeps
            running. Usually this is fewer than run now.
        running_s: D_running, seconds until the next expected fault. With a short horizon a
            transition seldom pays off, so tasks keep their sizes.

    Raises:
        ValueError: A number is negative, infinite or NaN, or two tasks share a name.
    """
    _check(tasks, num_workers, running_s)
    # The order of names is part of the tie rule. Sorting here makes the answer independent of the
    # caller's order.
    ordered = sorted(tasks, key=lambda task: task.name)
    quantum = Quantum.for_tasks(ordered, running_s)
    kept = kept_tasks(ordered, num_workers)
    options = options_of(ordered, quantum, num_workers, running_s, kept)
    sizes = best_division(options, num_workers)
    assert sizes is not None, "the kept tasks fit together, and all others may have size 0"
    return decide(Problem(tuple(ordered), num_workers, running_s), sizes)


def decide(problem: Problem, sizes: Sequence[int]) -> Division:
    """Return the division with these sizes, with its worth.

    Args:
        problem: With its tasks sorted by name.
        sizes: One per task, in that order. Whether they are the best is not looked at.
    """
    tasks, running_s = problem.tasks, problem.running_s
    pairs = list(zip(tasks, sizes, strict=True))
    # fsum is exact, so the figures shown to operators don't depend on the order of the tasks.
    waf_before = math.fsum(task.waf(task.workers) for task in tasks)
    waf_after = math.fsum(task.waf(size) for task, size in pairs)
    return Division(
        problem=problem,
        assignments={task.name: size for task, size in pairs},
        objective=math.fsum(gain(task, size, running_s) for task, size in pairs),
        waf_before=waf_before,
        waf_after=waf_after,
        why=f"{_join(_changes(pairs))}: weighted {in_flops(waf_before, '->', waf_after)}"
        if tasks
        else "there is no task to divide the workers among",
    )


def _check(tasks: Sequence[PlanTask], num_workers: int, running_s: float) -> None:
    if num_workers < 0:
        raise ValueError(f"num_workers {num_workers} is negative")
    if len({task.name for task in tasks}) < len(tasks):
        raise ValueError("two tasks share a name")
    quantities = [("running_s", running_s)]
    for task in tasks:
        quantities += [
            (f"weight of {task.name}", task.weight),
            (f"workers of {task.name}", task.workers),
            (f"transition_s of {task.name}", task.transition_s),
            (f"layout_change_s of {task.name}", task.layout_change_s or 0.0),
            (f"remaining_s of {task.name}", task.remaining_s or 0.0),
        ]
    for name, value in quantities:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} {value} must be a number, 0 or more")


_PREFIXES: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))
_MAX_DIGITS: Final = 6
"""Behind the point, in rates that are compared."""
_MAX_NAMED: Final = 4
"""With at most this many tasks, each unchanged task is named; with more, they are counted."""


def in_flops(one: float, between: str, other: float) -> str:
    """Return two rates for operators, in the unit of the larger one: ``34.2 -> 31.9 GFLOP/s``.

    Rates that differ by more than a millionth have enough digits to show it.
    """
    # Both rates share one unit. ``950 MFLOP/s -> 1.1 GFLOP/s`` would have to be converted by the
    # reader.
    scale, prefix = _unit_of(max(one, other))
    texts = [
        (f"{one / scale:.{num_digits}f}", f"{other / scale:.{num_digits}f}")
        for num_digits in range(1, _MAX_DIGITS + 1)
    ]
    first, second = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return f"{first} {between} {second} {prefix}FLOP/s"


def amount_in_flops(rate: float) -> str:
    """Return a rate for operators, in a unit that suits it: ``4.6 PFLOP/s``."""
    scale, prefix = _unit_of(rate)
    return f"{rate / scale:.1f} {prefix}FLOP/s"


def _unit_of(rate: float) -> tuple[float, str]:
    return next((pair for pair in _PREFIXES if rate >= pair[0]), _PREFIXES[-1])


def _changes(pairs: Sequence[tuple[PlanTask, int]]) -> list[str]:
    is_short = len(pairs) <= _MAX_NAMED
    parts, num_others = [], 0
    for task, size in pairs:
        if size != task.workers or task.is_faulted or is_short:
            parts.append(_change(task, size))
        else:
            num_others += 1
    return [*parts, f"the other {num_others} keep their sizes"] if num_others else parts


def _change(task: PlanTask, size: int) -> str:
    no_room = f" ({_shortage(task)})" if task.keeps_running and not size else ""
    if size == task.workers:
        verb = f"keeps {size}" if size else "stays stopped"
        return f"{task.name} {verb}{no_room}"
    if not task.workers:
        return f"{task.name} starts on {size} (a stopped task pays no transition)"
    verb = "stops" if size == 0 else "grows" if size > task.workers else "shrinks"
    return f"{task.name} {verb} {task.workers} -> {size}{no_room}"


def _shortage(task: PlanTask) -> str:
    """Return why a task that is to keep running does not."""
    least = task.smallest_size
    if least is None:
        return f"keeps_running, but no size from {task.min_workers} up is listed"
    return f"keeps_running, but there is no room for {least}"


def _join(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
