"""Questions to a node over SSH. Its interpreter runs the text of a module of the agent.

So a node needs nothing of ours. What it answers is not trusted.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Final

import asyncssh

from controller.clusterfile.cluster_reader import Cluster
from controller.clusterfile.node_groups import ListedNode
from controller.fleet.address import NodeAddress
from controller.fleet.errors import LinkError, PermanentLinkError, translated
from controller.fleet.node_commands import home_of, in_free_session, run_words, shell_line
from controller.fleet.node_connection import SshLogins

_LIMIT_S: Final = 90.0
_KEY: Final = "unicron_survey"
_LISTENS: Final = "unicron_listens"


async def ask(
    connection: asyncssh.SSHClientConnection, address: NodeAddress, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Have the node survey itself.

    Raises:
        LinkError: The connection broke, or the interpreter does not run it.
    """
    doing = f"looking at {address.node}"
    words = [address.python, "-I", "-c", module_text("survey.py"), json.dumps(dict(question))]
    done = await run_words(connection, doing, words, limit_s=_LIMIT_S)
    try:
        return dict(done.answer(_KEY)[_KEY])
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentLinkError(f"{doing}: {done.last_words}") from error


async def forbids_forwarding(
    connection: asyncssh.SSHClientConnection, address: NodeAddress
) -> bool:
    """Return whether the server does not let SSH reach a socket on the node.

    Raises:
        LinkError: The connection broke.
    """
    words = [address.python, "-I", "-c", module_text("survey.py"), "listen"]
    async with conversation(connection, f"looking at {address.node}", words) as talk:
        place = (await talk.answer(_LISTENS))[_LISTENS]
        try:
            _, writer = await connection.open_unix_connection(place)
            writer.close()
        except asyncssh.ChannelOpenError:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Conversation:
    """A command on a node that answers line by line."""

    process: "asyncssh.SSHClientProcess[str]"

    def say(self, content: object) -> None:
        """Send a line of JSON."""
        self.process.stdin.write(json.dumps(content) + "\n")

    async def answer(self, key: str) -> dict[str, Any]:
        """Return the next JSON object that begins with ``key``. A login shell may print, too.

        Raises:
            ConnectionError: The command has ended.
            ValueError: The answer is no JSON.
        """
        wanted = f'{{"{key}"'
        while said := await self.process.stdout.readline():
            _, mark, rest = str(said).partition(wanted)
            if mark:
                return dict(json.loads(mark + rest))
        words = (await self.process.stderr.read()).strip().splitlines()
        raise ConnectionError(words[-1] if words else "the command has ended")


@asynccontextmanager
async def conversation(
    connection: asyncssh.SSHClientConnection, doing: str, words: list[str]
) -> AsyncIterator[Conversation]:
    """Run a command while the block runs; it ends when its standard input does.

    Raises:
        LinkError: The connection broke, or the block took too long.
    """
    with translated(doing):
        async with asyncio.timeout(_LIMIT_S):
            process = await in_free_session(lambda: connection.create_process(shell_line(words)))
            try:
                yield Conversation(process)
            finally:
                process.stdin.write_eof()
                await process.wait()


@asynccontextmanager
async def opened(
    node: ListedNode, cluster: Cluster, logins: SshLogins
) -> AsyncIterator[tuple[asyncssh.SSHClientConnection, NodeAddress]]:
    """Yield a connection to a node, and its address with absolute paths.

    Raises:
        LinkError: There is none.
    """
    address = replace(node.address, has_template=cluster.has_template)
    async with await logins.open(address) as connection:
        if not address.is_absolute:
            address = address.at_home(await home_of(connection, address.node))
        yield connection, address


def module_text(name: str) -> str:
    """Return the text of a module of the agent."""
    return resources.files("nodeagent").joinpath(name).read_text(encoding="utf-8")


async def answer_of(
    node: ListedNode, cluster: Cluster, logins: SshLogins, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Ask a node that has answered before; return nothing if it does not any more."""
    with suppress(LinkError):
        async with opened(node, cluster, logins) as (connection, address):
            return await ask(connection, address, question)
    return {}
