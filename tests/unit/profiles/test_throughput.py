"""Throughput tables: lookups and refusals."""

import pytest
from pydantic import ValidationError

from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable


def point(workers: int, flops_per_s: float = 1e9, dp: int | None = None) -> ThroughputPoint:
    return ThroughputPoint(
        workers=workers, flops_per_s=flops_per_s, layout=Layout(dp=dp or workers)
    )


TABLE = ThroughputTable(points=(point(4, 3.2e9), point(1, 1.0e9), point(2, 1.8e9)))


def test_sizes_are_ascending_in_whatever_order_they_were_given() -> None:
    assert TABLE.sizes == (1, 2, 4)
    assert ThroughputTable(points=tuple(reversed(TABLE.points))) == TABLE


def test_a_listed_size_has_its_throughput_and_layout() -> None:
    assert TABLE.flops_per_s(4) == 3.2e9
    assert TABLE.layout(4) == Layout(dp=4)


@pytest.mark.parametrize("size", [0, 3, 5])
def test_zero_and_unlisted_sizes_achieve_nothing_and_have_no_layout(size: int) -> None:
    assert TABLE.flops_per_s(size) == 0.0
    with pytest.raises(KeyError):
        TABLE.layout(size)


@pytest.mark.parametrize(("size", "rate"), [(0, 0.0), (2, 1.8e9), (3, 2.4e9), (4, 3.2e9), (5, 0.0)])
def test_meanwhile_an_unlisted_size_achieves_its_part_of_the_next_larger(
    size: int, rate: float
) -> None:
    assert TABLE.interim_flops_per_s(size) == pytest.approx(rate)


def test_the_layout_must_use_exactly_the_workers() -> None:
    with pytest.raises(ValidationError, match="workers is 3, but tp1 pp1 dp2 makes 2"):
        point(3, dp=2)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf"), 1e31])
def test_a_throughput_must_be_a_positive_number_that_a_machine_could_have(rate: float) -> None:
    with pytest.raises(ValidationError, match="flops_per_s"):
        point(1, rate)


def test_a_size_may_be_listed_once_only() -> None:
    with pytest.raises(ValidationError, match="size 2 is listed twice"):
        ThroughputTable(points=(point(2), point(2)))


def test_a_table_lists_at_least_one_size() -> None:
    with pytest.raises(ValidationError, match="at least 1"):
        ThroughputTable(points=())
