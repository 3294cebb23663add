"""Placements on small clusters: kept ranks, moved ranks, and impossible problems."""

from controller.core.rules.placement import Placement, Unplaceable, Worker, place, runs_of
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout

A, B, C = TaskId("a"), TaskId("b"), TaskId("c")


def nodes(*sizes: int) -> dict[NodeId, int]:
    return {NodeId(f"n{number}"): size for number, size in enumerate(sizes, start=1)}


def at(*places: str) -> Placement:
    """``n1.0`` is slot 0 of n1."""
    pairs = [place.split(".") for place in places]
    return tuple(Worker(NodeId(node), int(slot)) for node, slot in pairs)


def placed(
    layouts: dict[TaskId, Layout],
    current: dict[TaskId, Placement],
    num_workers_by_node: dict[NodeId, int],
) -> dict[TaskId, Placement]:
    placements = place(layouts, current, num_workers_by_node)
    assert not isinstance(placements, Unplaceable), placements.reason
    return placements


def reason(layouts: dict[TaskId, Layout], num_workers_by_node: dict[NodeId, int]) -> str:
    outcome = place(layouts, {}, num_workers_by_node)
    assert isinstance(outcome, Unplaceable)
    return outcome.reason


def test_an_empty_cluster_fills_by_name_of_task_and_order_of_nodes() -> None:
    assert placed({B: Layout(tp=2, dp=2), A: Layout(dp=4)}, {}, nodes(2, 2, 2, 2)) == {
        A: at("n1.0", "n1.1", "n2.0", "n2.1"),
        B: at("n3.0", "n3.1", "n4.0", "n4.1"),
    }


def test_no_tasks_need_no_workers() -> None:
    assert placed({}, {A: at("n1.0")}, nodes(1)) == {}


def test_everything_that_can_stay_stays() -> None:
    current = {A: at("n2.1", "n1.0"), B: at("n3.1", "n3.0")}
    assert placed({A: Layout(dp=2), B: Layout(tp=2)}, current, nodes(2, 2, 2)) == current


def test_a_lost_node_is_replaced_by_what_another_task_gives_up() -> None:
    current = {
        A: at("n1.0", "n1.1", "n2.0", "n2.1"),
        B: at("n3.0", "n3.1", "n4.0", "n4.1"),
    }
    available = nodes(2, 2, 2, 2)
    del available[NodeId("n2")]
    assert placed({A: Layout(dp=4), B: Layout(tp=2)}, current, available) == {
        A: at("n1.0", "n1.1", "n4.0", "n4.1"),
        B: at("n3.0", "n3.1"),
    }


def test_surviving_chunks_keep_their_global_ranks() -> None:
    current = {A: at("n1.0", "n2.0", "n3.0")}
    available = nodes(1, 1, 1, 1)
    del available[NodeId("n1")]
    assert placed({A: Layout(dp=3)}, current, available) == {A: at("n4.0", "n2.0", "n3.0")}


def test_a_task_on_the_lost_node_alone_does_not_disturb_the_other() -> None:
    current = {A: at("n1.0", "n1.1", "n2.0", "n2.1"), B: at("n3.0", "n3.1", "n4.0", "n4.1")}
    available = nodes(2, 2, 2, 2)
    del available[NodeId("n3")]
    assert placed({A: Layout(dp=4), B: Layout(tp=2)}, current, available) == {
        A: current[A],
        B: at("n4.0", "n4.1"),
    }


APART = {NodeId(f"n{i}"): f"rack-{i}" for i in range(1, 5)}


def test_a_shrinking_task_stays_spread_over_domains() -> None:
    current = {A: at("n1.0", "n2.0", "n2.1")}
    placements = place({A: Layout(dp=2)}, current, nodes(2, 2), domains=APART)
    assert placements == {A: at("n1.0", "n2.0")}


def test_without_domains_a_shrinking_task_gives_up_the_nodes_where_it_holds_the_least() -> None:
    current = {A: at("n1.0", "n2.0", "n2.1")}
    assert placed({A: Layout(dp=2)}, current, nodes(2, 2)) == {A: at("n2.0", "n2.1")}


def test_without_domains_a_task_is_on_as_few_nodes_as_it_needs() -> None:
    assert placed({A: Layout(dp=4)}, {}, nodes(4, 4)) == {A: at("n1.0", "n1.1", "n1.2", "n1.3")}


