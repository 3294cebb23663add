"""The network interfaces of this machine, and the one where others reach its ranks.

Addresses come from the C library's ``getifaddrs``: Python's standard library has names of
interfaces, but not which addresses they hold. The interface of ranks is

1. the one that the cluster file names;
2. the one that holds the node's own training address;
3. the one that routes to the other nodes of the task.

Nothing here needs another module of the agent: ``unicron check`` runs the text of this one on
nodes that have no agent yet.
"""

import contextlib
import ctypes
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

_ANY_PORT: Final = 9


class _SocketAddress(ctypes.Structure):
    pass


class _Entry(ctypes.Structure):
    pass


_SocketAddress._fields_ = (("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26))
_Entry._fields_ = (
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SocketAddress)),
)

_OFFSET_AND_BYTES: Final[dict[int, tuple[int, int]]] = {
    socket.AF_INET: (2, 4),
    socket.AF_INET6: (6, 16),
}
"""Where an address lies behind the family, and how long it is."""


def interface_addresses() -> list[tuple[str, str]]:
    """Return the name and an address of each interface, IPv4 first; several for some interfaces.

    Raises:
        OSError: The system does not say.
    """
    library = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_Entry)()
    if library.getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs")
    try:
        found = list(_addresses(first))
    finally:
        library.freeifaddrs(first)
    return sorted(found, key=lambda each: ":" in each[1])


def _addresses(entry: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - a pointer of C
    while entry:
        here = entry.contents
        family = here.address.contents.family if here.address else 0
        if family in _OFFSET_AND_BYTES:
            offset, length = _OFFSET_AND_BYTES[family]
            packed = bytes(here.address.contents.data[offset : offset + length])
            yield here.name.decode(), socket.inet_ntop(family, packed)
        entry = here.next


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


def find_interface(
    host: str, interface: str = "", peers: Sequence[str] = ()
) -> TrainingInterface | None:
    """Return the interface for the ranks of a task on this node; None if nothing shows it.

    Args:
        host: Name or address at which other nodes reach this node's ranks.
        interface: The interface that the cluster file names; empty to find it.
        peers: Names or addresses of the task's other nodes.

    Raises:
        NoInterfaceError: This node does not have the interface that the cluster file names.
    """
    held = interface_addresses()
    if interface:
        return _named(interface, held)
    own = [address for address in _addresses_of(host) if address in dict(_turned(held))]
    there = [address for peer in peers for address in _addresses_of(peer)]
    is_local = all(ip_address(peer).is_loopback for peer in there)
    found = next((each for each in own if is_local or not ip_address(each).is_loopback), None)
    if found is None and there:
        found = next(filter(None, map(_address_towards, there)), None)
    if found is None:
        return None
    return TrainingInterface(dict(_turned(held))[found], found)


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
