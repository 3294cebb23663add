"""The whole replicas that a task still has after a loss."""

from controller.core.rules.placement import Placement, Worker
from controller.core.rules.regroup.replicas import (
    NO_WORKER,
    living_replicas,
    part_of,
    place_replicas,
    ranks_of_replica,
    whole_replicas,
    with_waiting,
)
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


def test_those_that_wait_are_parts_of_further_replicas() -> None:
    one, two, three, four = (Worker(NodeId(f"n{number}"), 0) for number in range(1, 5))
    last_stage = part_of(Layout(pp=2), 1)
    found = with_waiting(Layout(pp=2), (one, two), [(three, last_stage), (four, last_stage)])
    assert found == (Layout(pp=2, dp=3), (one, NO_WORKER, NO_WORKER, two, three, four))
    few = with_waiting(Layout(pp=2), (one, two), [(three, last_stage), (four, last_stage)], 1)
    assert few == (Layout(pp=2, dp=2), (one, NO_WORKER, two, three))
    assert with_waiting(Layout(pp=2), (one, two), []) == (Layout(pp=2), (one, two))


def test_kept_replicas_close_ranks() -> None:
    assert place_replicas(PP2, PLACES, [[0, 3], [2, 5]]) == workers("a0", "c0", "a1", "c1")
    tensor_pairs = workers("a0", "a1", "b0", "b1")
    assert place_replicas(Layout(tp=2, dp=2), tensor_pairs, [[2, 3]]) == workers("b0", "b1")


def test_stages_of_broken_replicas_make_further_ones() -> None:
    assert living_replicas(PP2, {0, 1, 2, 3, 5}) == [[0, 3], [2, 5]]
    assert living_replicas(PP2, {0, 1, 5}) == [[0, 5]]
    assert living_replicas(PP2, {0, 3, 1, 5}) == [[0, 3], [1, 5]]
    assert living_replicas(PP2, {0, 1, 2}) == []


def test_tensor_parallel_groups_are_torn_only_where_there_is_no_other_replica() -> None:
    layout = Layout(tp=2, dp=3)
    assert living_replicas(layout, {0, 1, 2, 5}) == [[0, 1]]
    assert living_replicas(layout, {0, 3, 4}) == [[0, 3]]
    assert living_replicas(layout, {0, 2, 4}) == []
