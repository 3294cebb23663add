"""A loss that follows the number of replicas, and losses that only look like it."""

import math
import random

import pytest
from hypothesis import given, settings, strategies as st

from controller.core.rules.loss_scale import LossScale, ScaledLoss

Losses = list[tuple[int, float]]


def told(*parts: tuple[int, Losses], num_micro_batches: int = 0) -> list[ScaledLoss]:
    """Run the iterations of each part with its number of replicas."""
    scale = LossScale()
    found = [
        scale.take(iteration, loss, num_replicas, num_micro_batches)
        for num_replicas, losses in parts
        for iteration, loss in losses
    ]
    return [one for one in found if one is not None]


def flat(level: float, first: int = 1, num: int = 20, noise: float = 0.0, seed: int = 0) -> Losses:
    drawn = random.Random(seed)
    return [(first + i, level * math.exp(drawn.gauss(0, noise))) for i in range(num)]


def test_a_loss_that_halves_with_the_replicas_is_told_once_with_its_levels() -> None:
    [found] = told((2, flat(2.0)), (1, flat(1.0, 21)), (2, flat(2.0, 41)), (1, flat(1.0, 61)))
    assert found == ScaledLoss(2.0, 1.0, 2, 1)
    assert found.divisor == "the micro-batches of a replica"


def test_a_loss_that_doubles_when_the_replicas_halve_is_divided_by_them() -> None:
    [found] = told((2, flat(2.0)), (1, flat(4.0, 21)))
    assert found.divisor == "the number of replicas"
    [found] = told((1, flat(4.0)), (2, flat(2.0, 21)))
    assert found.divisor == "the number of replicas"


@pytest.mark.parametrize(("before", "after"), [(1, 2), (4, 3), (3, 4), (8, 6), (2, 8), (16, 8)])
def test_growth_and_other_ratios_are_found(before: int, after: int) -> None:
    parts = (before, flat(2.0, noise=0.01)), (after, flat(2.0 * after / before, 21, noise=0.01))
    [found] = told(*parts)
    assert found.divisor == "the micro-batches of a replica"


def test_uneven_shares_of_micro_batches_count_as_those_of_the_first_replica() -> None:
    parts = (3, flat(3.0)), (2, flat(3.0 * 3 / 4, 21))
    assert told(*parts, num_micro_batches=8)  # 3 of 8, then 4: not 2 / 3
    assert not told(*parts)


def test_iterations_that_run_again_are_compared_with_themselves() -> None:
    falling = [(n, 10.0 - 0.4 * n) for n in range(1, 21)]
    again = [(n, (10.0 - 0.4 * n) / 2) for n in range(11, 21)]
    assert told((2, falling), (1, again))
    assert not told((2, falling), (1, falling[10:]))


def test_it_takes_several_iterations() -> None:
    assert not told((2, flat(2.0)), (1, flat(1.0, 21, 5)))
    assert not told((2, flat(2.0, num=7)), (1, flat(1.0, 8)))


def test_the_same_number_of_replicas_is_no_occasion() -> None:
    assert not told((2, flat(2.0)), (2, flat(1.0, 21)))


def test_a_normal_run_is_silent() -> None:
    learning = [(n, 1.5 + 9.0 * math.exp(-n / 40)) for n in range(1, 200)]
    assert not told((4, learning[:50]), (2, learning[50:100]), (1, learning[100:]))


def test_a_fast_decline_across_a_change_is_silent() -> None:
    """It halves within eight iterations, whatever the replicas."""
    fast = [(n, 8.0 * 2 ** (-n / 8)) for n in range(1, 60)]
    for at in range(10, 40):
        assert not told((2, fast[:at]), (1, fast[at:]))


def test_a_program_that_begins_anew_is_silent() -> None:
    fresh = [(n, 10.0 * math.exp(-n / 20)) for n in range(1, 60)]
    for at in range(10, 59):
        assert not told((1, fresh[:at]), (2, fresh))
        assert not told((2, fresh[:at]), (1, fresh))


def test_a_step_of_another_size_is_silent() -> None:
    for after in (0.3, 0.7, 1.0, 1.3, 1.6, 2.5, 3.0):
        assert not told((2, flat(2.0)), (1, flat(2.0 * after, 21)))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    noise=st.floats(0, 1),
    before=st.integers(1, 8),
    after=st.integers(1, 8),
    decline=st.floats(0, 0.03),
)
def test_noise_and_decline_are_silent(
    seed: int, noise: float, before: int, after: int, decline: float
) -> None:
    losses = [(n, loss * math.exp(-decline * n)) for n, loss in flat(2.0, 1, 60, noise, seed)]
    assert not told((before, losses[:30]), (after, losses[30:]), num_micro_batches=24)


@pytest.mark.parametrize("loss", [None, math.nan, math.inf, 0.0, -1.0])
def test_losses_without_a_logarithm_are_passed_over(loss: float | None) -> None:
    scale = LossScale()
    assert [scale.take(n, loss, 1 + n // 20, 0) for n in range(60)] == [None] * 60
