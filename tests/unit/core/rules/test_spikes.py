"""Losses and gradient norms that jump, and stay."""

import math

from controller.core.rules.policy import Policy
from controller.core.rules.spikes import Levels, SpikeChange

POLICY = Policy()


def changes(levels: Levels, *figures: tuple[float, float]) -> list[SpikeChange | None]:
    return [levels.take(loss, norm, POLICY) for loss, norm in figures]


def known() -> Levels:
    levels = Levels()
    changes(levels, *((3.0 - number / 100, 1.0) for number in range(20)))
    return levels


def test_two_in_a_row_make_a_spike_that_is_told_once_and_ends_once() -> None:
    figures = [(15.0, 1.0)] * 4 + [(3.0, 1.0)] * 2
    assert changes(known(), *figures) == [None, "begins", None, None, "ends", None]


def test_one_hard_batch_is_none() -> None:
    assert changes(known(), (30.0, 9.0), (3.0, 1.0), (30.0, 9.0), (3.0, 1.0)) == [None] * 4


def test_gradient_norm_counts_as_much_as_the_loss() -> None:
    assert changes(known(), (3.0, 5.1), (3.0, math.inf)) == [None, "begins"]


def test_less_than_five_times_the_level_is_none() -> None:
    assert changes(known(), *[(10.0, 4.9)] * 10) == [None] * 10


def test_what_spikes_does_not_become_the_level() -> None:
    levels = known()
    changes(levels, *[(100.0, 1.0)] * 50)
    assert levels.take(3.0, 1.0, POLICY) == "ends"


def test_first_iterations_alarm_nobody() -> None:
    assert changes(Levels(), *[(1.0, 1.0)] * 7, (50.0, 50.0), (50.0, 50.0)) == [None] * 9


def test_figures_that_are_not_finite_alarm_from_the_beginning_and_at_any_level() -> None:
    nan = [(math.nan, 1.0), (math.nan, 1.0)]
    assert changes(Levels(), *nan, (3.0, 1.0)) == [None, "begins", "ends"]
    assert Levels().describe(math.nan, 1.0) == "loss nan, gradient norm 1"
    rewards = Levels()
    changes(rewards, *[(-2.0, 1.0)] * 20)
    assert changes(rewards, *nan) == [None, "begins"]


def test_figures_are_told_beside_their_levels() -> None:
    text = known().describe(15.0, 1.5)
    assert text == "loss 15 (level 2.905), gradient norm 1.5 (level 1)"
