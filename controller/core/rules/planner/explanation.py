"""Explains a division: its nearest alternatives, its sensitivity to estimates, the cost of waiting.

Nothing is decided here, and no plan waits for it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from controller.core.rules.planner.cost import PlanTask, Problem, Quantum, earned, forgone, gain
from controller.core.rules.planner.floors import kept_tasks, options_of
from controller.core.rules.planner.options import Options, score
from controller.core.rules.planner.solver import Division, amount_in_flops, in_flops, solve
from controller.core.rules.planner.variants import best_divisions
from nodeagent.protocol.ids import TaskId

_NEAREST: Final = 3
_SMALL_SHARE: Final = 0.001
_FACTORS: Final = (0.01, 0.1, 0.5, 2.0, 10.0, 100.0)
EstimateKind = Literal["MTBF", "transition time"]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of the objective for one task.

    Attributes:
        name: The task.
        workers_before: Its size before the event.
        workers: Its size after the event.
        faulted: Whether it lost a worker.
        waf_before: F at the size before, weighted FLOP/s.
        waf_after: F at the size after.
        earned: Weighted FLOP until the next expected fault.
        forgone: Weighted FLOP missed during the transition.
    """

    name: TaskId
    workers_before: int
    workers: int
    faulted: bool
    waf_before: float
    waf_after: float
    earned: float
    forgone: float


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best division in which some task has another size than the chosen one.

    Attributes:
        differs: Workers of the tasks with another size.
        objective: Sum of G, weighted FLOP.
        waf: Sum of F, weighted FLOP/s.
        verdict: Why it is not better, for operators.
    """

    differs: Mapping[TaskId, int]
    objective: float
    waf: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A changed estimate that would lead to another division.

    Attributes:
        estimate: The estimate that is changed.
        factor: The changed estimate as a multiple of the one in use.
        differs: Workers of the tasks that would have another size.
    """

    estimate: EstimateKind
    factor: float
    differs: Mapping[TaskId, int]


@dataclass(frozen=True, slots=True)
class WaitingCost:
    """The cost per minute of delaying the plan while faulted tasks stand still.

    A task that trains on with its surviving replicas loses less than this.

    Attributes:
        weighted_flop_per_min: Weighted FLOP that the plan would do, and that are missed.
        gpu_hours_per_min: GPU hours of workers that are idle and would train under the plan.
    """

    weighted_flop_per_min: float
    gpu_hours_per_min: float


