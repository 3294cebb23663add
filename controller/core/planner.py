"""The division of the workers over all tasks: the paper's dynamic programme, exact.

    maximise  sum_i G(t_i, x_i)   subject to   sum_i x_i <= n'
    S(i, j) = max over k <= j of { S(i-1, j-k) + G(t_i, k) },   S(0, j) = 0

S(i, j) is the most that i tasks can gain with j workers (Unicron, arXiv 2401.00134, section 5). The
recurrence is exact because the tasks share nothing but the number of workers: whatever the last
task takes, the others do best with what it leaves. G need not be concave nor monotone. Gains are
compared in whole quanta (``controller.core.cost``); ties go to the division that changes sizes least
(smallest sum of |x' - x|), then to the larger size for the task whose name sorts first. How the best
is found without filling all of S is told in ``controller.core.search``.

The runner-up is the best division that differs in any task. It differs in at least one, so it is
the best of m solutions, in each of which one task may not have the size chosen for it.

Where the ranks go is not decided here (``controller.core.placement``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.cost import PlanTask, Quantum, gain
from controller.core.options import Options, score
from controller.core.search import best_division
from nodeagent.protocol.ids import TaskId

_Sizes = tuple[int, ...]
"""One size per task, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Division:
    """One way to divide the workers.

    Attributes:
        assignments: Workers by task, every task included, sorted by name.
        objective: Sum of G, weighted FLOP until the next expected fault, computed in float.
        waf: Sum of F, weighted FLOP/s.
    """

    assignments: Mapping[TaskId, int]
    objective: float
    waf: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The best division, and why it is this one.

    Attributes:
        assignments: Workers by task, every task included, sorted by name.
        objective: Sum of G, weighted FLOP until the next expected fault, computed in float.
        waf_before: Sum of F at the sizes before the event, weighted FLOP/s.
        waf_after: Sum of F at ``assignments``, weighted FLOP/s.
        runner_up: The best division that differs; None where there is no other.
        why: The reason in one sentence, for operators.
    """

    assignments: Mapping[TaskId, int]
    objective: float
    waf_before: float
    waf_after: float
    runner_up: Division | None
    why: str


def solve(
    tasks: Sequence[PlanTask], *, num_workers: int, running_s: float, has_runner_up: bool = True
) -> Decision:
    """Return the division of ``num_workers`` with the largest sum of G.

    Equal inputs give equal decisions, whatever the order of ``tasks``. Workers may be left idle.

    Args:
        tasks: Tasks with distinct names; none is fine.
        num_workers: n', workers available after the event: 0 stops every task, and fewer than run
            now is the usual case.
        running_s: D_running, seconds until the next expected fault. A short horizon makes staying
            put more attractive.
        has_runner_up: Whether the second best is looked for too: one more search per task.

    Raises:
        ValueError: A number is negative, infinite or NaN, or two tasks share a name.
    """
    _check(tasks, num_workers, running_s)
    ordered = sorted(tasks, key=lambda task: task.name)
    quantum = Quantum.for_tasks(ordered, running_s)
    options = [quantum.options(task, num_workers, running_s) for task in ordered]
    sizes = best_division(options, num_workers)
    assert sizes is not None, "size 0 is always allowed, so there is always a solution"
    second = _runner_up(options, sizes, num_workers) if has_runner_up else None
    chosen = _division(ordered, sizes, running_s)
    runner_up = _division(ordered, second, running_s) if second else None
    return Decision(
        assignments=chosen.assignments,
        objective=chosen.objective,
        waf_before=math.fsum(task.waf(task.workers) for task in ordered),
        waf_after=chosen.waf,
        runner_up=runner_up,
        why=_explain(ordered, chosen, runner_up),
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
            (f"remaining_s of {task.name}", task.remaining_s or 0.0),
        ]
    for name, value in quantities:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} {value} must be a number, 0 or more")


def _runner_up(options: Sequence[Options], best: _Sizes, num_workers: int) -> _Sizes | None:
    """Return the best sizes other than ``best``, under the same rule for ties."""
    others: list[tuple[int, int, _Sizes]] = []
    for index, size in enumerate(best):
        without = options[index].without(size)
        sizes = best_division([*options[:index], without, *options[index + 1 :]], num_workers)
        if sizes is not None:
            others.append((*score(options, sizes), sizes))
    return max(others)[-1] if others else None


def _division(tasks: Sequence[PlanTask], sizes: _Sizes, running_s: float) -> Division:
    pairs = list(zip(tasks, sizes, strict=True))
    return Division(
        assignments={task.name: size for task, size in pairs},
        objective=math.fsum(gain(task, size, running_s) for task, size in pairs),
        waf=math.fsum(task.waf(size) for task, size in pairs),
    )


_PREFIXES: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))
_MAX_NAMED: Final = 4
"""Tasks that keep their size are named up to this many tasks in all, and counted beyond."""


def _explain(tasks: Sequence[PlanTask], chosen: Division, runner_up: Division | None) -> str:
    if not tasks:
        return "there is no task to divide the workers among"
    before = math.fsum(task.waf(task.workers) for task in tasks)
    scale, prefix = next(
        ((s, p) for s, p in _PREFIXES if max(before, chosen.waf) >= s), _PREFIXES[-1]
    )
    text = (
        f"{_join(_changes(tasks, chosen))}: weighted {chosen.waf / scale:.1f}"
        f" of {before / scale:.1f} {prefix}FLOP/s"
    )
    return text + (_compare(tasks, chosen, runner_up, scale) if runner_up else "")


def _changes(tasks: Sequence[PlanTask], chosen: Division) -> list[str]:
    is_short = len(tasks) <= _MAX_NAMED
    parts, num_others = [], 0
    for task in tasks:
        size = chosen.assignments[task.name]
        if size != task.workers or task.is_faulted or is_short:
            parts.append(_change(task, size))
        else:
            num_others += 1
    return [*parts, f"the other {num_others} keep their sizes"] if num_others else parts


def _change(task: PlanTask, size: int) -> str:
    if size == task.workers:
        verb = f"keeps {size}" if size else "stays stopped"
        return f"{task.name} {verb}"
    if not task.workers:
        return f"{task.name} starts on {size} (a stopped task pays no transition)"
    verb = "stops" if size == 0 else "grows" if size > task.workers else "shrinks"
    return f"{task.name} {verb} {task.workers} -> {size}"


def _compare(tasks: Sequence[PlanTask], chosen: Division, runner_up: Division, scale: float) -> str:
    """Say what the runner-up would give, and why that is not better."""
    differing = [
        f"{task.name} {size}"
        for task in tasks
        if (size := runner_up.assignments[task.name]) != chosen.assignments[task.name]
    ]
    name = f"; the runner-up {', '.join(differing)}"
    gives, best = f"{runner_up.waf / scale:.1f}", f"{chosen.waf / scale:.1f}"
    if math.isclose(runner_up.objective, chosen.objective, rel_tol=1e-12):
        return f"{name} is worth as much and loses the tie: fewest changes of size, then by name"
    if runner_up.waf >= chosen.waf:
        return f"{name} would give {gives}, but not long enough to pay for its transition"
    return f"{name} gives {gives if gives != best else 'slightly less'}"


def _join(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
