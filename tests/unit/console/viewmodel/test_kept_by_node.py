"""What is kept of each node's view."""

from console.viewmodel.kept_by_node import KeptByNode
from controller.api.views import NodeView
from tests.fakes import cluster_views


def test_only_what_has_changed_is_made_again_and_what_has_gone_is_forgotten() -> None:
    made: list[str] = []

    def make(node: NodeView) -> str:
        made.append(node.node)
        return f"{node.node} {node.condition}"

    kept = KeptByNode(make)
    nodes = cluster_views.calm().nodes
    first = kept.of(nodes)
    assert made == [node.node for node in nodes]
    made.clear()
    changed = nodes[1].model_copy(update={"note": "another"})
    assert kept.of([nodes[0], changed, *nodes[2:]]) == first
    assert made == [changed.node]
    made.clear()
    assert kept.of(nodes[:1]) == first[:1]
    assert made == []
    assert kept.of(nodes) == first
    assert made == [node.node for node in nodes[1:]], "it keeps those of the newest view alone"


def test_a_node_that_is_there_twice_is_made_once() -> None:
    made: list[str] = []
    kept = KeptByNode(lambda node: made.append(node.node))
    node = cluster_views.calm().nodes[0]
    assert kept.of([node, node]) == [None, None]
    assert made == [node.node]
