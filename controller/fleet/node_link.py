"""The link to one node: the SSH connection, the agent behind it, and the session with the agent.

The link is level-based. It connects, makes sure that an agent answers, and opens a session. When
anything breaks, it starts again, with backoff. Contact is lost when the connection ends, or when no
message arrives for ``_SILENCE_LIMIT_S`` in which the loop was awake. The agent's messages become
events; each report is taken once, in order. The link never repeats a command; ``open_commands``
posts the outcome of each.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final, Protocol

import asyncssh
from pydantic import BaseModel, TypeAdapter

from controller.core.events import (
    ContactLost,
    EventBody,
    NodeAttached,
    Observed,
)
from controller.core.nodes.bursts import SILENT_S
from controller.fleet.address import NodeAddress
from controller.fleet.bootstrap import ensure_agent, open_bridge
from controller.fleet.bundle import Bundle
from controller.fleet.errors import (
    LinkError,
    PermanentLinkError,
    TemporaryLinkError,
    translated,
)
from controller.fleet.node_commands import home_of
from controller.fleet.node_connection import CONNECT_LIMIT_S, SshLogins
from controller.fleet.open_commands import OpenCommands, Subject
from controller.fleet.report_age import ReportAge
from controller.fleet.workdir_copy import bring_workdir
from controller.loop_clock import LoopClock
from controller.workdirs.workdir_store import WorkdirStore
from nodeagent.protocol.codec import Codec, MessageReader, encode
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Attach,
    CommandDone,
    FromAgent,
    Heartbeat,
    InjectFault,
    LogPart,
    OrderRanksCommand,
    ProbePeerCommand,
    ReadLog,
    Refuse,
    Report,
    StartRanksCommand,
    Welcome,
)
from nodeagent.protocol.rendezvous import StoreCall, StoreReply


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of the controller: agents obey the newest term of a run."""

    run_id: str
    term: int
    controller: str = ""
    """Which process it is, for people."""


class Listener(Protocol):
    """Gets the events, rendezvous calls and notes of a link."""

    def post(self, body: EventBody) -> None:
        """Have the core handle an event."""
        ...

    async def has_room(self) -> None:
        """Return once there is room for what a node says."""
        ...

    def take_heartbeat(self, node: NodeId, beat: Heartbeat, received_wall_s: float) -> None:
        """Take in a heartbeat, which came at this time by the controller's wall clock."""
        ...

    def take_silence(self, node: NodeId, last_message_at: float) -> None:
        """Take in that a node in contact has sent nothing for ``SILENT_S``."""
        ...

    def take_store_call(self, node: NodeId, call: StoreCall) -> None:
        """Carry out a rendezvous call of a rank on ``node``."""
        ...

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Do work beside the session."""
        ...

    def note(self, node: NodeId, text: str) -> None:
        """Publish the reason why a node can't be reached."""
        ...


@dataclass(frozen=True, slots=True)
class LinkContext:
    """What all links of a fleet share.

    Attributes:
        bundle: The agent's code, for nodes that have none.
        identity: The controller, as agents know it.
        listener: Gets events, rendezvous calls and notes.
        clock: The clock of the run.
        logins: Opens SSH connections.
        workdirs: Versions of tasks' folders, for nodes that lack them.
    """

    bundle: Bundle
    identity: Identity
    listener: Listener
    clock: LoopClock
    logins: SshLogins
    workdirs: WorkdirStore


_LOG: Final = logging.getLogger(__name__)
_SILENCE_LIMIT_S: Final = 2.0
_OUT_OF_CONTACT: Final = "its node is out of contact"
_READ_BYTES: Final = 64 * 1024
_FIRST_BACKOFF_S: Final = 0.2
_LAST_BACKOFF_S: Final = 2.0

_FROM_AGENT: Final[Codec[FromAgent]] = Codec(TypeAdapter(FromAgent))

