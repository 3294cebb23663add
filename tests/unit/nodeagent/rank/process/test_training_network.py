"""The interface of a rank: named, or holding the node's address, or leading to the peers."""

import socket

import pytest

from nodeagent.process_tools.network_interfaces import (
    NoInterfaceError,
    TrainingInterface,
    interface_addresses,
)
from nodeagent.protocol.rank_launch import RankNetwork
from nodeagent.rank.process.training_network import interface_of, network_variables

LOOPBACK = TrainingInterface("lo", "127.0.0.1")


def other_interface() -> TrainingInterface:
    """Return an interface of this machine that is not the loopback one."""
    for name, address in interface_addresses():
        if not address.startswith(("127.", "::1", "fe80")):
            return TrainingInterface(name, address)
    pytest.skip("this machine has the loopback interface alone")


def test_the_system_names_its_interfaces_with_their_addresses() -> None:
    found = interface_addresses()
    assert ("lo", "127.0.0.1") in found
    assert {name for name, _ in found} <= {name for _, name in socket.if_nameindex()}


def test_nodes_on_one_machine_meet_on_the_loopback_interface() -> None:
    assert interface_of(RankNetwork(host="127.0.0.1")) == LOOPBACK
    assert interface_of(RankNetwork(host="127.0.0.1", peers=("127.0.0.1",))) == LOOPBACK
    assert interface_of(RankNetwork(host="localhost", peers=("localhost",))) is not None


def test_the_interface_that_holds_the_address_of_the_node_is_taken() -> None:
    found = other_interface()
    network = RankNetwork(host=found.address, peers=("192.0.2.77",))
    assert interface_of(network) == found


def test_a_name_that_leads_to_the_loopback_interface_is_not_believed() -> None:
    # As on Debian, where the machine's own name is 127.0.1.1, and in many containers 127.0.0.1.
    found = other_interface()
    for host in ("127.0.0.1", "127.0.1.1", "no-such-host.invalid"):
        network = RankNetwork(host=host, peers=(found.address,))
        chosen = interface_of(network)
        assert chosen is not None
        assert chosen.address == found.address


def test_an_interface_that_is_named_is_taken_and_must_be_there() -> None:
    found = other_interface()
    network = RankNetwork(host="127.0.0.1", interface=found.name)
    chosen = interface_of(network)
    assert chosen is not None
    assert chosen.name == found.name
    with pytest.raises(
        NoInterfaceError, match="this node has no interface ib7 with an address; it"
    ):
        interface_of(RankNetwork(host="127.0.0.1", interface="ib7"))


def test_nothing_is_chosen_where_nothing_shows_it() -> None:
    assert interface_of(RankNetwork(host="no-such-host.invalid")) is None
    assert network_variables(None, {}) == {}


def test_gloo_and_nccl_are_told_unless_somebody_has_told_them() -> None:
    network = RankNetwork(host="127.0.0.1")
    assert network_variables(network, {}) == {
        "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo",
    }  # fmt: skip
    told = network_variables(network, {"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": ""})
    assert told == {"NCCL_SOCKET_IFNAME": "=lo"}
