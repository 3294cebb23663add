"""Which replicas are kept, and that ranks that stay keep their stage."""

from controller.core.arrangement import (
    NO_WORKER,
    keep_replicas,
    ranks_of_replica,
    whole_replicas,
    wish,
)
from controller.core.placement import Placement, Worker
from nodeagent.protocol.ids import NodeId
from profiles.layout import Layout


def workers(*names: str) -> Placement:
    return tuple(Worker(NodeId(name), 0) for name in names)


PP2 = Layout(pp=2, dp=3)
PLACES = workers("a0", "b0", "c0", "a1", "b1", "c1")
"""Replicas a, b and c, with a stage on each worker."""


def test_a_replica_is_whole_with_all_its_stages() -> None:
    assert ranks_of_replica(PP2, 1) == [1, 4]
    assert whole_replicas(PP2, {0, 1, 2, 3, 5}) == [0, 2]
    assert whole_replicas(Layout(tp=2, dp=2), {0, 2, 3}) == [1]


def test_kept_replicas_close_ranks() -> None:
    assert keep_replicas(PP2, PLACES, [0, 2]) == workers("a0", "c0", "a1", "c1")
    tensor_pairs = workers("a0", "a1", "b0", "b1")
    assert keep_replicas(Layout(tp=2, dp=2), tensor_pairs, [1]) == workers("b0", "b1")


def test_a_task_that_shrinks_wishes_to_keep_whole_replicas() -> None:
    usable = set(PLACES) - {PLACES[0]}
    assert wish(PP2, PLACES, Layout(pp=2, dp=2), usable) == workers("b0", "c0", "b1", "c1")


def test_what_is_left_of_two_replicas_makes_one_where_the_stages_differ() -> None:
    usable = set(workers("a0", "b1", "c0"))
    assert wish(PP2, PLACES, Layout(pp=2, dp=1), usable) == workers("a0", "b1")


def test_a_task_that_grows_leaves_holes_for_what_is_to_come() -> None:
    old, places = Layout(pp=2, dp=1), workers("a0", "a1")
    wished = wish(old, places, Layout(pp=2, dp=2), set(places))
    assert wished == (places[0], NO_WORKER, places[1], NO_WORKER)


def test_with_one_stage_or_another_model_layout_the_placement_decides() -> None:
    places = workers("a", "b")
    assert wish(Layout(dp=2), places, Layout(dp=1), set()) == places
    assert wish(Layout(pp=2), places, Layout(tp=2), set()) == places
