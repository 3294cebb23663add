"""How a node is reached: the pinned key is found under the name that asyncssh looks for."""

from dataclasses import replace

import asyncssh
import pytest

from controller.fleet.address import NodeAddress, SshTarget
from controller.fleet.host_keys import HostKeyCheck
from nodeagent.protocol.ids import NodeId

KEY = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()


def address(host: str, port: int) -> NodeAddress:
    return NodeAddress(
        node=NodeId("n1"),
        ssh=SshTarget(host, port, "op", "/key", KEY),
        state_dir="/var/lib/unicron",
        python="/usr/bin/python3",
        num_workers=8,
    )


def keys_of(hosts: asyncssh.SSHKnownHosts, host: str, ip: str, port: int | None) -> set[bytes]:
    """Return the keys that a connection would trust."""
    keys, *_ = asyncssh.match_known_hosts(hosts, host, ip, port)
    return {key.export_public_key() for key in keys}


@pytest.mark.parametrize(
    ("host", "ip"),
    [("10.0.0.1", "10.0.0.1"), ("gpu-1.example.org", "10.0.0.1"), ("fd00::1", "fd00::1")],
)
@pytest.mark.parametrize("port", [22, 2222])
def test_the_pinned_key_is_found_and_only_for_its_node(host: str, ip: str, port: int) -> None:
    hosts = HostKeyCheck(address(host, port).ssh, None).known_hosts
    # As a connection asks: without the port where it is the default one.
    asked = None if port == 22 else port
    assert keys_of(hosts, host, ip, asked) == {KEY.encode()}
    assert not keys_of(hosts, "gpu-2.example.org", "10.0.0.2", asked)


def test_a_key_of_another_port_is_not_the_nodes() -> None:
    hosts = HostKeyCheck(address("10.0.0.1", 2222).ssh, None).known_hosts
    assert not keys_of(hosts, "10.0.0.1", "10.0.0.1", 2223)


def test_the_agents_socket_lies_in_the_state_directory() -> None:
    assert address("h", 22).agent_socket == "/var/lib/unicron/agent.sock"


def test_paths_below_the_home_of_the_user_become_absolute() -> None:
    given = replace(address("h", 22), state_dir="~/.unicron/a/n1", python="~/venv/bin/python")
    found = given.at_home("/home/train")
    assert not given.is_absolute
    assert found.is_absolute
    assert found.agent_socket == "/home/train/.unicron/a/n1/agent.sock"
    assert found.python == "/home/train/venv/bin/python"
    assert address("h", 22).at_home("/home/train") == address("h", 22)
