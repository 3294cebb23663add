"""The average iteration, and what is late or over time by it."""

import random

import pytest

from controller.core.rules.pace import Pace
from controller.core.rules.policy import Policy

POLICY = Policy()


def pace_of(durations: list[float], *, interval: int = 0) -> Pace:
    """Return the pace of a generation whose iterations took so long.

    Each is longer after a save.
    """
    pace = Pace()
    for iteration, duration_s in enumerate(durations, start=1):
        is_long = interval > 0 and iteration > 1 and (iteration - 1) % interval == 0
        pace.add(duration_s, is_long=is_long)
    return pace


def test_first_iterations_of_a_generation_do_not_count() -> None:
    assert pace_of([9.0, 5.0, 1.0, 1.0]).average_s is None
    assert pace_of([9.0, 5.0, 1.0, 1.0, 1.2]).average_s == 1.0


def test_iterations_that_save_have_an_average_of_their_own() -> None:
    pace = pace_of([1.0, 1.0, 1.0, 1.0, 1.0, 4.0] + 2 * [1.0, 1.0, 1.0, 1.0, 4.0], interval=5)
    assert pace.average_s == 1.0
    assert pace.limit_s(POLICY, is_long=False) == 3.0
    assert pace.limit_s(POLICY, is_long=True) == 12.0


def test_iteration_that_saves_has_time_enough_until_one_was_seen() -> None:
    pace = pace_of([1.0] * 5)
    assert pace.limit_s(POLICY, is_long=True) == 3.0 + POLICY.long_limit_s


def test_outliers_do_not_move_the_average_and_a_lasting_change_does() -> None:
    pace = pace_of([1.0] * 40)
    for number in range(40):
        pace.add(50.0 if number % 3 == 0 else 1.0, is_long=False)
    assert pace.average_s == 1.0
    for _ in range(17):
        pace.add(2.0, is_long=False)
    assert pace.average_s == 2.0


def test_hang_is_three_times_the_average_and_never_less_than_the_floor_over_it() -> None:
    assert pace_of([1.0] * 6).limit_s(POLICY, is_long=False) == 3.0
    assert pace_of([0.01] * 6).limit_s(POLICY, is_long=False) == pytest.approx(0.51)


def test_recovering_iterations_have_a_limit_of_their_own() -> None:
    pace = pace_of([1.0] * 6)
    pace.begin(1.0)
    assert pace.limit_s(POLICY, is_long=False) == POLICY.recovering_limit_s
    pace.add(4.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == POLICY.recovering_limit_s
    pace.add(1.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == 3.0


def test_before_anything_is_known_the_first_iteration_gives_the_limit() -> None:
    assert pace_of([20.0]).limit_s(POLICY, is_long=False) == 60.0


def test_another_number_of_replicas_scales_what_is_known() -> None:
    pace = pace_of([1.0] * 5 + [4.0], interval=5)
    pace.begin(2.0)
    assert pace.average_s == 2.0
    pace.add(9.0, is_long=False)
    pace.add(9.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == 12.0
    for _ in range(3):
        pace.add(1.5, is_long=False)
    assert pace.average_s == 1.5
    assert pace.limit_s(POLICY, is_long=False) == 4.5
    assert pace.limit_s(POLICY, is_long=True) == 24.0


def test_task_that_grows_and_does_not_get_faster_is_no_hang() -> None:
    pace = pace_of([1.0] * 20)
    pace.begin(0.25)
    for _ in range(10):
        assert pace.limit_s(POLICY, is_long=False) > 1.0
        pace.add(1.0, is_long=False)


def test_the_same_number_of_replicas_keeps_it_and_another_model_layout_forgets_it() -> None:
    pace = pace_of([1.0] * 6)
    pace.begin(1.0)
    assert (pace.average_s, len(pace.plain)) == (1.0, 4)
    pace.begin(None)
    assert pace.average_s is None


def test_late_is_what_lasts_and_stands_out() -> None:
    pace = pace_of([1.0] * 20)
    for _ in range(2):
        pace.add(1.3, is_long=False)
    assert pace.late_s(POLICY) is None
    pace.add(1.3, is_long=False)
    assert pace.late_s(POLICY) == 1.3
    for _ in range(3):
        pace.add(1.0, is_long=False)
    assert pace.late_s(POLICY) is None


def test_what_is_scaled_makes_nothing_late() -> None:
    pace = pace_of([1.0] * 20)
    pace.begin(0.5)
    for _ in range(7):
        pace.add(0.9, is_long=False)
    assert pace.late_s(POLICY) is None


def test_noise_is_hardly_ever_late_and_never_a_hang() -> None:
    dice = random.Random(3)
    pace, num_late, was_late = Pace(), 0, False
    for _ in range(2000):
        duration_s = dice.lognormvariate(0.0, 0.2)
        if pace.is_warm:
            assert duration_s < pace.limit_s(POLICY, is_long=False)
        pace.add(duration_s, is_long=False)
        is_late = pace.late_s(POLICY) is not None
        num_late += is_late and not was_late
        was_late = is_late
    assert num_late < 20


def test_short_iterations_are_never_late() -> None:
    # Steps of 0.02 s: the times are those at which the log was read.
    assert pace_of([0.02] * 20 + [0.09] * 8).late_s(POLICY) is None
    assert pace_of([0.2] * 20 + [0.9] * 8).late_s(POLICY) == 0.9


def test_iterations_whose_lines_come_together_are_never_late() -> None:
    together = [0.0, 0.0, 2.0]
    assert pace_of(together * 8 + [2.0, 2.0, 2.0, 2.0, 2.0]).late_s(POLICY) is None
    assert pace_of([0.0, 1.0] * 10 + [3.0] * 8).late_s(POLICY) is None
