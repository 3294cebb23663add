"""The controller's end of a session with one agent: it starts ranks and acknowledges all reports.

The connection is the product's: SSH, the agent put on the node and started through it, its socket
opened through it. What the controller makes of the reports is left out: it is not on the node.
Nothing is done about an agent that falls silent, so that it can be stopped for a while.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import asyncssh
from pydantic import BaseModel, TypeAdapter

from controller.fleet.address import NodeAddress
from controller.fleet.bootstrap import ensure_agent
from controller.fleet.bundle import build_bundle
from controller.fleet.node_connection import SshLogins
from controller.fleet.rendezvous_tables import RendezvousTables
from nodeagent.protocol.codec import Codec, LineSplitter, encode
from nodeagent.protocol.messages import (
    Acknowledge,
    Attach,
    CommandDone,
    FromAgent,
    Report,
    StartRanksCommand,
    Welcome,
)
from nodeagent.protocol.observations import AnyObservation, LaunchFailed, RankExited
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall

_START_LIMIT_S: Final = 30.0
_READ_BYTES: Final = 65536


class SessionError(Exception):
    """The agent ended the session, or a rank did not run."""


class Session:
    """A session that ``attached`` opened.

    Attributes:
        agent_pid: The agent's process.
    """

    def __init__(
        self, reader: "asyncssh.SSHReader[bytes]", writer: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        self.agent_pid = 0
        self._reader = reader
        self._writer = writer
        self._codec: Codec[FromAgent] = Codec(TypeAdapter(FromAgent))
        self._tables: RendezvousTables[str] = RendezvousTables()
        self._welcomed = asyncio.Event()
        self._is_ending = False

    async def start_ranks(self, launches: Sequence[RankLaunch]) -> None:
        """Order the agent to start ranks; one that does not run ends the session."""
        async with asyncio.timeout(_START_LIMIT_S):
            await self._welcomed.wait()
        self._send(StartRanksCommand.of("start", launches))

    def expect_end(self) -> None:
        """From now on ranks may end."""
        self._is_ending = True

    async def serve(self, node: NodeAddress) -> None:
        """Take messages for ever.

        Raises:
            SessionError: The session is over.
        """
        self._send(Attach(run_id="agent-cost", term=1, node=node.node, last_seq=0))
        splitter = LineSplitter()
        while data := await self._reader.read(_READ_BYTES):
            for line in splitter.feed(data):
                self._take(self._codec.decode(line))
        raise SessionError("the agent closed the session")

    def _take(self, message: FromAgent) -> None:
        match message:
            case Welcome(pid=pid):
                self.agent_pid = pid
                self._welcomed.set()
            case Report(seq=seq, observation=observation):
                self._send(Acknowledge(seq=seq))
                self._check(observation)
            case StoreCall():
                for _, reply in self._tables.call("", message, 0.0):
                    self._send(reply)
            case CommandDone(error=str(error)):
                raise SessionError(f"the agent refused: {error}")
            case _:
                pass  # heartbeats, and what went well

    def _check(self, observation: AnyObservation) -> None:
        if isinstance(observation, LaunchFailed | RankExited) and not self._is_ending:
            raise SessionError(f"a rank does not run: {observation}")

    def _send(self, message: BaseModel) -> None:
        self._writer.write(encode(message))


@asynccontextmanager
async def attached(node: NodeAddress) -> AsyncIterator[Session]:
    """Put an agent on ``node`` and hold a session with it inside the block."""
    async with (
        SshLogins() as logins,
        await logins.open(node) as connection,
        asyncio.TaskGroup() as group,
    ):
        await ensure_agent(connection, node, build_bundle())
        reader, writer = await connection.open_unix_connection(node.agent_socket, encoding=None)
        session = Session(reader, writer)
        serving = group.create_task(session.serve(node))
        yield session
        serving.cancel()
