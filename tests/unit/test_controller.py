"""What a controller makes of its charter."""

from pathlib import Path

from controller.clock import SystemClock
from controller.controller import Charter, Controller
from controller.core.policy import Policy
from controller.fleet.address import NodeAddress
from nodeagent.protocol.ids import NodeId

N1, N2 = NodeId("n1"), NodeId("n2")


def address(node: NodeId) -> NodeAddress:
    return NodeAddress(
        node, "127.0.0.1", 22, "op", "key", "ssh-ed25519 AAAA", "/tmp/x", "python", 2
    )


def test_nodes_have_the_failure_domains_of_the_charter(tmp_path: Path) -> None:
    charter = Charter([address(N1), address(N2)], [], {}, Policy(), failure_domains={N2: "rack-2"})
    controller = Controller(charter, tmp_path / "journal", SystemClock(), lambda _node, _text: None)
    domains = {name: node.spec.failure_domain for name, node in controller.state.nodes.items()}
    controller._journal.close()
    assert domains == {N1: "", N2: "rack-2"}