def test_replicas_of_a_task_are_spread_over_domains_and_each_stays_inside_one() -> None:
    # The domains take turns, so that neighbours do not share one.
    domains = {NodeId(f"n{i}"): "even" if i % 2 == 0 else "odd" for i in range(1, 5)}
    placements = place({A: Layout(pp=2, dp=2)}, {}, nodes(1, 1, 1, 1), domains=domains)
    assert not isinstance(placements, Unplaceable)
    replicas = [{placements[A][rank].node for rank in ranks} for ranks in ((0, 2), (1, 3))]
    assert replicas == [{"n1", "n3"}, {"n2", "n4"}]


def test_replicas_are_spread_only_where_no_rank_moves_for_it() -> None:
    current = {A: at("n1.0", "n1.1")}
    assert place({A: Layout(dp=2)}, current, nodes(2, 2), domains=APART) == current
    grown = place({A: Layout(dp=3)}, current, nodes(3, 2), domains=APART)
    assert not isinstance(grown, Unplaceable)
    assert grown[A][2].node == "n2"


def test_a_group_that_lost_a_worker_keeps_the_others_where_its_node_has_room() -> None:
    current = {A: at("n1.0", "n1.1", "n1.2")}
    layouts, blocked = {A: Layout(tp=3)}, at("n1.1")
    assert place(layouts, current, nodes(4, 4), blocked=blocked) == {A: at("n1.0", "n1.3", "n1.2")}
    assert place(layouts, current, nodes(3, 4), blocked=blocked) == {A: at("n2.0", "n2.1", "n2.2")}


def test_a_shrinking_task_stays_where_others_are_so_that_whole_nodes_get_free() -> None:
    current = {A: at("n1.0", "n2.0"), B: at("n2.1")}
    assert placed({A: Layout(), B: Layout()}, current, nodes(2, 2))[A] == at("n2.0")


def test_a_missing_chunk_goes_where_it_leaves_the_smallest_hole() -> None:
    current = {A: at("n2.0")}
    assert placed({A: Layout(), B: Layout()}, current, nodes(2, 2))[B] == at("n2.1")


def test_a_task_that_starts_anew_anyway_makes_room_before_one_that_is_left_alone() -> None:
    # C needs two workers of one node. B changes its size and moves together; A stays.
    current = {A: at("n1.0"), B: at("n2.0", "n3.0", "n4.0")}
    available = nodes(2, 2, 2, 2)
    layouts = {A: Layout(), B: Layout(dp=4), C: Layout(tp=2)}
    placements = placed(layouts, current, available)
    assert placements[A] == current[A]


def test_a_task_that_is_left_alone_moves_only_if_nothing_else_helps() -> None:
    current = {A: at("n1.0"), B: at("n2.0")}
    placements = placed({A: Layout(), B: Layout(), C: Layout(tp=2)}, current, nodes(2, 2))
    moved = [task for task in (A, B) if placements[task] != current[task]]
    assert len(moved) == 1
    assert {worker.node for worker in placements[C]} != {placements[A][0].node}


def test_room_is_made_where_it_disturbs_the_fewest() -> None:
    # Every node is held by someone; three workers must come together on n4, where one sits.
    current = {A: at("n1.0", "n1.1", "n2.0", "n2.1", "n3.0", "n3.1", "n4.0")}
    layouts = {A: Layout(dp=7), B: Layout(tp=4)}
    placements = placed(layouts, current, nodes(4, 4, 4, 4))
    assert {worker.node for worker in placements[B]} == {"n4"}
    assert placements[A][:6] == current[A][:6]


def test_a_worker_that_two_tasks_name_goes_to_one_of_them() -> None:
    current = {A: at("n1.0"), B: at("n1.0")}
    placements = placed({A: Layout(), B: Layout()}, current, nodes(2))
    assert placements == {A: at("n1.0"), B: at("n1.1")}


def test_a_present_group_that_spans_nodes_is_not_kept() -> None:
    placements = placed({A: Layout(tp=2)}, {A: at("n1.0", "n2.0")}, nodes(2, 2))
    assert placements == {A: at("n1.0", "n1.1")}


def test_a_slot_that_the_node_no_longer_has_is_not_kept() -> None:
    assert placed({A: Layout()}, {A: at("n1.5")}, nodes(2)) == {A: at("n1.0")}


