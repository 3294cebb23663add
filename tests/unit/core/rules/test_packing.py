"""What the spread of groups is, and which steps lead to it."""

import pytest

from controller.core.rules.packing.exhaustive import DomainSite, GroupKind
from controller.core.rules.packing.fewest_moves import Packing, pack


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_the_spread_is_the_sum_of_its_steps_and_of_squares_over_the_stages(stages: int) -> None:
    kind = GroupKind(size=1, count=9, stages=stages)
    for num in range(9):
        by_stage = [len(range(stage, num, stages)) for stage in range(stages)]
        assert kind.cost(num) == sum(n**2 for n in by_stage)
        assert kind.cost(num) == sum(kind.step(n) for n in range(num))


def test_what_stays_is_bounded_by_room_and_by_what_is_needed() -> None:
    kind = GroupKind(size=2, count=2, stays={0: (2, 2, 1), 1: (1,)})
    assert kind.most_staying([6, 2]) == 4
    assert kind.most_staying([3, 2]) == 3
    assert kind.num_held([6, 1]) == 3


def test_where_too_much_could_give_way_everything_still_finds_room() -> None:
    """More ways to clear the node than are looked at.

    And somebody has to move for the new group.
    """
    held = [
        GroupKind(size, 1, stays={0: (stay,)}) for size in (4, 8) for stay in range(1, size + 1)
    ] * 2
    room = sum(kind.size for kind in held)
    packing = pack([*held, GroupKind(16, 1)], DomainSite([room, 12, 12], [0, 1, 2]), max_steps=0)
    assert isinstance(packing, Packing)
    assert not packing.has_fewest_moves
    assert sum(sum(groups.values()) for groups in packing.groups) == len(held) + 1
