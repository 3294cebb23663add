"""The age of a report does not depend on the node's clock."""

import pytest

from controller.fleet.report_age import ReportAge


@pytest.mark.parametrize("ahead_s", [-300.0, -2.0, 0.0, 300.0])
def test_a_clock_that_is_off_does_not_change_the_age(ahead_s: float) -> None:
    age = ReportAge()
    for number in range(20):
        travel_s = 0.3 if number % 3 else 0.01
        age.take_heartbeat(100.0 + number + ahead_s, 100.0 + number + travel_s)
        assert age.age_s(100.0 + number - 1.5 + ahead_s, 100.0 + number) == pytest.approx(
            1.5, abs=0.31
        )
    assert age.age_s(150.0 + ahead_s, 151.51) == pytest.approx(1.5)


@pytest.mark.parametrize("step_s", [-300.0, 300.0])
def test_a_clock_that_is_set_counts_from_the_next_heartbeat(step_s: float) -> None:
    age = ReportAge()
    for number in range(10):
        age.take_heartbeat(100.0 + number, 100.01 + number)
    age.take_heartbeat(110.0 + step_s, 110.01)
    assert age.age_s(109.0 + step_s, 110.5) == pytest.approx(1.49)


def test_a_heartbeat_that_was_held_up_does_not_make_reports_younger() -> None:
    age = ReportAge()
    age.take_heartbeat(100.0, 100.0)
    age.take_heartbeat(101.0, 103.0)
    assert age.age_s(102.0, 103.0) == pytest.approx(1.0)


def test_before_the_first_heartbeat_clocks_count_as_equal() -> None:
    assert ReportAge().age_s(10.0, 12.0) == 2.0
    assert ReportAge().age_s(15.0, 12.0) == 0.0
