"""An SSH connection to a node, with the node's own key and host key."""

import asyncio
import contextlib
from typing import Final

import asyncssh

from controller.fleet.address import NodeAddress, connected_socket

CONNECT_LIMIT_S: Final = 10.0


async def open_connection(
    address: NodeAddress, handshakes: asyncio.Semaphore
) -> asyncssh.SSHClientConnection:
    """Return an SSH connection.

    Args:
        address: The node.
        handshakes: Limits how many handshakes are under way.

    Raises:
        OSError, asyncssh.Error: There is none within the time limits.
    """
    # A machine that is down takes the whole limit. It must not take another node's handshake.
    async with asyncio.timeout(CONNECT_LIMIT_S):
        socket = await connected_socket(address.host, address.port)
    with contextlib.ExitStack() as closing:
        closing.callback(socket.close)
        async with handshakes:
            connection = await asyncssh.connect(
                address.host,
                address.port,
                sock=socket,
                username=address.user,
                client_keys=[address.client_key],
                known_hosts=_known_hosts(address),
                agent_path=None,
                config=None,
                login_timeout=CONNECT_LIMIT_S,
            )
        closing.pop_all()  # the connection closes it from now on
    return connection


def _known_hosts(address: NodeAddress) -> asyncssh.SSHKnownHosts:
    """Return the host keys that a node may have.

    Raises:
        OSError: Its known_hosts file can't be read.
    """
    if address.host_public_key:
        return asyncssh.import_known_hosts(address.known_hosts_line + "\n")
    return asyncssh.read_known_hosts(address.known_hosts)
