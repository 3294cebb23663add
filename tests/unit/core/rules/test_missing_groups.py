"""Packing only what is missing gives the same placement as packing everything."""

import random

from controller.core.rules.packing.missing_groups import KeptRanks
from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout

Layouts = dict[TaskId, Layout]

_OTHER = NodeId("of another domain")
"""Without a worker. With a second domain everything is packed, and its spread is the same."""


def test_placement_is_that_of_packing_everything() -> None:
    num_compared = 0
    for seed in range(1500):
        rng = random.Random(seed)
        nodes = {NodeId(f"n{n}"): rng.choice([1, 2, 4]) for n in range(rng.randint(1, 7))}
        before = {
            TaskId(f"t{n}"): Layout(rng.choice([1, 1, 2]), rng.choice([1, 2]), rng.randint(1, 3))
            for n in range(rng.randint(1, 3))
        }
        current = place(before, {}, nodes)
        if isinstance(current, Unplaceable):
            continue
        after = _resized(rng, before)
        left = {name: num for name, num in nodes.items() if rng.random() < 0.8}
        left |= {NodeId(f"x{n}"): rng.choice([1, 2, 4]) for n in range(rng.randint(0, 2))}
        blocked = [
            Worker(name, slot)
            for name, num in left.items()
            for slot in range(num)
            if rng.random() < 0.05
        ]
        found = place(after, current, left, layouts_before=before, blocked=blocked)
        all_packed = place(
            after,
            current,
            {**left, _OTHER: 0},
            layouts_before=before,
            blocked=blocked,
            domains={_OTHER: "other"},
        )
        assert isinstance(found, Unplaceable) == isinstance(all_packed, Unplaceable), seed
        if not isinstance(found, Unplaceable):
            assert found == all_packed, seed
            num_compared += _num_moved(current, found) > 0
    assert num_compared > 200


def _resized(rng: random.Random, layouts: Layouts) -> Layouts:
    return {
        task: Layout(layout.tp, layout.pp, max(1, layout.dp + rng.choice([0, 0, 0, 1, -1])))
        for task, layout in layouts.items()
        if rng.random() < 0.85
    }


def _num_moved(before: dict[TaskId, Placement], after: dict[TaskId, Placement]) -> int:
    return sum(len(set(placement) - set(before[task])) for task, placement in after.items())


def test_ranks_of_a_replica_that_keeps_its_number_keep_theirs() -> None:
    layout = Layout(tp=2, pp=2, dp=3)
    kept = KeptRanks.of(layout, layout, {2, 3})
    assert kept is not None
    assert kept.numbers == {rank: rank for rank in range(12) if rank not in {2, 3}}
    assert kept.empty == ((1,), ())
    assert kept.order() == [[1], []]


def test_replicas_are_numbered_anew_in_a_layout_of_another_size() -> None:
    kept = KeptRanks.of(Layout(dp=4), Layout(dp=3), {0})
    assert kept is not None
    assert kept.numbers == {1: 0, 2: 1}
    assert kept.empty == ((2, 3),)


def test_whoever_holds_too_much_or_half_a_group_is_packed_with_everything() -> None:
    assert KeptRanks.of(Layout(dp=2), Layout(dp=3), set()) is None
    assert KeptRanks.of(Layout(tp=2), Layout(tp=2), {1}) is None
    assert KeptRanks.of(Layout(tp=2), Layout(pp=2), set()) is None
