"""Copies a version of a task's folder to a node, over a connection of its own.

The session with the agent has its connection for itself: a server may allow one session in each.
"""

import asyncio
import json
from contextlib import suppress
from typing import Final

import asyncssh

from controller.fleet.address import NodeAddress
from controller.fleet.bootstrap import code_directory
from controller.fleet.bundle import Bundle
from controller.fleet.errors import TemporaryLinkError, translated
from controller.fleet.node_commands import (
    LONG_LIMIT_S,
    Done,
    archive_of,
    copy_files,
    in_free_session,
    run_if_there,
    shell_line,
    why_failed,
)
from controller.fleet.node_connection import SshLogins
from controller.workdirs.workdir_store import WorkdirStore

_MISSING_MARK: Final = '{"unicron_missing"'


async def bring_workdir(
    address: NodeAddress, logins: SshLogins, bundle: Bundle, store: WorkdirStore, digest: str
) -> None:
    """Have a version on a node; what the node has already is not sent.

    Raises:
        LinkError: The node can't be reached, or the version can't be made there.
    """
    doing = f"copying the working directory to {address.node}"
    code = code_directory(address, bundle)
    words = [address.python, code, "workdir", "--state-dir", address.state_dir, "--digest", digest]
    line = shell_line(words)
    async with await logins.open(address) as connection:
        # An agent of other code may run there.
        if await run_if_there(connection, doing, code, ["true"]) is None:
            await copy_files(connection, address, "the agent", bundle.files, code)
        with translated(doing):
            async with asyncio.timeout(LONG_LIMIT_S):
                process = await in_free_session(
                    lambda: connection.create_process(line, encoding=None)
                )
                with suppress(BrokenPipeError):
                    process.stdin.write(store.manifest(digest) + b"\n")
                    missing = await _missing(process)
                    contents = {each: store.content(each) for each in missing}
                    if contents:
                        process.stdin.write(await asyncio.to_thread(archive_of, contents))
                    process.stdin.write_eof()
                done = Done(await process.wait())
    if done.status != 0:
        raise TemporaryLinkError(f"{doing}: {why_failed(done, address)}")


async def _missing(process: "asyncssh.SSHClientProcess[bytes]") -> list[str]:
    """Return the contents that a node lacks. A login shell may print something before."""
    while line := (await process.stdout.readline()).decode(errors="replace"):
        _, mark, rest = line.partition(_MISSING_MARK)
        if mark:
            found: list[str] = json.loads(mark + rest)["unicron_missing"]
            return found
    return []
