"""The planner against brute force, and what must hold for every input."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, strategies as st

from controller.core.rules.planner.cost import PlanTask, Problem, Quantum, earned, forgone
from controller.core.rules.planner.explanation import explain
from controller.core.rules.planner.solver import solve
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates
from profiles.throughput import ThroughputTable
from tests.fakes.clusters import table
from tests.fakes.examples import examples

Sizes = tuple[int, ...]

# Few distinct rates make plateaus and ties; whole numbers keep Fraction and float sums alike.
_WHOLE = st.integers(1, 6).map(float)
_REAL = st.floats(1e-3, 1e15)


def tables(rates: st.SearchStrategy[float]) -> st.SearchStrategy[ThroughputTable]:
    sizes = st.dictionaries(st.integers(1, 16), rates, min_size=1, max_size=5)
    return sizes.map(table)


@st.composite
def plan_tasks(draw: st.DrawFn, numbers: st.SearchStrategy[float], most: int) -> list[PlanTask]:
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True, max_size=most))
    return [
        PlanTask(
            name=TaskId(name),
            weight=draw(numbers),
            rates=with_models(draw, draw(tables(numbers)).rates),
            workers=draw(st.integers(0, 16)),
            min_workers=draw(st.integers(1, 3)),
            is_faulted=draw(st.booleans()),
            transition_s=draw(numbers),
            layout_change_s=draw(st.none() | numbers),
            model=draw(st.none() | st.integers(0, 2)),
        )
        for name in names
    ]


def with_models(draw: st.DrawFn, rates: Rates) -> Rates:
    """Return the rates with layouts that split the model in some of two ways, or without."""
    if draw(st.booleans()):
        return replace(rates, models=None)
    models = [draw(st.integers(0, 1)) for _ in rates.sizes]
    return replace(rates, models=np.array(models, np.int64))


def divisions(tasks: Sequence[PlanTask], num_workers: int) -> Iterator[Sizes]:
    choices = [
        [0, *(x for x in task.rates.sizes.tolist() if x >= task.min_workers)] for task in tasks
    ]
    return (sizes for sizes in itertools.product(*choices) if sum(sizes) <= num_workers)


def exact_gain(task: PlanTask, size: int, running_s: float) -> Fraction:
    """G by the definition, written anew, without any rounding."""

    def weighted(x: int) -> Fraction:
        is_usable = x in task.rates.sizes.tolist() and x >= task.min_workers
        return Fraction(task.weight) * Fraction(task.rates.at(x)) if is_usable else Fraction(0)

    earned = weighted(size) * Fraction(running_s)
    if size == task.workers and not task.is_faulted:
        return earned
    model_at = {}
    if task.rates.models is not None:
        model_at = dict(zip(task.rates.sizes.tolist(), task.rates.models.tolist(), strict=True))
    is_change = size in model_at and task.model is not None and model_at[size] != task.model
    transition_s = task.transition_s
    if is_change and task.layout_change_s is not None:
        transition_s = task.layout_change_s
    return earned - weighted(task.workers) * Fraction(transition_s)


def best_first(
    tasks: Sequence[PlanTask], num_workers: int, gains: dict[tuple[TaskId, int], Fraction]
) -> list[Sizes]:
    """Return all divisions, the best first, by the stated rules."""
    common = math.lcm(*(gain.denominator for gain in gains.values()))
    whole = {key: int(gain * common) for key, gain in gains.items()}
    return sorted(
        divisions(tasks, num_workers),
        key=lambda sizes: (
            -sum(whole[task.name, size] for task, size in zip(tasks, sizes, strict=True)),
            sum(abs(size - task.workers) for task, size in zip(tasks, sizes, strict=True)),
            tuple(-size for size in sizes),
        ),
    )


def all_gains(tasks: Sequence[PlanTask], running_s: float) -> dict[tuple[TaskId, int], Fraction]:
    return {
        (task.name, size): exact_gain(task, size, running_s)
        for task in tasks
        for size in (0, *task.rates.sizes.tolist())
    }


def check_against(
    tasks: Sequence[PlanTask],
    num_workers: int,
    running_s: float,
    gains: dict[tuple[TaskId, int], Fraction],
) -> None:
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    ordered = sorted(tasks, key=lambda task: task.name)
    expected = best_first(ordered, num_workers, gains)
    assert tuple(decision.assignments.values()) == expected[0]
    problem = Problem(tuple(tasks), num_workers, running_s)
    others = explain(problem, decision.assignments).alternatives
    nearest = tuple({**decision.assignments, **others[0].differs}.values()) if others else None
    assert nearest == (expected[1] if len(expected) > 1 else None)


@given(tasks=plan_tasks(_WHOLE, most=6), num_workers=st.integers(0, 16), running_s=_WHOLE)
@examples(100)
def test_the_best_and_the_second_best_equal_brute_force_with_ties(
    tasks: list[PlanTask], num_workers: int, running_s: float
) -> None:
    check_against(tasks, num_workers, running_s, all_gains(tasks, running_s))


@given(tasks=plan_tasks(_REAL, most=6), num_workers=st.integers(0, 16), running_s=_REAL)
@examples(100)
def test_on_any_numbers_the_result_equals_brute_force_over_rounded_gains(
    tasks: list[PlanTask], num_workers: int, running_s: float
) -> None:
    quantum = Quantum.for_tasks(tasks, running_s)
    rounded = {
        (task.name, size): Fraction(
            quantum.count(earned(task, size, running_s)) - quantum.count(forgone(task, size))
        )
        for task in tasks
        for size in (0, *task.rates.sizes.tolist())
    }
    check_against(tasks, num_workers, running_s, rounded)


@given(tasks=plan_tasks(_REAL, most=6), num_workers=st.integers(0, 16), running_s=_REAL)
@examples(100)
def test_the_objective_is_within_rounding_of_the_exact_best(
    tasks: list[PlanTask], num_workers: int, running_s: float
) -> None:
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    gains = all_gains(tasks, running_s)
    ordered = sorted(tasks, key=lambda task: task.name)
    (sizes, *_) = best_first(ordered, num_workers, gains)
    best = sum(gains[task.name, size] for task, size in zip(ordered, sizes, strict=True))
    scale = sum(
        task.waf(x) * (running_s + task.transition_s)
        for task in tasks
        for x in task.rates.sizes.tolist()
    )
    assert abs(decision.objective - float(best)) <= 1e-12 * scale


@given(data=st.data(), tasks=plan_tasks(_WHOLE, most=6), num_workers=st.integers(0, 16))
@examples(100)
def test_the_order_of_the_tasks_does_not_matter(
    data: st.DataObject, tasks: list[PlanTask], num_workers: int
) -> None:
    shuffled = data.draw(st.permutations(tasks))
    assert solve(tasks, num_workers=num_workers, running_s=10.0) == solve(
        shuffled, num_workers=num_workers, running_s=10.0
    )


@given(tasks=plan_tasks(_REAL, most=6), num_workers=st.integers(0, 16), running_s=_REAL)
@examples(100)
def test_one_more_worker_never_lowers_the_objective(
    tasks: list[PlanTask], num_workers: int, running_s: float
) -> None:
    fewer = solve(tasks, num_workers=num_workers, running_s=running_s)
    more = solve(tasks, num_workers=num_workers + 1, running_s=running_s)
    # The planner compares in units: each task's two terms are rounded by half a unit at the most.
    unit = 2.0 ** Quantum.for_tasks(tasks, running_s).exponent if tasks else 0.0
    slack = 2 * len(tasks) * unit + 1e-12 * (abs(fewer.objective) + abs(more.objective))
    assert more.objective >= fewer.objective - slack


@given(
    tasks=plan_tasks(_REAL, most=6),
    num_workers=st.integers(0, 16),
    running_s=_REAL,
    is_cleared=st.booleans(),
)
@examples(100)
def test_planning_again_from_the_result_changes_nothing(
    tasks: list[PlanTask], num_workers: int, running_s: float, is_cleared: bool
) -> None:
    # Where a change of layout took less than any other transition, a second one could pay.
    tasks = [
        replace(task, layout_change_s=max(task.layout_change_s or 0.0, task.transition_s))
        for task in tasks
    ]
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    after = [
        replace(
            task,
            workers=(workers := decision.assignments[task.name]),
            is_faulted=task.is_faulted and not is_cleared,
            # It has the layout of its size now: only another one is a change.
            model=task.rates.model_at(workers) if workers else task.model,
        )
        for task in tasks
    ]
    again = solve(after, num_workers=num_workers, running_s=running_s)
    assert again.assignments == decision.assignments
