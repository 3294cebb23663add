"""What is said of a plan: other divisions, estimates it hangs on, the cost of waiting."""

import pytest

from controller.core.rules.planner.cost import PlanTask, Problem
from controller.core.rules.planner.explanation import Explanation, explain
from controller.core.rules.planner.solver import solve
from tests.unit.core.rules.test_planner import LONG_S, A, B, plan_task


def explained(*tasks: PlanTask, num_workers: int, running_s: float) -> Explanation:
    decision = solve(tasks, num_workers=num_workers, running_s=running_s)
    return explain(Problem(tasks, num_workers, running_s), decision.assignments)


def test_the_nearest_alternative_is_the_best_other_division() -> None:
    tasks = [plan_task(A, {1: 4.0, 2: 7.0}, 0), plan_task(B, {1: 3.0, 2: 5.0}, 0)]
    first, *others = explained(*tasks, num_workers=3, running_s=1.0).alternatives
    assert first.differs == {A: 1, B: 2}
    assert (first.objective, first.waf) == (9.0, 9.0)
    assert first.verdict == "gives 9.0 of 10.0 FLOP/s, 1.0 FLOP/s less"
    assert all(other.objective < first.objective for other in others)


def test_rates_that_hardly_differ_are_told_apart() -> None:
    tasks = [plan_task(A, {1: 1.9123e18, 2: 1.9127e18}, 0), plan_task(B, {1: 1e10}, 0)]
    first, *_ = explained(*tasks, num_workers=2, running_s=LONG_S).alternatives
    assert first.verdict == "gives 1.912 of 1.913 EFLOP/s, 400.0 TFLOP/s less"


def test_without_another_division_there_is_no_alternative() -> None:
    assert explained(num_workers=4, running_s=LONG_S).alternatives == ()
    assert explained(plan_task(A, {2: 5.0}, 2), num_workers=0, running_s=0.0).alternatives == ()


def test_the_verdict_says_when_the_transition_decided() -> None:
    task = plan_task(A, {2: 9.0, 3: 10.0}, 2)
    first, *_ = explained(task, num_workers=3, running_s=100.0).alternatives
    assert first.differs == {A: 3}
    assert first.verdict == (
        "would give 10.0 of 9.0 FLOP/s, but not long enough to pay for its transition"
    )


def test_the_verdict_says_when_a_tie_was_broken() -> None:
    tasks = [plan_task(name, {1: 1.0}, 0) for name in (A, B)]
    first, *_ = explained(*tasks, num_workers=1, running_s=LONG_S).alternatives
    assert first.differs == {A: 0, B: 1}
    assert first.verdict.startswith("is worth as much, but changes more sizes")


def test_a_better_division_is_said_to_have_no_placement() -> None:
    task = plan_task(A, {2: 9.0, 3: 10.0}, 0)
    first, *_ = explain(Problem((task,), 3, LONG_S), {A: 2}).alternatives
    assert (first.differs, first.verdict) == (
        {A: 3},
        "would give 10.0 of 9.0 FLOP/s, but its ranks fit no nodes",
    )


def test_an_estimate_that_would_change_the_plan_is_named() -> None:
    task = plan_task(A, {2: 9.0, 3: 10.0}, 2)  # growing gains 1 FLOP/s and costs 270 FLOP
    found = explained(task, num_workers=3, running_s=100.0).sensitivity
    assert {(each.estimate, each.factor) for each in found} == {
        ("MTBF", 10.0),
        ("MTBF", 100.0),
        ("transition time", 0.01),
        ("transition time", 0.1),
    }
    assert all(each.differs == {A: 3} for each in found)


def test_waiting_costs_what_the_plan_would_do() -> None:
    tasks = [plan_task(A, {2: 9.0}, 2, is_faulted=True), plan_task(B, {1: 4.0}, 1)]
    waiting = explained(*tasks, num_workers=3, running_s=LONG_S).waiting
    assert waiting.weighted_flop_per_min == 60.0 * 9.0
    assert waiting.gpu_hours_per_min == pytest.approx(2 / 60)


def test_waiting_costs_nothing_where_the_plan_has_no_use_for_what_is_idle() -> None:
    waiting = explained(plan_task(A, {2: 9.0}, 2), num_workers=8, running_s=LONG_S).waiting
    assert (waiting.weighted_flop_per_min, waiting.gpu_hours_per_min) == (0.0, 0.0)
