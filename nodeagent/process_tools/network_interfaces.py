"""The network interfaces of this machine and their addresses, from the C library's ``getifaddrs``.

Python's standard library has names of interfaces, but not which addresses they hold.
"""

import ctypes
import socket
from collections.abc import Iterator
from typing import Any, Final


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