def test_too_few_workers_are_named_with_both_numbers() -> None:
    assert reason({A: Layout(dp=4)}, nodes(2, 1)) == "the tasks need 4 workers, 3 are available"


def test_a_group_larger_than_every_node_is_named() -> None:
    assert reason({A: Layout(tp=4)}, nodes(2, 2)) == (
        "a needs 4 workers in one node (tp), the largest has 2"
    )


def test_groups_that_do_not_pack_are_named() -> None:
    assert reason({A: Layout(tp=2, dp=2), B: Layout()}, nodes(3, 1, 1)) == (
        "the tensor-parallel groups do not fit into the nodes: a tp2 pp1 dp2, b tp1 pp1 dp1"
    )


def test_a_cluster_without_nodes_has_no_room() -> None:
    assert reason({A: Layout()}, {}) == "the tasks need 1 workers, 0 are available"


PP2 = Layout(pp=2, dp=3)
PLACES = at("a.0", "b.0", "c.0", "a.1", "b.1", "c.1")
"""Replicas a, b and c, each on a node of its own with a stage on every worker."""


def replaced(new: Layout, *lost: str) -> Placement:
    house = {NodeId(name): 2 for name in "abc"}
    placements = place(
        {A: new}, {A: PLACES}, house, layouts_before={A: PP2}, blocked=set(at(*lost))
    )
    assert not isinstance(placements, Unplaceable), placements.reason
    return placements[A]


def test_a_task_that_shrinks_keeps_whole_replicas() -> None:
    assert replaced(Layout(pp=2, dp=2), "a.0") == at("b.0", "c.0", "b.1", "c.1")


def test_what_is_left_of_two_replicas_makes_one_where_the_stages_differ() -> None:
    placement = replaced(Layout(pp=2, dp=2), "a.0", "b.1")
    assert set(placement) == set(at("b.0", "c.0", "a.1", "c.1"))
    assert placement == at("b.0", "c.0", "a.1", "c.1")


def test_ranks_that_go_on_keep_their_stage_although_another_worker_is_nearer() -> None:
    placements = place(
        {A: Layout(pp=2, dp=2)}, {A: at("a.0", "a.1")}, {NodeId("a"): 2, NodeId("b"): 2},
        layouts_before={A: Layout(pp=2, dp=1)},
    )  # fmt: skip
    assert placements == {A: at("a.0", "b.0", "a.1", "b.1")}


def test_with_another_model_layout_every_worker_that_is_held_stays() -> None:
    placements = place(
        {A: Layout(tp=2)}, {A: at("b.0", "b.1")}, nodes(2) | {NodeId("b"): 2},
        layouts_before={A: Layout(pp=2)},
    )  # fmt: skip
    assert placements == {A: at("b.0", "b.1")}


def test_a_task_that_shrinks_keeps_groups_that_are_whole() -> None:
    pairs = at("n1.0", "n1.1", "n1.2", "n1.3")
    placements = place({A: Layout(tp=2)}, {A: pairs}, nodes(4), blocked=at("n1.1"))
    assert placements == {A: at("n1.2", "n1.3")}


def test_a_stage_that_moves_joins_the_replica_in_its_domain() -> None:
    house = {NodeId("a"): 2, NodeId("b"): 1, NodeId("c"): 2, NodeId("d"): 1}
    domains = {NodeId("b"): "x", NodeId("d"): "x", NodeId("c"): "y"}
    placements = place(
        {A: Layout(pp=2, dp=3)}, {A: at("a.0", "a.1")}, house,
        layouts_before={A: Layout(pp=2)}, domains=domains,
    )  # fmt: skip
    assert placements == {A: at("a.0", "b.0", "c.0", "a.1", "d.0", "c.1")}


def test_workers_that_nobody_holds_are_given_before_those_of_a_task_that_stops() -> None:
    assert placed({B: Layout()}, {A: at("n1.0")}, nodes(2)) == {B: at("n1.1")}


def test_a_placement_is_told_by_rank_with_neighbours_in_one_term() -> None:
    assert runs_of(at("n1.0", "n1.1", "n2.3", "n2.2", "n1.2")) == [
        "n1:0-1", "n2:3", "n2:2", "n1:2",
    ]  # fmt: skip
    assert runs_of(()) == []
