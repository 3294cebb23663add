"""What the spread of groups is, and which steps lead to it."""

import pytest

from controller.core.packing_search import Kind


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_spread_is_the_sum_of_its_steps_and_of_squares_over_the_stages(stages: int) -> None:
    kind = Kind(size=1, count=9, stages=stages)
    for num in range(9):
        by_stage = [len(range(stage, num, stages)) for stage in range(stages)]
        assert kind.cost(num) == sum(n**2 for n in by_stage)
        assert kind.cost(num) == sum(kind.step(n) for n in range(num))


def test_what_stays_is_bounded_by_room_and_by_what_is_needed() -> None:
    kind = Kind(size=2, count=2, stays={0: (2, 2, 1), 1: (1,)})
    assert kind.most_staying([6, 2]) == 4
    assert kind.most_staying([3, 2]) == 3
    assert kind.num_held([6, 1]) == 3
