"""Start the agent on a node over plain SSH: copy its files by SFTP, start it, check its health.

Idempotent: files that are there are not copied again, and an agent that runs is only asked for its
health. The agent needs no root and opens no port. Its files are below the node's state directory.
"""

import asyncio
import json
import logging
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import asyncssh

from controller.fleet.address import NodeAddress
from controller.fleet.bundle import Bundle
from controller.fleet.errors import PermanentLinkError, TemporaryLinkError, translated
from controller.fleet.node_connection import CONNECT_LIMIT_S
from nodeagent.protocol.bridging import BRIDGE_MARKER
from nodeagent.protocol.ids import NodeId
from profiles.records import on_one_line

_LOG: Final = logging.getLogger(__name__)
_START_LIMIT_S: Final = 30.0
_PARALLEL_COPIES: Final = 16
_TEMPORARY: Final = ".tmp"
_OLD_S: Final = 3600.0
"""Age of a copy that nobody completes any more. Clocks of two machines may differ by less."""
_SESSION_PAUSES_S: Final = (0.02, 0.1, 0.5)
_T = TypeVar("_T")


def shell_line(arguments: Sequence[str]) -> str:
    """Return ``arguments`` as the one string that SSH carries. Nothing else quotes."""
    return shlex.join(arguments)


async def in_free_session(begin: Callable[[], Awaitable[_T]]) -> _T:
    """Begin a command or SFTP. With ``MaxSessions 1`` the one before has to be gone.

    A server counts a session until it has reaped its process, soon after the client saw the end.

    Raises:
        asyncssh.Error: It can't be begun.
    """
    for pause_s in _SESSION_PAUSES_S:
        try:
            return await begin()
        except asyncssh.ChannelOpenError:
            await asyncio.sleep(pause_s)
    return await begin()


async def home_of(connection: asyncssh.SSHClientConnection, node: NodeId) -> str:
    """Return the absolute path of the home that a login on ``node`` begins in.

    Raises:
        TemporaryLinkError: The connection broke.
        PermanentLinkError: The node has no SFTP, or the user no home there.
    """
    with translated(f"looking up the home directory on {node}"):
        async with await in_free_session(connection.start_sftp_client) as sftp:
            home = await sftp.realpath(".")
    return str(home)


async def ensure_agent(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, bundle: Bundle
) -> None:
    """Start an agent of the bundle's version on the node, unless one answers.

    Raises:
        TemporaryLinkError: The connection broke, or the agent did not answer in time.
        PermanentLinkError: The interpreter is missing, the state directory can't be written, or the
            agent failed. The text holds the node's own message.
    """
    directory = code_directory(address, bundle)
    with translated(f"copying the agent to {directory} on {address.node}"):
        async with await in_free_session(connection.start_sftp_client) as sftp:
            if not await sftp.isdir(directory):
                await upload(sftp, bundle.files, directory)
                _LOG.info(
                    "agent copied: node=%s version=%s files=%d path=%s",
                    address.node, bundle.version, len(bundle.files), directory,
                )  # fmt: skip
    arguments = [address.python, directory, "start", "--state-dir", address.state_dir]
    arguments += ["--node", address.node, "--num-workers", str(address.num_workers)]
    if address.kernel_log:
        arguments += ["--kernel-log", address.kernel_log]
    if not address.has_template:
        arguments.append("--no-template")
    with translated(f"starting the agent on {address.node}"):
        line = shell_line(arguments)
        result = await in_free_session(lambda: connection.run(line, timeout=_START_LIMIT_S))
    if result.exit_status != 0:
        words = str(result.stderr or "").strip().splitlines()
        raise PermanentLinkError(
            f"starting the agent on {address.node}: exit status {result.exit_status}:"
            f" {words[-1] if words else 'no message'}"
        )
    if not _has_answer(str(result.stdout or "")):
        raise TemporaryLinkError(f"starting the agent on {address.node}: no answer")
    _LOG.info("agent runs: node=%s version=%s", address.node, bundle.version)


def code_directory(address: NodeAddress, bundle: Bundle) -> str:
    """Return the directory on the node that holds this version of the agent's code."""
    return f"{address.state_dir}/agent/{bundle.version}"


def _has_answer(text: str) -> bool:
    """Return whether a text ends with what ``start`` prints. A login shell may print first."""
    try:
        return "agent_id" in json.loads(text[text.rfind("{") :])
    except (ValueError, TypeError):
        return False


async def open_bridge(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, bundle: Bundle
) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
    """Open a session with the agent over a command, where the server forbids forwarding.

    Raises:
        TemporaryLinkError: No agent answers, or its code is not there. The text holds the reason.
    """
    words = [address.python, code_directory(address, bundle), "bridge"]
    line = shell_line([*words, "--state-dir", address.state_dir])
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


async def upload(sftp: asyncssh.SFTPClient, files: Mapping[str, bytes], directory: str) -> None:
    """Copy files by their paths to a temporary name, then rename: a directory is never incomplete.

    Others may copy the same at the same time: each has a name of its own.

    Raises:
        asyncssh.SFTPError: Something can't be written.
    """
    await _remove_old_copies(sftp, directory)
    temporary = f"{directory}.{secrets.token_hex(4)}{_TEMPORARY}"
    folders = {path.rpartition("/")[0] for path in files}
    for folder in sorted(folders):
        await sftp.makedirs(f"{temporary}/{folder}".rstrip("/"), exist_ok=True)
    gate = asyncio.Semaphore(_PARALLEL_COPIES)

    async def copy(path: str, content: bytes) -> None:
        async with gate, sftp.open(f"{temporary}/{path}", "wb") as file:
            await file.write(content)

    try:
        async with asyncio.TaskGroup() as group:
            for path, content in files.items():
                group.create_task(copy(path, content))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None  # a single error can be translated
    try:
        await sftp.rename(temporary, directory)
    except asyncssh.SFTPError:
        if not await sftp.isdir(directory):
            raise
        await sftp.rmtree(temporary)  # another one was faster


async def _remove_old_copies(sftp: asyncssh.SFTPClient, directory: str) -> None:
    """Remove copies that were broken off: nobody has written there for a while."""
    folder, _, version = directory.rpartition("/")
    if not await sftp.isdir(folder):
        return
    for entry in await sftp.readdir(folder):
        name = str(entry.filename)
        age_s = time.time() - (entry.attrs.mtime or 0)  # noqa: TID251 - the age of a file
        if name.startswith(version) and name.endswith(_TEMPORARY) and age_s > _OLD_S:
            await sftp.rmtree(f"{folder}/{name}")
