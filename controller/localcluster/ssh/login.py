"""Logs in to a node like the fleet: the run's key, a pinned host key, no file of the user's.

Also waits until an SSH server serves, that is, until a command ran over a login.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import asyncssh

from controller.localcluster.cluster_errors import ServerError
from controller.localcluster.local_node import LocalNode

_SERVING_LIMIT_S: Final = 15.0
_POLL_S: Final = 0.01


async def log_in(node: LocalNode) -> asyncssh.SSHClientConnection:
    """Return a new connection to ``node``. The caller closes it.

    Raises:
        OSError: No server listens at the node's port.
        asyncssh.Error: Wrong host key, login refused, connection lost.
    """
    return await asyncssh.connect(
        node.host,
        node.port,
        username=node.user,
        client_keys=[str(node.client_key_path)],
        known_hosts=asyncssh.import_known_hosts(node.address.ssh.known_hosts_line),
        preferred_auth=["publickey"],
        agent_path=None,
        config=None,
    )


async def wait_until_serving(node: LocalNode, is_server_alive: Callable[[], bool]) -> str:
    """Wait until a login on ``node`` runs a command; return the server's version string.

    Raises:
        ServerError: The server ended, refused the login, or was not ready in time.
    """
    version: str | None = None
    try:
        async with asyncio.timeout(_SERVING_LIMIT_S):
            while version is None:
                is_alive = is_server_alive()
                version = await _try_login(node)
                if version is None:
                    if not is_alive:
                        raise ServerError("the server ended")
                    await asyncio.sleep(_POLL_S)
    except TimeoutError:
        raise ServerError(f"no login within {_SERVING_LIMIT_S:.0f} s") from None
    except (asyncssh.Error, OSError) as error:
        raise ServerError(f"login failed: {error}") from error
    return version


async def _try_login(node: LocalNode) -> str | None:
    """Run a command on ``node``; return the server's version, or None if no server listens yet."""
    try:
        connection = await log_in(node)
    except ConnectionRefusedError:
        return None
    try:
        result = await connection.run("exit 0", check=False)
        if result.exit_status != 0:
            output = f"{result.stderr!s}{result.stdout!s}".strip().replace("\n", " ")
            raise ServerError(f"a command ended with {result.exit_status}: {output}")
        version: str = connection.get_extra_info("server_version")
        return version
    finally:
        connection.close()
        await connection.wait_closed()