@dataclass(frozen=True, slots=True)
class FloorCost:
    """The cost of tasks that keep running: a comparison with the best division without floors.

    Both divisions are the planner's own; places on nodes do not count.

    Attributes:
        objective: Sum of G of the best division without floors, weighted FLOP.
        differs: Workers of the tasks with another size there; empty if the floors change nothing.
        share: Loss as a share of the objective without floors; None if that is not positive.
        without_room: Tasks that were to keep running and get no workers.
        verdict: All this in one sentence, for operators.
    """

    objective: float
    differs: Mapping[TaskId, int]
    share: float | None
    without_room: tuple[TaskId, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The complete explanation of a division.

    Attributes:
        terms: One per task, sorted by name.
        alternatives: The nearest alternatives, the best first.
        sensitivity: Empty if 1/100, 1/10, half, twice, 10 and 100 times the estimates change
            nothing.
        waiting: The cost of delaying the plan.
        floors: The cost of floors; None if no task has ``keeps_running``.
    """

    terms: tuple[Terms, ...]
    alternatives: tuple[Alternative, ...]
    sensitivity: tuple[Sensitivity, ...]
    waiting: WaitingCost
    floors: FloorCost | None


def explain(
    problem: Problem,
    assignments: Mapping[TaskId, int],
    after_step: Callable[[], None] = lambda: None,
) -> Explanation:
    """Return the explanation of dividing the workers in this way.

    Args:
        problem: The planner's input.
        assignments: The planner's answer, or another division: a size for every task.
        after_step: Called after every step. No step takes longer than a plan.
    """
    tasks = sorted(problem.tasks, key=lambda task: task.name)
    return Explanation(
        terms=terms(problem, assignments),
        alternatives=_alternatives(tasks, problem, assignments, after_step),
        sensitivity=tuple(_sensitivity(tasks, problem, after_step)),
        waiting=_waiting(tasks, problem.num_workers, assignments),
        floors=_floor_cost(tasks, problem, assignments),
    )


def terms(problem: Problem, assignments: Mapping[TaskId, int]) -> tuple[Terms, ...]:
    """Return the terms of the objective, sorted by task name."""
    return tuple(
        Terms(
            name=task.name,
            workers_before=task.workers,
            workers=(workers := assignments[task.name]),
            faulted=task.is_faulted,
            waf_before=task.waf(task.workers),
            waf_after=task.waf(workers),
            earned=earned(task, workers, problem.running_s),
            forgone=forgone(task, workers),
        )
        for task in sorted(problem.tasks, key=lambda task: task.name)
    )


def _alternatives(
    tasks: Sequence[PlanTask],
    problem: Problem,
    assignments: Mapping[TaskId, int],
    after_step: Callable[[], None],
) -> tuple[Alternative, ...]:
    """Return the nearest alternatives. The first is the best of all divisions that differ.

    It differs in at least one task. So it is the best among one solution per task, in each of which
    that task may not have its chosen size.
    """
    # Compared in the planner's integers, not in floats: else a tie could look like an improvement.
    quantum = Quantum.for_tasks(tasks, problem.running_s)
    # Where the ranks of a task that keeps running have no place, the chosen size may be 0.
    running = {name for name, size in assignments.items() if size}
    kept = kept_tasks(tasks, problem.num_workers) & running
    options = options_of(tasks, quantum, problem.num_workers, problem.running_s, kept)
    without = {
        index: options[index].without(assignments[task.name]) for index, task in enumerate(tasks)
    }
    cases = [frozenset({index}) for index in without]
    found = best_divisions(options, without, cases, problem.num_workers, after_step).values()
    ranked = sorted(
        {sizes for sizes in found if sizes is not None},
        key=lambda sizes: (*score(options, sizes), sizes),
        reverse=True,
    )
    chosen = tuple(assignments[task.name] for task in tasks)
    return tuple(
        Alternative(
            differs=_differing(tasks, sizes, assignments),
            objective=_worth(tasks, sizes, problem.running_s),
            waf=_waf(tasks, sizes),
            verdict=_verdict(tasks, options, sizes, chosen),
        )
        for sizes in ranked[:_NEAREST]
    )


def _worth(tasks: Sequence[PlanTask], sizes: Sequence[int], running_s: float) -> float:
    pairs = zip(tasks, sizes, strict=True)
    return math.fsum(gain(task, size, running_s) for task, size in pairs)


def _waf(tasks: Sequence[PlanTask], sizes: Sequence[int]) -> float:
    return math.fsum(task.waf(size) for task, size in zip(tasks, sizes, strict=True))


def _differing(
    tasks: Sequence[PlanTask], sizes: Sequence[int], assignments: Mapping[TaskId, int]
) -> dict[TaskId, int]:
    pairs = zip(tasks, sizes, strict=True)
    return {task.name: size for task, size in pairs if size != assignments[task.name]}


def _verdict(
    tasks: Sequence[PlanTask],
    options: Sequence[Options],
    sizes: Sequence[int],
    chosen: Sequence[int],
) -> str:
    """Say why the planner did not choose ``sizes``, by its own numbers."""
    (worth, _), (best, _) = score(options, sizes), score(options, chosen)
    waf, best_waf = _waf(tasks, sizes), _waf(tasks, chosen)
    rates = in_flops(waf, "of", best_waf)
    if (*score(options, sizes), tuple(sizes)) > (*score(options, chosen), tuple(chosen)):
        # The planner would have chosen a division that ranks higher. It was skipped because its
        # ranks fit no nodes.
        return f"would give {rates}, but its ranks fit no nodes"
    if worth == best:
        return "is worth as much, but changes more sizes, or loses the tie by name"
    if waf < best_waf:
        return f"gives {rates}, {amount_in_flops(best_waf - waf)} less"
    costs = (
        math.fsum(forgone(task, size) for task, size in zip(tasks, each, strict=True))
        for each in (sizes, chosen)
    )
    if next(costs) > next(costs):
        return f"would give {rates}, but not long enough to pay for its transition"
    return f"would give {rates}, but one of its tasks ends too soon"


def _sensitivity(
    tasks: list[PlanTask], problem: Problem, after_step: Callable[[], None]
) -> Iterator[Sensitivity]:
    """Yield the changed estimates that would lead the planner to another division."""
    # Compared with the planner's own answer. The given assignments may differ from it because of
    # placement, and that difference is no effect of an estimate.
    planned = solve(tasks, num_workers=problem.num_workers, running_s=problem.running_s).assignments
    for estimate, factor, others, running_s in _variants(tasks, problem.running_s):
        after_step()
        other: Division = solve(others, num_workers=problem.num_workers, running_s=running_s)
        differs = {
            name: workers for name, workers in other.assignments.items() if workers != planned[name]
        }
        if differs:
            yield Sensitivity(estimate, factor, differs)


def _variants(
    tasks: list[PlanTask], running_s: float
) -> Iterator[tuple[EstimateKind, float, list[PlanTask], float]]:
    for factor in _FACTORS:
        yield "MTBF", factor, tasks, factor * running_s
    for factor in _FACTORS:
        slower = [_slowed(task, factor) for task in tasks]
        yield "transition time", factor, slower, running_s


def _slowed(task: PlanTask, factor: float) -> PlanTask:
    change_s = task.layout_change_s
    return replace(
        task,
        transition_s=factor * task.transition_s,
        layout_change_s=None if change_s is None else factor * change_s,
    )


def _waiting(
    tasks: Sequence[PlanTask], num_workers: int, assignments: Mapping[TaskId, int]
) -> WaitingCost:
    training = [task for task in tasks if not task.is_faulted]
    present = math.fsum(task.waf(task.workers) for task in training)
    planned = math.fsum(task.waf(assignments[task.name]) for task in tasks)
    num_idle = max(0, num_workers - sum(task.workers for task in training))
    num_put_to_use = max(0, num_idle - (num_workers - sum(assignments.values())))
    return WaitingCost(max(0.0, 60.0 * (planned - present)), num_put_to_use / 60.0)


def _floor_cost(
    tasks: Sequence[PlanTask], problem: Problem, assignments: Mapping[TaskId, int]
) -> FloorCost | None:
    if not any(task.keeps_running for task in tasks):
        return None
    free = [replace(task, keeps_running=False) for task in tasks]
    planned, best = (
        solve(each, num_workers=problem.num_workers, running_s=problem.running_s)
        for each in (tasks, free)
    )
    sizes = tuple(best.assignments.values())
    differs = _differing(tasks, sizes, planned.assignments)
    lost = max(0.0, best.objective - planned.objective) if differs else 0.0
    share = lost / best.objective if best.objective > 0 else None
    without_room = tuple(
        task.name for task in tasks if task.keeps_running and not assignments[task.name]
    )
    words = [_floor_words(lost, share, differs)]
    words += [f"{', '.join(without_room)}: no room"] if without_room else []
    return FloorCost(best.objective, differs, share, without_room, "; ".join(words))


def _floor_words(lost: float, share: float | None, differs: Mapping[TaskId, int]) -> str:
    if not differs:
        return "keeps_running costs nothing: the plan would be the same without it"
    sizes = ", ".join(f"{name} {workers}" for name, workers in differs.items())
    if share is None:
        return f"keeps_running costs {lost:.3g} FLOP: the optimum has {sizes}"
    percent = f"{100 * share:.1f}" if share >= _SMALL_SHARE else f"under {100 * _SMALL_SHARE:g}"
    return f"keeps_running costs {percent} % of the optimum, which has {sizes}"
