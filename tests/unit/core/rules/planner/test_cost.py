"""The terms of the objective, each against a number worked out by hand."""

from dataclasses import replace
from fractions import Fraction

import pytest

from controller.core.rules.planner.cost import PlanTask, Quantum, forgone, gain, horizon_s
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates
from tests.fakes.clusters import table

TASK = PlanTask(
    name=TaskId("gpt-a"),
    weight=1.5,
    rates=table({1: 10.0, 2: 18.0, 4: 32.0}).rates,
    workers=4,
    min_workers=2,
    is_faulted=False,
    transition_s=30.0,
)


def test_the_weighted_flops_are_weight_times_throughput() -> None:
    assert TASK.waf(4) == 1.5 * 32.0


@pytest.mark.parametrize("size", [0, 1, 3, 5])
def test_a_size_that_is_not_listed_or_below_the_minimum_earns_nothing(size: int) -> None:
    assert TASK.waf(size) == 0.0


def test_size_zero_can_always_be_used_and_others_if_listed_and_large_enough() -> None:
    for num_workers, sizes in ((4, [0, 2, 4]), (3, [0, 2]), (0, [0])):
        assert TASK.choices(num_workers)[0].tolist() == sizes


def test_staying_at_a_size_costs_nothing() -> None:
    assert gain(TASK, 4, running_s=100.0) == 48.0 * 100.0


def test_changing_the_size_costs_what_the_old_size_would_have_done() -> None:
    assert gain(TASK, 2, running_s=100.0) == 27.0 * 100.0 - 48.0 * 30.0


def test_stopping_costs_the_transition_too() -> None:
    assert gain(TASK, 0, running_s=100.0) == -48.0 * 30.0


def test_a_faulted_task_pays_at_the_same_size() -> None:
    assert gain(replace(TASK, is_faulted=True), 4, running_s=100.0) == 48.0 * (100.0 - 30.0)


@pytest.mark.parametrize("is_faulted", [False, True])
def test_a_task_that_did_not_run_starts_free_of_charge(is_faulted: bool) -> None:
    stopped = replace(TASK, workers=0, is_faulted=is_faulted)
    assert gain(stopped, 4, running_s=100.0) == 48.0 * 100.0


@pytest.mark.parametrize(("remaining_s", "counted_s"), [(500.0, 100.0), (40.0, 40.0), (0.0, 0.0)])
def test_a_task_earns_until_its_end_at_most(remaining_s: float, counted_s: float) -> None:
    ending = replace(TASK, workers=2, remaining_s=remaining_s)
    assert gain(ending, 4, running_s=100.0) == 48.0 * counted_s - 27.0 * 30.0
    assert gain(ending, 2, running_s=100.0) == 27.0 * counted_s


def test_a_present_size_that_is_not_listed_has_nothing_to_forgo() -> None:
    assert forgone(replace(TASK, workers=3), 4) == 0.0


def test_the_horizon_shrinks_with_the_number_of_workers() -> None:
    assert horizon_s(7200.0, 8) == 900.0


def test_without_workers_the_horizon_is_zero() -> None:
    assert horizon_s(7200.0, 0) == 0.0


def test_sums_over_all_tasks_stay_exact_in_floats() -> None:
    tasks = [replace(TASK, name=TaskId(f"t{i}"), weight=1.0 + i / 7) for i in range(50)]
    quantum = Quantum.for_tasks(tasks, 1e6)
    largest = sum(
        quantum.count(task.waf(4) * 1e6) + quantum.count(forgone(task, 0)) for task in tasks
    )
    assert 2**50 < largest < 2**53


@pytest.mark.parametrize("scale", [1e-320, 1e-290, 1.0, 1e290])
def test_terms_are_rounded_to_the_nearest_quantum_separately(scale: float) -> None:
    task = replace(TASK, weight=scale / 3, is_faulted=True)
    quantum = Quantum.for_tasks([task], 100.0)
    unit = Fraction(2) ** quantum.exponent
    terms = [Fraction(task.waf(4) * 100.0) / unit, Fraction(task.waf(4) * 30.0) / unit]
    assert int(quantum.options(task, 4, 100.0).gains[-1]) == round(terms[0]) - round(terms[1])


def test_the_quantum_does_not_depend_on_order_sizes_or_faults() -> None:
    others = [replace(TASK, name=TaskId(f"t{i}"), weight=0.1 * (i + 1)) for i in range(9)]
    moved = [replace(task, workers=i % 5, is_faulted=bool(i % 2)) for i, task in enumerate(others)]
    assert Quantum.for_tasks(others, 1e5) == Quantum.for_tasks(moved[::-1], 1e5)


def test_no_tasks_have_a_quantum_too() -> None:
    assert Quantum.for_tasks([], 100.0).count(0.0) == 0


def test_a_size_whose_layout_splits_the_model_otherwise_costs_a_layout_change() -> None:
    rates = Rates.of({2: 18.0, 4: 32.0, 8: 50.0}, {2: 7, 4: 7, 8: 9})
    task = replace(TASK, rates=rates, layout_change_s=300.0, model=7)
    assert forgone(task, 2) == 48.0 * 30.0
    assert forgone(task, 8) == 48.0 * 300.0
    assert forgone(task, 0) == 48.0 * 30.0
    assert forgone(task, 4) == 0.0
    assert forgone(replace(task, model=None), 8) == 48.0 * 30.0
    quantum = Quantum.for_tasks([task], 100.0)
    options = quantum.options(task, 8, 100.0)
    for size, worth in zip(options.sizes.tolist(), options.gains.tolist(), strict=True):
        earned = quantum.count(task.waf(size) * 100.0)
        assert worth == earned - quantum.count(forgone(task, size))
