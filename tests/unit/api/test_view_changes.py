"""A view and its changes make the next view, whatever changed; nonsense is one clear error."""

import json
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from controller.api.view_changes import ChangesError, applied, difference, is_mostly_new
from controller.api.views import ClusterView, NodeView, TaskView, WorkerView
from controller.api.wire import Changes, FollowChanges, Snapshot
from tests.fakes import cluster_views

SCENES = [
    cluster_views.calm(),
    cluster_views.calm(101.0),
    cluster_views.waiting(),
    cluster_views.asking(),
    cluster_views.healed(),
    cluster_views.parking_task(),
    cluster_views.calm().model_copy(update={"nodes": [], "tasks": []}),
]


def over_the_wire(before: ClusterView, after: ClusterView) -> ClusterView:
    """Return ``before`` with the changes, which a client reads from a line."""
    line = Changes.model_construct(fields=difference(before, after)).model_dump_json()
    return applied(before, Changes.model_validate_json(line).fields)


@pytest.mark.parametrize("before", SCENES)
@pytest.mark.parametrize("after", SCENES)
def test_a_view_becomes_any_other(before: ClusterView, after: ClusterView) -> None:
    assert over_the_wire(before, after) == after


def test_equal_views_have_no_changes() -> None:
    assert difference(cluster_views.calm(), cluster_views.calm()) == {}


@given(st.data())
def test_nodes_come_leave_and_move(data: st.DataObject) -> None:
    calm = cluster_views.calm()

    def nodes() -> list[NodeView]:
        chosen = data.draw(st.lists(st.sampled_from(calm.nodes), unique_by=lambda each: each.node))
        return [
            node.model_copy(update={"note": data.draw(st.sampled_from(["", "slow", "late"]))})
            for node in chosen
        ]

    before = calm.model_copy(update={"nodes": nodes()})
    after = calm.model_copy(update={"nodes": nodes()})
    assert over_the_wire(before, after) == after


@given(st.data())
def test_workers_come_leave_and_change(data: st.DataObject) -> None:
    calm = cluster_views.calm()

    def with_workers() -> ClusterView:
        slots = data.draw(st.lists(st.integers(0, 3), unique=True))
        iterations = st.none() | st.integers(0, 2**40)
        workers = [WorkerView(worker=each, iteration=data.draw(iterations)) for each in slots]
        node = calm.nodes[0].model_copy(update={"workers": workers})
        return calm.model_copy(update={"nodes": [node, *calm.nodes[1:]]})

    before, after = with_workers(), with_workers()
    assert over_the_wire(before, after) == after


def test_a_fleet_of_workers_takes_little_memory() -> None:
    node = cluster_views.calm().nodes[0]
    workers = [replace(node.workers[0], worker=slot, pid=5000 + slot) for slot in range(1000)]
    line = node.model_copy(update={"workers": workers}).model_dump_json()
    tracemalloc.start()
    try:
        read = NodeView.model_validate_json(line)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read.workers == workers
    assert taken < 300 * len(workers)  # a model takes 1,180 each


@given(st.data())
def test_losses_come_leave_and_are_no_numbers(data: st.DataObject) -> None:
    values = st.floats(width=32)
    tables = st.dictionaries(st.integers(1, 200), values, max_size=20)
    before, after = (
        cluster_views.calm().model_copy(
            update={"tasks": [cluster_views.task("gpt-a", 10, losses=data.draw(tables))]}
        )
        for _ in range(2)
    )
    # NaN is not equal to itself.
    assert repr(dict(sorted(over_the_wire(before, after).tasks[0].losses.items()))) == repr(
        dict(sorted(after.tasks[0].losses.items()))
    )


def test_a_heartbeat_of_one_node_is_a_short_line() -> None:
    before = cluster_views.calm()
    node = before.nodes[1]
    worker = replace(node.workers[0], iteration=119)
    after = before.model_copy(
        update={
            "now": 100.5,
            "nodes": [
                before.nodes[0],
                node.model_copy(
                    update={"heartbeat_at": 100.4, "workers": [worker, node.workers[1]]}
                ),
                *before.nodes[2:],
            ],
        }
    )
    assert difference(before, after) == {
        "now": 100.5,
        "nodes": {
            "changed": {
                "1": {"heartbeat_at": 100.4, "workers": {"changed": {"0": {"iteration": 119}}}}
            }
        },
    }


def test_an_iteration_sends_one_loss_of_many() -> None:
    def view(iteration: int) -> ClusterView:
        tasks: list[TaskView] = [cluster_views.task("gpt-a", iteration)]
        return cluster_views.calm().model_copy(update={"tasks": tasks})

    before, after = view(150), view(151)
    found = json.loads(json.dumps(difference(before, after)))["tasks"]["changed"]["0"]["losses"]
    assert list(found["changed"]) == ["151"]
    assert found["gone"] == [31]
    whole = len(Snapshot(view=after).model_dump_json())
    assert len(json.dumps(difference(before, after))) < whole / 3


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"waf": "much"}, "waf: Input should be a valid number"),
        ({"nodes": {"order": [0, 9]}}, "nodes.9: there are 4 entries"),
        ({"nodes": {"order": [-1]}}, "nodes.-1: there are 4 entries"),
        ({"nodes": {"order": [{"node": "n9"}]}}, "nodes: Field required"),
        ({"nodes": {"changed": {"x": {}}}}, "nodes: invalid literal for int()"),
        ({"nodes": {"changed": {"0": {"condition": "odd"}}}}, "nodes.condition: Input should be "),
        ({"nodes": [1]}, "nodes: list is no table"),
        (
            {"nodes": {"changed": {"0": {"workers": {"changed": {"0": {"pid": "x"}}}}}}},
            "nodes.workers.pid: Input should be a valid integer",
        ),
        (
            {"nodes": {"changed": {"0": {"workers": {"order": [{"pid": 1}]}}}}},
            "nodes.workers: Field required",
        ),
        (
            {"tasks": {"changed": {"0": {"losses": {"gone": "x"}}}}},
            "tasks.losses: str is no list",
        ),
    ],
)
def test_changes_that_do_not_fit_name_the_place(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ChangesError) as caught:
        applied(cluster_views.calm(), fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(reason)


def test_fields_of_a_newer_controller_are_ignored() -> None:
    calm = cluster_views.calm()
    assert applied(calm, {"moon": 1, "nodes": {"changed": {"0": {"phase": "full"}}}}) == calm
    of_worker = {"nodes": {"changed": {"0": {"workers": {"changed": {"0": {"phase": "full"}}}}}}}
    assert applied(calm, of_worker) == calm  # type: ignore[arg-type]
    snapshot = json.loads(Snapshot(view=calm).model_dump_json())
    snapshot["view"]["nodes"][0]["workers"][0]["phase"] = "full"
    assert Snapshot.model_validate_json(json.dumps(snapshot)).view == calm


def test_a_client_asks_with_one_word() -> None:
    assert FollowChanges().model_dump_json() == '{"kind":"follow_changes"}'


def test_a_large_cluster_of_which_most_is_new_is_sent_whole() -> None:
    calm = cluster_views.calm()

    def view(num_new: int) -> ClusterView:
        """Return 400 nodes, of which so many are other objects than before."""
        new = [node.model_copy() for node in many[:num_new]]
        return calm.model_copy(update={"nodes": [*new, *many[num_new:]]})

    many = [calm.nodes[0].model_copy(update={"node": f"n{number}"}) for number in range(400)]
    before = view(0)
    assert not is_mostly_new(before, view(200))
    assert is_mostly_new(before, view(201))
    assert not is_mostly_new(calm, cluster_views.calm())
