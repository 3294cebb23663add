"""Tasks that keep running, against brute force: who is kept, the best division, and its price."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from controller.core.rules.planner.cost import PlanTask, Problem
from controller.core.rules.planner.explanation import explain
from controller.core.rules.planner.floors import kept_tasks
from controller.core.rules.planner.solver import solve
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates
from tests.fakes.examples import examples
from tests.property.test_planner import Sizes, all_gains, best_first, divisions, plan_tasks

_WHOLE = st.integers(1, 6).map(float)


@st.composite
def marked_tasks(draw: st.DrawFn) -> list[PlanTask]:
    tasks = draw(plan_tasks(_WHOLE, most=5))
    return [replace(task, keeps_running=draw(st.booleans())) for task in tasks]


def kept_by_brute_force(tasks: Sequence[PlanTask], num_workers: int) -> frozenset[TaskId]:
    """Return who runs in the division that runs the heaviest marked task, then the next, and so on.

    Every set of tasks is tried that some division can run.
    """
    marked = sorted(
        (task for task in tasks if task.keeps_running),
        key=lambda task: (-task.weight, task.workers == 0, task.name),
    )
    possible = {
        frozenset(task.name for task, size in zip(tasks, sizes, strict=True) if size)
        for sizes in divisions(tasks, num_workers)
    }
    best = max(possible, key=lambda names: [task.name in names for task in marked])
    return best & {task.name for task in marked}


@given(tasks=marked_tasks(), num_workers=st.integers(0, 24), running_s=_WHOLE)
@examples(100)
def test_the_plan_is_the_best_of_the_divisions_that_keep_them_running(
    tasks: list[PlanTask], num_workers: int, running_s: float
) -> None:
    ordered = sorted(tasks, key=lambda task: task.name)
    kept = kept_by_brute_force(ordered, num_workers)
    assert kept_tasks(tasks, num_workers) == kept

    def is_allowed(sizes: Sizes) -> bool:
        return all(size for task, size in zip(ordered, sizes, strict=True) if task.name in kept)

    gains = all_gains(tasks, running_s)
    ranked = [each for each in best_first(ordered, num_workers, gains) if is_allowed(each)]
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    assert tuple(decision.assignments.values()) == ranked[0]
    assert all(
        decision.assignments[task.name] >= task.min_workers for task in tasks if task.name in kept
    )

    free = [replace(task, keeps_running=False) for task in tasks]
    optimum = solve(free, num_workers=num_workers, running_s=running_s)
    explained = explain(Problem(tuple(tasks), num_workers, running_s), decision.assignments)
    nearest = [
        tuple({**decision.assignments, **other.differs}.values())
        for other in explained.alternatives
    ]
    assert nearest[:1] == ranked[1:2]
    assert all(map(is_allowed, nearest))
    if not any(task.keeps_running for task in tasks):
        assert explained.floors is None
        return
    assert explained.floors is not None
    assert {**decision.assignments, **explained.floors.differs} == optimum.assignments
    if optimum.objective > 0:
        assert explained.floors.share == pytest.approx(
            1 - decision.objective / optimum.objective, abs=1e-12
        )
    without_room = {task.name for task in tasks if task.keeps_running} - kept
    assert set(explained.floors.without_room) <= without_room


def test_of_those_that_do_not_all_fit_the_heaviest_are_kept_and_lighter_ones_that_fit_beside() -> (
    None
):
    def task(name: str, weight: float, least: int) -> PlanTask:
        rates = {least: 1.0, 2 * least: 1.5}
        return PlanTask(TaskId(name), weight, Rates.of(rates), 0, least, False, 1.0, None, True)

    tasks = [task("a", 1.0, 4), task("b", 3.0, 8), task("c", 2.0, 6), task("d", 1.0, 4)]
    assert kept_tasks(tasks, 22) == {"a", "b", "c", "d"}
    assert kept_tasks(tasks, 18) == {"a", "b", "c"}
    assert kept_tasks(tasks, 12) == {"a", "b"}
    assert kept_tasks(tasks, 7) == {"c"}
    assert kept_tasks(tasks, 5) == {"a"}
    assert kept_tasks(tasks, 3) == frozenset()
    for order in itertools.permutations(tasks):
        assert kept_tasks(order, 18) == {"a", "b", "c"}
    assert kept_tasks([tasks[0], replace(tasks[3], workers=4)], 7) == {"d"}
