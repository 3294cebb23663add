"""Periodic work falls on common moments."""

import math

import pytest

from nodeagent.process_tools.beat import until_beat


@pytest.mark.parametrize("period_s", [0.5, 1.0, 10.0])
def test_beats_fall_on_multiples_of_the_period(period_s: float) -> None:
    for now_s in (0.0, 0.2, 7.3, 1234.5678):
        beat = (now_s + until_beat(now_s, period_s)) / period_s
        assert math.isclose(beat, round(beat), abs_tol=1e-9)


def test_a_moment_slept_for_is_not_slept_for_again() -> None:
    # Timers may fire a moment early.
    assert until_beat(9.999999, 1.0) == pytest.approx(1.000001)
    assert until_beat(10.0, 1.0) == pytest.approx(1.0)
