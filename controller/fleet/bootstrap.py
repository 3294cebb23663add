"""Start the agent on a node over plain SSH: copy its files, start it, check its health.

Idempotent: files that are there are not copied again, and an agent that runs is only asked for its
health. The agent needs no root and opens no port. Its files are below the node's state directory.
"""

import asyncio
import logging
from typing import Final

import asyncssh

from controller.fleet.address import NodeAddress
from controller.fleet.bundle import Bundle
from controller.fleet.errors import PermanentLinkError, TemporaryLinkError, translated
from controller.fleet.node_commands import (
    copy_files,
    in_free_session,
    run_if_there,
    shell_line,
    why_failed,
)
from controller.fleet.node_connection import CONNECT_LIMIT_S
from nodeagent.protocol.bridging import BRIDGE_MARKER
from profiles.records import on_one_line

_LOG: Final = logging.getLogger(__name__)
_START_LIMIT_S: Final = 60.0


async def ensure_agent(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, bundle: Bundle
) -> str:
    """Start an agent of the bundle's version on the node, unless one answers.

    Returns:
        The path of its socket there.

    Raises:
        TemporaryLinkError: The connection broke, or the agent did not answer in time.
        PermanentLinkError: The interpreter is missing, the state directory can't be written, or the
            agent failed. The text holds the node's own message.
    """
    directory = code_directory(address, bundle)
    doing = f"starting the agent on {address.node}"
    words = [address.python, directory, "start", "--state-dir", address.state_dir]
    words += ["--node", address.node, "--num-workers", str(address.num_workers)]
    if address.kernel_log:
        words += ["--kernel-log", address.kernel_log]
    if address.unit:
        words += ["--unit", address.unit]
    if not address.has_template:
        words.append("--no-template")
    done = await run_if_there(connection, doing, directory, words, limit_s=_START_LIMIT_S)
    if done is None:
        await copy_files(connection, address, "the agent", bundle.files, directory)
        _LOG.info(
            "agent copied: node=%s version=%s files=%d path=%s",
            address.node, bundle.version, len(bundle.files), directory,
        )  # fmt: skip
        done = await run_if_there(connection, doing, directory, words, limit_s=_START_LIMIT_S)
    if done is None:
        raise TemporaryLinkError(f"{doing}: {directory} was removed meanwhile")
    if done.status != 0:
        raise PermanentLinkError(f"{doing}: {why_failed(done, address)}")
    try:
        socket = str(done.answer("agent_id")["socket"])
    except (ValueError, KeyError) as error:
        raise TemporaryLinkError(f"{doing}: no answer") from error
    _LOG.info("agent runs: node=%s version=%s", address.node, bundle.version)
    return socket


def code_directory(address: NodeAddress, bundle: Bundle) -> str:
    """Return the directory on the node that holds this version of the agent's code."""
    return f"{address.state_dir}/agent/{bundle.version}"


async def open_bridge(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, bundle: Bundle, socket: str
) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
    """Open a session with the agent at ``socket`` over a command: the server forbids forwarding.

    Raises:
        TemporaryLinkError: No agent answers, or its code is not there. The text holds the reason.
    """
    words = [address.python, code_directory(address, bundle), "bridge"]
    line = shell_line([*words, "--socket", socket])
    with translated(f"opening a bridge to the agent on {address.node}"):
        async with asyncio.timeout(CONNECT_LIMIT_S):
            process: asyncssh.SSHClientProcess[bytes] = await in_free_session(
                lambda: connection.create_process(line, encoding=None)
            )
            try:
                await process.stdout.readuntil(BRIDGE_MARKER)
            except asyncio.IncompleteReadError as error:
                said = (await process.stderr.read()).decode(errors="replace").splitlines()
                await process.wait_closed()
                text = on_one_line(said[-1]) if said else "no message"
                raise TemporaryLinkError(
                    f"opening a bridge to the agent on {address.node}: {text}"
                ) from error
    return process.stdout, process.stdin
