"""The ratio of two loops' iteration times, and its interval."""

import pytest
from paired.ratio import Pair, ratio_of_means, ratio_of_pairs


def test_equal_times_give_one_without_doubt() -> None:
    ratio = ratio_of_pairs([[Pair([2.0, 2.0], [2.0, 2.0])] * 3] * 3)

    assert (ratio.value, ratio.low, ratio.high) == (1.0, 1.0, 1.0)


def test_a_rare_long_iteration_moves_the_mean_and_not_the_median() -> None:
    rounds = [[Pair([1.0, 1.0, 4.0], [1.0, 1.0, 1.0])]]

    assert ratio_of_pairs(rounds).value == 1.0
    assert ratio_of_means(rounds).value == 2.0


def test_the_interval_spans_rounds_that_differ_although_pairs_do_not() -> None:
    slow, fast = [Pair([1.1], [1.0])] * 9, [Pair([0.9], [1.0])] * 9

    ratio = ratio_of_means([slow, fast, slow, fast])

    assert ratio.value == pytest.approx(1.0)
    assert ratio.low == pytest.approx(0.9)
    assert ratio.high == pytest.approx(1.1)


def test_what_changes_from_pair_to_pair_meets_both_alike() -> None:
    drifting = [Pair([1.02 * speed], [speed]) for speed in (1.0, 3.0, 2.0, 5.0)]

    ratio = ratio_of_pairs([drifting, drifting])

    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((1.02, 1.02, 1.02))


def test_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="no pair"):
        ratio_of_pairs([[]])
