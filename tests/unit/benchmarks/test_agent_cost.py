"""The benchmark of the agent's cost computes its figures from rank reports."""

import pytest
from paired.ratio import Ratio
from paired.watched import TimedBlock, share_waited


def test_waiting_for_a_core_is_counted_in_the_time_of_the_blocks_it_fell_in() -> None:
    blocks = [TimedBlock([1.0, 1.0], waited_s=0.01, link_cpu_s=0.0), TimedBlock([2.0], 0.03, 0.0)]

    assert share_waited(blocks) == pytest.approx(0.01)


def test_a_small_ratio_is_told_with_the_digits_that_it_needs() -> None:
    assert Ratio(1.0024, 0.9991, 1.0061).percent_to(2) == "+0.24 % (-0.09 to +0.61)"
    assert Ratio(1.0024, 0.9991, 1.0061).percent == "+0.2 % (-0.1 to +0.6)"
