"""Which network interface a rank uses, and where its peers reach it.

By default gloo takes the address that the machine's name has. Debian and Ubuntu map that name to
127.0.1.1, so ranks of two machines never meet. NCCL takes the first interface that looks right.
So the interface is found here, before a rank makes its groups:

1. the one that the cluster file names;
2. the one that holds the node's own training address;
3. the one that routes to the other nodes of the task.

Nothing here needs torch.
"""

import contextlib
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from nodeagent.process_tools.network_interfaces import interface_addresses
from nodeagent.protocol.rank_launch import RankNetwork

GLOO_VARIABLE: Final = "GLOO_SOCKET_IFNAME"
NCCL_VARIABLE: Final = "NCCL_SOCKET_IFNAME"
_ANY_PORT: Final = 9


@dataclass(frozen=True, slots=True)
class TrainingInterface:
    """An interface of this machine.

    Attributes:
        name: Its name.
        address: Its address, at which peers reach it.
    """

    name: str
    address: str


class NoInterfaceError(Exception):
    """The interface that the cluster file names is not there. The text is one line."""


def find_interface(network: RankNetwork) -> TrainingInterface | None:
    """Return the interface for the ranks of a task on this node; None if nothing shows it.

    Raises:
        NoInterfaceError: The cluster file names an interface that this node does not have.
    """
    held = interface_addresses()
    if network.interface:
        return _named(network.interface, held)
    own = [address for address in _addresses_of(network.host) if address in dict(_turned(held))]
    peers = [address for host in network.peers for address in _addresses_of(host)]
    is_local = all(ip_address(peer).is_loopback for peer in peers)
    found = next((each for each in own if is_local or not ip_address(each).is_loopback), None)
    if found is None and peers:
        found = next(filter(None, map(_address_towards, peers)), None)
    if found is None:
        return None
    return TrainingInterface(dict(_turned(held))[found], found)


def network_variables(network: RankNetwork | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that have gloo and NCCL use the interface.

    A variable that is set already stays as it is: the site or the user knows better.

    Raises:
        NoInterfaceError: The cluster file names an interface that this node does not have.
    """
    found = find_interface(network) if network is not None else None
    if found is None:
        return {}
    # NCCL takes a name for the beginning of names, unless it begins with "=".
    wanted = {GLOO_VARIABLE: found.name, NCCL_VARIABLE: f"={found.name}"}
    return {name: value for name, value in wanted.items() if not inherited.get(name)}


def _named(name: str, held: list[tuple[str, str]]) -> TrainingInterface:
    for each, address in held:
        if each == name:
            return TrainingInterface(name, address)
    there = ", ".join(dict.fromkeys(each for each, _ in held))
    raise NoInterfaceError(
        f"training_interface: this node has no interface {name} with an address; it has {there}"
    )


def _turned(held: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((address, name) for name, address in held)


def _addresses_of(host: str) -> list[str]:
    """Return the addresses of a host, or none if its name is unknown here."""
    with contextlib.suppress(OSError, UnicodeError):
        found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)
        return list(dict.fromkeys(str(place[0]).partition("%")[0] for *_, place in found))
    return []


def _address_towards(peer: str) -> str | None:
    """Return the own address of packets to ``peer``. Nothing is sent."""
    family = socket.AF_INET6 if ":" in peer else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, _ANY_PORT))
        return str(probe.getsockname()[0])
    return None
