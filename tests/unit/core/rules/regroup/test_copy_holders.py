"""In-memory checkpoints lie where the loss of their owner does not take them along."""

import itertools
import random

import pytest

from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from nodeagent.protocol.ids import NodeId
from profiles.layout import Layout


def spread(layout: Layout, per_node: int) -> list[Worker]:
    return [
        Worker(NodeId(f"n{rank // per_node}"), rank % per_node)
        for rank in range(layout.num_workers)
    ]


def test_what_every_replica_has_is_not_copied() -> None:
    layout = Layout(dp=4)
    assert copy_holders(layout, spread(layout, 1), is_sharded=False) == (None,) * 4


def test_one_replica_of_each_stage_is_copied_to_another_stage() -> None:
    layout = Layout(pp=2, dp=2)
    holders = copy_holders(layout, spread(layout, 1), is_sharded=False)
    assert holders == (3, None, 1, None)


@pytest.mark.parametrize("layout", [Layout(dp=4), Layout(2, 1, 2), Layout(2, 2, 2)], ids=str)
@pytest.mark.parametrize("per_node", [1, 2])
def test_every_shard_lies_on_another_node_and_the_load_is_even(
    layout: Layout, per_node: int
) -> None:
    placement = spread(layout, per_node)
    holders = copy_holders(layout, placement, is_sharded=True)
    assert sorted(holder for holder in holders if holder is not None) == [*range(len(placement))]
    for owner, holder in enumerate(holders):
        assert holder is not None
        assert placement[owner].node != placement[holder].node


def test_another_parallel_group_is_preferred() -> None:
    layout = Layout(2, 2, 2)
    for owner, holder in enumerate(copy_holders(layout, spread(layout, 1), is_sharded=True)):
        assert holder is not None
        differs = [
            place(owner) != place(holder)
            for place in (layout.tp_rank, layout.pp_rank, layout.dp_rank)
        ]
        assert sum(differs) > 1


def test_on_one_node_another_process_holds_the_copy() -> None:
    layout = Layout(dp=2)
    assert copy_holders(layout, spread(layout, 2), is_sharded=True) == (1, 0)


def test_a_single_rank_has_nobody_to_hold_its_copy() -> None:
    assert copy_holders(Layout(), spread(Layout(), 1), is_sharded=True) == (None,)


def best_holders(
    layout: Layout, placement: list[Worker], *, is_sharded: bool
) -> tuple[int | None, ...]:
    """Return each owner's best holder of all, asked one after the other."""
    held = [0] * layout.num_workers
    holders: list[int | None] = []

    def place(rank: int) -> tuple[int, int, int]:
        return layout.tp_rank(rank), layout.pp_rank(rank), layout.dp_rank(rank)

    for owner in range(layout.num_workers):

        def badness(rank: int, owner: int = owner) -> tuple[bool, int, bool, int]:
            num_different = sum(a != b for a, b in zip(place(owner), place(rank), strict=True))
            is_same_node = placement[rank].node == placement[owner].node
            return is_same_node, held[rank], num_different == 1, (rank - owner) % len(held)

        candidates = [
            rank
            for rank in range(layout.num_workers)
            if rank != owner and (is_sharded or place(rank)[:2] != place(owner)[:2])
        ]
        is_owner = is_sharded or layout.dp_rank(owner) == 0
        holder = min(candidates, key=badness, default=None) if is_owner else None
        if holder is not None:
            held[holder] += 1
        holders.append(holder)
    return tuple(holders)


@pytest.mark.parametrize("is_sharded", [False, True])
@pytest.mark.parametrize("per_node", [1, 2, 4, 64])
def test_nobody_is_overlooked(per_node: int, *, is_sharded: bool) -> None:
    for tp, pp, dp in itertools.product((1, 2, 4), (1, 2, 3), (1, 2, 3, 5)):
        layout = Layout(tp, pp, dp)
        placement = spread(layout, per_node)
        random.Random(tp + pp + dp).shuffle(placement)
        found = copy_holders(layout, placement, is_sharded=is_sharded)
        assert found == best_holders(layout, placement, is_sharded=is_sharded), layout
