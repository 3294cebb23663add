"""Whether an SSH server answers at an address, as seen from this node.

The evidence that separates a lost node from a lost connection: the controller asks the nodes
around it. A TCP handshake alone proves little (a listen queue answers for a stopped process), so
the server's banner is read. Whether the node *is* lost is not judged here.
"""

import asyncio
import socket
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

_BANNER: Final = b"SSH-"
_MAX_ADDRESSES: Final = 4


class PeerAnswer(StrEnum):
    """The result of a probe, the strongest evidence first."""

    ANSWERED = "answered"
    """An SSH banner came."""
    REFUSED = "refused"
    """A machine answered, and but no SSH server: refused, reset, closed, or other text."""
    SILENT = "silent"
    """Nothing came in time, or no route leads there."""


async def probe_ssh(hosts: Sequence[str], port: int, timeout_s: float) -> PeerAnswer:
    """Connect to all addresses of ``hosts``, names of one machine, and wait for an SSH banner.

    Of several answers the one that proves most counts.

    Raises:
        OSError: The probe could not run, for instance because no host has an address.
    """
    loop = asyncio.get_running_loop()
    addresses: dict[str, None] = {}
    failure: OSError | None = None
    for host in hosts:
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            failure = error
        else:
            addresses |= dict.fromkeys(str(address[0]) for *_, address in found[:_MAX_ADDRESSES])
    if not addresses:
        raise failure or OSError("no host to look at")
    async with asyncio.TaskGroup() as group:
        probes = [
            group.create_task(_probe_address(address, port, timeout_s)) for address in addresses
        ]
    answers = [probe.result() for probe in probes]
    return min(answers, key=list(PeerAnswer).index)


async def _probe_address(address: str, port: int, timeout_s: float) -> PeerAnswer:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                head = await reader.readexactly(len(_BANNER))
            finally:
                writer.close()
    except (ConnectionRefusedError, ConnectionResetError, asyncio.IncompleteReadError):
        return PeerAnswer.REFUSED
    except OSError:  # TimeoutError is one
        return PeerAnswer.SILENT
    return PeerAnswer.ANSWERED if head == _BANNER else PeerAnswer.REFUSED
