"""The exponentially weighted mean of iteration times, from run to run."""

import pytest

from profiles.layout import Layout
from profiles.measured_throughput import NEWEST_SHARE, refined, with_work
from profiles.table_file import LayoutRecord, TablePoint

DP2, TP2 = Layout(dp=2), Layout(tp=2)


def measured(mean_s: float, num: int) -> TablePoint:
    return TablePoint(
        workers=2, flops_per_s=1 / mean_s, layout=LayoutRecord(dp=2), origin="measured",
        iterations=num, iteration_s=mean_s,
    )  # fmt: skip


def test_the_first_iterations_count_alike() -> None:
    point = refined(None, DP2, 1.0, 1)
    for duration_s in (2.0, 3.0, 6.0):
        point = refined(point, DP2, duration_s, 1)
    assert point.iteration_s == pytest.approx(3.0)
    assert (point.iterations, point.origin, point.workers) == (4, "measured", 2)


def test_later_ones_have_a_fixed_share_so_that_the_mean_follows_a_change() -> None:
    point = refined(measured(1.0, 1000), DP2, 2.0, 1)
    assert point.iteration_s == pytest.approx(1.0 + NEWEST_SHARE)
    for _ in range(100):
        point = refined(point, DP2, 2.0, 1)
    assert point.iteration_s == pytest.approx(2.0, rel=0.01)


def test_several_at_once_are_the_same_as_one_by_one() -> None:
    one = measured(1.0, 1000)
    for _ in range(10):
        one = refined(one, DP2, 2.0, 1)
    assert refined(measured(1.0, 1000), DP2, 2.0, 10).iteration_s == pytest.approx(one.iteration_s)


def test_an_estimate_and_another_layout_are_forgotten() -> None:
    estimate = TablePoint(workers=2, flops_per_s=5.0, layout=LayoutRecord(dp=2), origin="estimated")
    assert refined(estimate, DP2, 2.0, 1).iteration_s == 2.0
    other = refined(measured(1.0, 1000), TP2, 2.0, 1)
    assert (other.iteration_s, other.iterations, other.layout.tp) == (2.0, 1, 2)


def test_rates_are_the_work_over_the_mean_time_where_that_is_known() -> None:
    estimate = TablePoint(workers=1, flops_per_s=7.0, layout=LayoutRecord(), origin="estimated")
    points = with_work([measured(0.5, 3), estimate], 1e9)
    assert [(p.workers, p.flops_per_s) for p in points] == [(1, 7.0), (2, 2e9)]
