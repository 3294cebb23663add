"""Decisions of the planner on small clusters, and the sentences that explain them."""

from dataclasses import replace

import pytest

from controller.core.rules.planner.cost import PlanTask, horizon_s
from controller.core.rules.planner.solver import solve
from nodeagent.protocol.ids import TaskId
from profiles.task_profiles import default_task_profiles
from tests.fakes.clusters import table

A, B, C = TaskId("a"), TaskId("b"), TaskId("c")
LONG_S = 1e6


def plan_task(
    name: TaskId, rates: dict[int, float], workers: int, *, is_faulted: bool = False
) -> PlanTask:
    return PlanTask(
        name=name,
        weight=1.0,
        rates=table(rates).rates,
        workers=workers,
        min_workers=1,
        is_faulted=is_faulted,
        transition_s=30.0,
    )


def demo_tasks(faulted: str) -> list[PlanTask]:
    return [
        PlanTask(
            name=TaskId(profile.name),
            weight=profile.weight,
            rates=profile.throughput.rates,
            workers=profile.workers,
            min_workers=profile.min_workers,
            is_faulted=profile.name == faulted,
            transition_s=30.0,
        )
        for profile in default_task_profiles()
    ]


@pytest.mark.parametrize("faulted", ["gpt-a", "gpt-b"])
def test_when_the_demo_loses_a_node_gpt_b_shrinks_whoever_was_hit(faulted: str) -> None:
    decision = solve(demo_tasks(faulted), num_workers=6, running_s=horizon_s(7.2e6, 6))
    assert decision.assignments == {"gpt-a": 4, "gpt-b": 2}
    assert decision.why == ("gpt-a keeps 4 and gpt-b shrinks 4 -> 2: weighted 34.2 -> 31.9 GFLOP/s")


def test_with_every_node_the_demo_keeps_its_sizes() -> None:
    decision = solve(demo_tasks("nobody"), num_workers=8, running_s=horizon_s(7.2e6, 8))
    assert decision.assignments == {"gpt-a": 4, "gpt-b": 4}
    assert decision.waf_after == decision.waf_before


def test_no_tasks_are_a_decision_too() -> None:
    decision = solve([], num_workers=4, running_s=LONG_S)
    assert decision.assignments == {}
    assert decision.objective == 0.0


def test_without_workers_everything_stops() -> None:
    decision = solve([plan_task(A, {2: 5.0}, 2)], num_workers=0, running_s=0.0)
    assert decision.assignments == {A: 0}
    assert decision.objective == -5.0 * 30.0
    assert "a stops 2 -> 0" in decision.why


def test_a_task_that_fits_nowhere_stops() -> None:
    decision = solve([plan_task(A, {4: 5.0}, 4)], num_workers=3, running_s=LONG_S)
    assert decision.assignments == {A: 0}


def test_a_size_below_the_minimum_is_not_used_even_if_nothing_else_fits() -> None:
    task = replace(plan_task(A, {2: 5.0, 4: 9.0}, 4), min_workers=4)
    assert solve([task], num_workers=3, running_s=LONG_S).assignments == {A: 0}


def test_a_smaller_size_that_runs_faster_is_preferred() -> None:
    task = plan_task(A, {2: 9.0, 3: 5.0}, 0)
    assert solve([task], num_workers=3, running_s=LONG_S).assignments == {A: 2}


def test_a_short_horizon_favours_staying_put() -> None:
    task = plan_task(A, {2: 9.0, 3: 10.0}, 2)
    assert solve([task], num_workers=3, running_s=100.0).assignments == {A: 2}
    assert solve([task], num_workers=3, running_s=1000.0).assignments == {A: 3}


def test_a_fault_makes_moving_free_since_it_is_paid_anyway() -> None:
    task = plan_task(A, {2: 9.0, 3: 10.0}, 2, is_faulted=True)
    assert solve([task], num_workers=3, running_s=100.0).assignments == {A: 3}


def test_among_equal_gains_the_fewest_changes_win() -> None:
    tasks = [plan_task(A, {1: 5.0, 2: 5.0}, 2), plan_task(B, {2: 5.0}, 0)]
    assert solve(tasks, num_workers=4, running_s=LONG_S).assignments == {A: 2, B: 2}


def test_among_equal_changes_the_first_name_gets_the_larger_size() -> None:
    tasks = [plan_task(name, {1: 1.0, 2: 2.0}, 0) for name in (B, A)]
    assert solve(tasks, num_workers=3, running_s=LONG_S).assignments == {A: 2, B: 1}


def test_the_reason_says_that_a_stopped_task_starts_without_a_charge() -> None:
    decision = solve([plan_task(A, {2: 5e12}, 0)], num_workers=2, running_s=LONG_S)
    assert decision.why == (
        "a starts on 2 (a stopped task pays no transition): weighted 0.0 -> 5.0 TFLOP/s"
    )


def test_the_reason_counts_the_many_that_keep_their_size() -> None:
    tasks = [plan_task(TaskId(f"t{i}"), {1: 1.0 + i, 2: 2.0 + 2 * i}, 2) for i in range(6)]
    decision = solve(tasks, num_workers=11, running_s=LONG_S)
    assert decision.why.startswith("t0 shrinks 2 -> 1 and the other 5 keep their sizes: ")


@pytest.mark.parametrize(
    ("num_workers", "running_s"), [(-1, 1.0), (1, -1.0), (1, float("nan")), (1, float("inf"))]
)
def test_negative_or_endless_quantities_are_refused(num_workers: int, running_s: float) -> None:
    with pytest.raises(ValueError, match=r"num_workers|running_s"):
        solve([], num_workers=num_workers, running_s=running_s)


def test_two_tasks_of_the_same_name_are_refused() -> None:
    tasks = [plan_task(A, {1: 1.0}, 0)] * 2
    with pytest.raises(ValueError, match="share a name"):
        solve(tasks, num_workers=1, running_s=1.0)


def test_a_negative_weight_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="weight of c"):
        solve([replace(plan_task(C, {1: 1.0}, 0), weight=-1.0)], num_workers=1, running_s=1.0)
