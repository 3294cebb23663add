"""Which replicas a task still has, and what they are without the others."""

from controller.core.arrangement import keep_replicas, ranks_of_replica, whole_replicas
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