RankCommand = StartRanksCommand | OrderRanksCommand | InjectFault
"""Commands about one task's ranks."""


class NodeLink:
    """The connection to one node. ``run`` serves it until cancelled."""

    def __init__(self, address: NodeAddress, context: LinkContext, last_seq: int = 0) -> None:
        self.given_address = self.address = address
        """As it was given. ``address`` has absolute paths once the home on the node is known."""
        self._context = context
        self._workdirs: set[str] = set()
        """Versions of tasks' folders that were copied. A new agent may have none of them."""
        self._bundle = context.bundle
        self._identity = context.identity
        self._listener = listener = context.listener
        self._clock = context.clock
        self._logins = context.logins
        self._writer: asyncssh.SSHWriter[bytes] | None = None
        self._commands = OpenCommands(address.node, listener.post)
        self._log_requests: dict[str, asyncio.Future[LogPart]] = {}
        self._last_seq = last_seq
        self._report_age = ReportAge()
        self._last_message_at = 0.0
        self._has_refused = False
        """Whether an agent of another protocol version answered. It has to be replaced."""
        self._socket = ""
        """Path of the agent's socket, where an agent has named it. It need not be the usual one."""
        self._is_bridged = False
        """Whether the server forbids forwarding, so that a command carries the session."""

    @property
    def last_seq(self) -> int:
        """Number of the newest report that was taken."""
        return self._last_seq

    def close(self) -> None:
        """End the session, and all open commands, of a link whose ``run`` was cancelled."""
        self._end_session("the node was removed", self._clock.now())

    async def run(self) -> None:
        """Keep the node in contact until cancelled."""
        backoff_s, last_note = _FIRST_BACKOFF_S, ""
        while True:
            level, reason, least_s = logging.INFO, "", 0.0
            try:
                await self._connect_and_serve()
            except LinkError as error:
                reason, least_s = str(error), error.retry_after_s
                is_silent = isinstance(error.__cause__, TimeoutError)
                contact_until = self._last_message_at if is_silent else self._clock.now()
                was_attached = self._end_session(reason, contact_until)
                backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
                if was_attached:
                    backoff_s, last_note = _FIRST_BACKOFF_S, ""
                if isinstance(error, PermanentLinkError):
                    backoff_s = _LAST_BACKOFF_S
                if not was_attached:
                    if reason == last_note:
                        level = logging.DEBUG  # a node that stays away must not fill the log
                    else:
                        self._listener.note(self.address.node, reason)
                    last_note = reason
            delay_s = max(backoff_s, least_s) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
            text = "connection ended, retry follows: node=%s reason=%s delay_s=%.2f"
            _LOG.log(level, text, self.address.node, reason, delay_s)
            await asyncio.sleep(delay_s)

    async def _connect_and_serve(self) -> None:
        """Serve one connection until it breaks.

        Raises:
            LinkError: Always, in the end.
        """
        address = self.address
        connection = await self._logins.open(address)
        _LOG.info("connected: node=%s at=%s", address.node, address.way)
        try:
            if not address.is_absolute:
                self.address = address.at_home(await home_of(connection, address.node))
            reader, writer = await self._open_agent(connection)
            with translated(f"session with the agent on {address.node}"):
                await self._serve(reader, writer)
        finally:
            connection.abort()

    async def _open_agent(
        self, connection: asyncssh.SSHClientConnection
    ) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
        """Open the agent's socket through SSH; if no agent of this version answers, start one."""
        if not self._has_refused:
            with contextlib.suppress(TemporaryLinkError):
                return await self._open_session(connection)
        self._socket = await ensure_agent(connection, self.address, self._bundle)
        self._has_refused = False
        try:
            return await self._open_session(connection)
        except TemporaryLinkError:
            if self._is_bridged:
                raise
        # The agent has just answered on the node itself: the server forbids forwarding.
        opened = await open_bridge(connection, self.address, self._bundle, self._place)
        self._is_bridged = True
        text = "its SSH server forbids forwarding: the session runs over a bridge"
        _LOG.info("bridged: node=%s", self.address.node)
        self._listener.note(self.address.node, text)
        return opened

    @property
    def _place(self) -> str:
        return self._socket or self.address.agent_socket

    async def _open_session(
        self, connection: asyncssh.SSHClientConnection
    ) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
        if self._is_bridged:
            return await open_bridge(connection, self.address, self._bundle, self._place)
        return await self._open_socket(connection)

    async def _open_socket(
        self, connection: asyncssh.SSHClientConnection
    ) -> tuple["asyncssh.SSHReader[bytes]", "asyncssh.SSHWriter[bytes]"]:
        with translated(f"opening the agent's socket on {self.address.node}"):
            async with asyncio.timeout(CONNECT_LIMIT_S):
                return await connection.open_unix_connection(self._place, encoding=None)

    async def _serve(
        self, reader: "asyncssh.SSHReader[bytes]", writer: "asyncssh.SSHWriter[bytes]"
    ) -> None:
        identity = self._identity
        attach = Attach(
            run_id=identity.run_id,
            term=identity.term,
            node=self.address.node,
            last_seq=self._last_seq,
            controller=identity.controller,
        )
        writer.write(encode(attach))
        received = MessageReader(_FROM_AGENT)
        while True:
            data = await self._read(reader)
            if not data:
                raise TemporaryLinkError(f"the agent on {self.address.node} closed the session")
            self._last_message_at = self._clock.now()
            for message in received.feed(data):
                if isinstance(message, Welcome):
                    self._writer = writer
                    self._workdirs.clear()
                self._take(message)
            await self._listener.has_room()

    async def _read(self, reader: "asyncssh.SSHReader[bytes]") -> bytes:
        """Return the next bytes, or nothing at the end of the session.

        Raises:
            TimeoutError: The agent was silent for too long. A pause of this process itself does not
                count, and what came meanwhile is read first.
        """
        silent_from, limit_s = self._clock.awake_s(), SILENT_S
        while True:
            left_s = limit_s - (self._clock.awake_s() - silent_from)
            try:
                # With no time left, this returns what has been read already, or raises.
                async with asyncio.timeout(max(0.0, left_s)):
                    return await reader.read(_READ_BYTES)
            except TimeoutError:
                if left_s > 0:
                    await self._clock.catch_up()
                elif limit_s < _SILENCE_LIMIT_S:
                    limit_s = _SILENCE_LIMIT_S
                    self._note_silence()
                else:
                    raise

    def _note_silence(self) -> None:
        if self._writer is not None:
            self._listener.take_silence(self.address.node, self._last_message_at)

    def _take(self, message: FromAgent) -> None:
        node = self.address.node
        match message:
            case Welcome():
                ranks = tuple(message.ranks)
                _LOG.info(
                    "session opened: node=%s agent=%s pid=%d ranks=%d last_seq=%d",
                    node, message.agent_id, message.pid, len(ranks), self._last_seq,
                )  # fmt: skip
                self._post(NodeAttached(node, message.agent_id, message.pid, ranks))
            case Refuse():
                self._has_refused = message.version != PROTOCOL_VERSION
                _LOG.info(
                    "session refused: node=%s agent_version=%d own_version=%d reason=%s",
                    node, message.version, PROTOCOL_VERSION, message.reason,
                )  # fmt: skip
                raise PermanentLinkError(f"the agent on {node} refuses: {message.reason}")
            case Report():
                self._take_report(message)
            case Heartbeat():
                self._take_heartbeat(message)
            case CommandDone():
                self._commands.take(message)
            case LogPart():
                self._take_log(message)
            case StoreCall():
                self._listener.take_store_call(node, message)

    def _take_heartbeat(self, beat: Heartbeat) -> None:
        received_wall_s = self._clock.wall_s()
        self._report_age.take_heartbeat(beat.wall_s, received_wall_s)
        self._listener.take_heartbeat(self.address.node, beat, received_wall_s)

    def _take_report(self, report: Report) -> None:
        if report.seq <= self._last_seq:
            return
        _LOG.debug(
            "report: node=%s seq=%d kind=%s", self.address.node, report.seq, report.observation.kind
        )
        if report.seq > self._last_seq + 1:
            missing = f"reports {self._last_seq + 1} to {report.seq - 1} were dropped by the agent"
            _LOG.info(
                "reports are missing: node=%s first=%d next=%d",
                self.address.node,
                self._last_seq + 1,
                report.seq,
            )
            self._listener.note(self.address.node, missing)
        self._last_seq = report.seq
        age_s = self._report_age.age_s(report.wall_s, self._clock.wall_s())
        observed_at = max(0.0, self._clock.now() - age_s)
        self._post(Observed(self.address.node, report.seq, observed_at, report.observation))

    def _end_session(self, reason: str, contact_until: float) -> bool:
        """Post the end of contact and of all open commands; return whether there was a session."""
        if self._writer is None:
            return False
        self._writer = None
        _LOG.info("contact lost: node=%s reason=%s", self.address.node, reason)
        self._post(ContactLost(self.address.node, contact_until, reason))
        self._commands.lose_contact()
        for command_id in list(self._log_requests):
            self._take_log(LogPart(command_id=command_id, error=_OUT_OF_CONTACT))
        return True

    async def read_log(self, request: ReadLog) -> LogPart:
        """Return a part of a rank's output. If that is out of reach, the answer says so."""
        if not self._write(request):
            return LogPart(command_id=request.command_id, error=_OUT_OF_CONTACT)
        answer: asyncio.Future[LogPart] = asyncio.get_running_loop().create_future()
        self._log_requests[request.command_id] = answer
        try:
            return await answer
        finally:
            self._log_requests.pop(request.command_id, None)

    def _take_log(self, part: LogPart) -> None:
        answer = self._log_requests.get(part.command_id)
        if answer is not None and not answer.done():
            answer.set_result(part)

    def _post(self, body: EventBody) -> None:
        self._listener.post(body)

    def send_command(self, command: RankCommand | ProbePeerCommand, subject: Subject) -> None:
        """Send a command. Its outcome becomes an event, also if the node is out of contact."""
        workdir = command.workdir if isinstance(command, StartRanksCommand) else ""
        if workdir and workdir not in self._workdirs and self._writer is not None:
            self._commands.add(command.command_id, subject)
            self._listener.spawn(self._bring_and_start(command, workdir))
        elif self._write(command):
            self._commands.add(command.command_id, subject)
        else:
            self._commands.fail(command.command_id, subject, "out of contact")

    async def _bring_and_start(self, command: RankCommand | ProbePeerCommand, workdir: str) -> None:
        """Copy the version of the task's folder that ranks need, then have them started."""
        context, command_id = self._context, command.command_id
        try:
            await bring_workdir(
                self.address, context.logins, context.bundle, context.workdirs, workdir
            )
        except (LinkError, OSError) as error:
            self._commands.take(CommandDone(command_id=command_id, error=str(error)))
            return
        self._workdirs.add(workdir)
        # Contact may have been lost meanwhile. Then the start has failed already.
        if self._commands.is_open(command_id):
            self._write(command)

    def acknowledge(self, seq: int) -> None:
        """Acknowledge the reports up to ``seq``: they are in the journal."""
        self._write(Acknowledge(seq=seq))

    def reply(self, reply: StoreReply) -> None:
        """Answer a rendezvous call. If the connection is gone, the rank repeats the call later."""
        self._write(reply)

    def _write(self, message: BaseModel) -> bool:
        writer = self._writer
        if writer is None or writer.is_closing():
            return False
        writer.write(encode(message))
        return True
