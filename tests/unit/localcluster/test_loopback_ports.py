"""Ports are held for the nodes, and servers can listen on them all the same."""

import socket

import pytest

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.loopback_ports import reserve_ports
from nodeagent.protocol.ids import NodeId

NODES = [NodeId("n1"), NodeId("n2"), NodeId("n3")]


def test_a_server_can_listen_on_a_held_port_and_again_after_its_end() -> None:
    with reserve_ports(NODES, None) as ports:
        assert len(set(ports.values())) == 3
        for _ in range(2):
            with (
                socket.create_server(("127.0.0.1", ports[NODES[0]])) as server,
                socket.create_connection(server.getsockname()) as client,
            ):
                accepted, _ = server.accept()
                accepted.close()
                assert client.recv(1) == b""


def test_a_held_port_is_not_held_twice() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LocalClusterError) as caught, reserve_ports(NODES, port - 1):
            pass
    assert str(caught.value) in {
        f"port {taken_port} on 127.0.0.1 is in use (node {node}):"
        " choose another --base-port or leave it out"
        for taken_port, node in [(port - 1, "n1"), (port, "n2")]
    }


@pytest.mark.parametrize(("base_port", "port", "node"), [(65534, 65536, "n3"), (0, 0, "n1")])
def test_a_port_that_does_not_exist_is_one_clear_error(
    base_port: int, port: int, node: str
) -> None:
    expected = pytest.raises(
        LocalClusterError, match=rf"port {port} .* does not exist \(node {node}\)"
    )
    with expected, reserve_ports(NODES, base_port):
        pass
