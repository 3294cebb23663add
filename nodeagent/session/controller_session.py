"""The agent's side of ``agent.sock``: one controller at a time, and local queries.

The newest ``Attach`` wins and the session before it is closed; an older term of the same run and
another protocol version are refused in words. After ``Welcome`` come the held reports in order,
then new reports as they come. Reports are not queued here: each session walks through the outbox
with a cursor of its own, so a slow controller costs no memory. Heartbeats are skipped while it does
not read.

Rule for "full": a controller that leaves ``MAX_OUTGOING`` results and rendezvous calls unread is
dropped; when it attaches again it gets the waiting calls and the reports again.
"""

import asyncio
import logging
from collections import deque
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.process_tools.beat import next_beat
from nodeagent.process_tools.json_streams import LineChannel, MessageChannel
from nodeagent.protocol.codec import Codec, ProtocolError
from nodeagent.protocol.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    Attach,
    Heartbeat,
    Refuse,
    ToAgent,
    Welcome,
)
from nodeagent.protocol.rendezvous import StoreCall, StoreReply
from nodeagent.session.agent_commands import AgentCommand
from nodeagent.session.local_queries import AgentStatus, AskStatus, Leave

_LOG = logging.getLogger(__name__)

HEARTBEAT_S: Final = 0.5
MAX_OUTGOING: Final = 4096
_FIRST_LINE_LIMIT_S: Final = 10.0
_SLOW_READER_BYTES: Final = 256 * 1024
_REPORTS_PER_WRITE: Final = 64

_TO_AGENT: Final[TypeAdapter[ToAgent]] = TypeAdapter(ToAgent)


ModelT = TypeVar("ModelT", bound=BaseModel)


class _Opening(BaseModel):
    """What any version's first message has."""

    kind: str
    version: int = 0


class Services(Protocol):
    """What a session needs of the agent."""

    def status(self) -> AgentStatus:
        """Return the agent's identity and the ranks on its node."""

    def heartbeat(self) -> Heartbeat:
        """Return what changes from one moment to the next."""

    def attached(self, attach: Attach) -> None:
        """Take in that a controller takes over, before it is welcomed.

        Raises:
            OSError: That can't be stored.
        """

    def submit(self, command: AgentCommand) -> None:
        """Carry out a command; its result comes back through ``Gate.send``."""

    def reply(self, reply: StoreReply) -> None:
        """Take the answer to a rendezvous call."""

    def waiting_calls(self) -> list[StoreCall]:
        """Return the rendezvous calls without an answer."""

    def leave(self, *, kill_ranks: bool) -> None:
        """End the agent. Its ranks and its template end with it only if ``kill_ranks``."""


class Gate:
    """Accepts connections and holds the one session there may be."""

    def __init__(self, services: Services, outbox: OutboxFile) -> None:
        self._services = services
        self._outbox = outbox
        self._owner = ""
        self._session: _Session | None = None
        outbox.on_report = self._wake

    @property
    def has_controller(self) -> bool:
        """Whether a controller is attached."""
        return self._session is not None

    def send(self, message: BaseModel) -> None:
        """Send a result or a rendezvous call to the controller, if one is attached."""
        if self._session is not None:
            self._session.send(message)

    async def serve(self, channel: LineChannel) -> None:
        """Serve one connection to its end. A malformed line closes it, and it alone."""
        try:
            async with asyncio.timeout(_FIRST_LINE_LIMIT_S):
                line = await channel.first_line()
            if line is not None:
                await self._open(channel, line)
        except TimeoutError:
            _LOG.warning("connection closed, it sent no message: pid=%d", channel.peer_pid)
        except ProtocolError as error:
            _LOG.warning("connection closed: pid=%d reason=%s", channel.peer_pid, error)
        except OSError as error:
            _LOG.warning("connection lost: pid=%d reason=%s", channel.peer_pid, error)
        finally:
            channel.close()

    async def _open(self, channel: LineChannel, line: bytes) -> None:
        opening = _decode(_Opening, line)
        if opening.kind == "ask_status":
            _decode(AskStatus, line)
            channel.send(self._services.status())
        elif opening.kind == "leave":
            leave = _decode(Leave, line)
            channel.send(self._services.status())
            await channel.drain()
            self._services.leave(kill_ranks=leave.kill_ranks)
        elif opening.kind == "attach" and opening.version != PROTOCOL_VERSION:
            reason = (
                f"the controller speaks version {opening.version}, this agent {PROTOCOL_VERSION}"
            )
            self._refuse(channel, reason)
        else:
            await self._attach(channel, line)

    async def _attach(self, channel: LineChannel, line: bytes) -> None:
        attach = Codec(_TO_AGENT).decode(line)
        if not isinstance(attach, Attach):
            raise ProtocolError(f"{attach.kind} before attach")
        if (reason := self._refusal(attach)) is not None:
            self._refuse(channel, reason)
            return
        if self._session is not None:
            _LOG.info(
                "session replaced by a newer controller connection: run=%s term=%d",
                attach.run_id,
                attach.term,
            )
            self._session.abort()
        self._services.attached(attach)
        self._owner = attach.controller
        session = self._session = _Session(channel, self._services, self._outbox)
        _LOG.info("controller attached: run=%s term=%d", attach.run_id, attach.term)
        try:
            await session.run(attach.last_seq)
        finally:
            if self._session is session:
                self._session = None
                _LOG.info("controller connection ended: run=%s term=%d", attach.run_id, attach.term)

    def _refusal(self, attach: Attach) -> str | None:
        status, outbox = self._services.status(), self._outbox.outbox
        if attach.node != status.node:
            return f"this is node {status.node}, not {attach.node}"
        if outbox.run_id not in {None, attach.run_id} and status.ranks:
            # A controller with an empty run directory knows none of them, and would end them all.
            owner = f", of the controller that was {self._owner}" if self._owner else ""
            return (
                f"{len(status.ranks)} rank(s) of another run live here: run {outbox.run_id}{owner}; use the"
                " run directory of that run, or end it with `unicron down`"
            )
        if attach.run_id == outbox.run_id and attach.term < outbox.term:
            return f"term {attach.term} is older than {outbox.term}, which attached before"
        return None

    def _refuse(self, channel: LineChannel, reason: str) -> None:
        _LOG.warning("controller refused: reason=%s", reason)
        channel.send(Refuse(reason=reason))

    def _wake(self) -> None:
        if self._session is not None:
            self._session.wake()


class _SessionOverError(Exception):
    """The connection of a session ended."""


class _Session:
    """One attached controller."""

    def __init__(self, channel: LineChannel, services: Services, outbox: OutboxFile) -> None:
        self._channel = channel
        self._services = services
        self._outbox = outbox
        self._outgoing: deque[BaseModel] = deque()
        self._cursor = 0
        self._news = asyncio.Event()

    def send(self, message: BaseModel) -> None:
        if len(self._outgoing) >= MAX_OUTGOING:
            _LOG.warning("controller dropped, it does not read: queued=%d", len(self._outgoing))
            self.abort()
            return
        self._outgoing.append(message)
        self.wake()

    def wake(self) -> None:
        self._news.set()

    def abort(self) -> None:
        self._channel.abort()

    async def run(self, last_seq: int) -> None:
        """Serve until the connection ends.

        Raises:
            ProtocolError: The controller sent something else than a message.
        """
        self._cursor = last_seq
        self._channel.send(self._welcome())
        self._outgoing.extend(self._services.waiting_calls())
        self.wake()
        try:
            async with asyncio.TaskGroup() as group:
                # The first heartbeat precedes the reports: it shows how far this clock is off.
                group.create_task(self._beat())
                group.create_task(self._send_all())
                await self._take_all()
        except* (_SessionOverError, OSError):
            pass  # the connection ended, which is no news to anybody here
        except* ProtocolError as group_of_one:
            _LOG.warning("controller connection closed: reason=%s", group_of_one.exceptions[0])

    def _welcome(self) -> Welcome:
        status = self._services.status()
        return Welcome(
            node=status.node,
            agent_id=status.agent_id,
            pid=status.pid,
            num_workers=status.num_workers,
            is_template_ready=status.is_template_ready,
            first_seq=self._outbox.outbox.first_seq,
            ranks=status.ranks,
        )

    async def _take_all(self) -> None:
        """Take messages; ends with ``_SessionOverError``, which ends the group's other tasks."""
        async for message in MessageChannel(self._channel, _TO_AGENT).messages():
            match message:
                case Attach():
                    raise ProtocolError("attach in an open session")
                case Acknowledge(seq=seq):
                    self._outbox.acknowledge(seq)
                case StoreReply():
                    self._services.reply(message)
                case _:
                    self._services.submit(message)
        raise _SessionOverError

    async def _send_all(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._send_some():
                await self._channel.drain()

    def _send_some(self) -> bool:
        """Write what is next; return whether there was anything."""
        num_sent = 0
        while self._outgoing and num_sent < _REPORTS_PER_WRITE:
            self._channel.send(self._outgoing.popleft())
            num_sent += 1
        for held in self._outbox.outbox.after(self._cursor):
            if num_sent >= _REPORTS_PER_WRITE:
                break
            self._channel.send_line(held.line)
            self._cursor = held.seq
            num_sent += 1
        return num_sent > 0

    async def _beat(self) -> None:
        while True:
            if self._channel.num_queued_bytes < _SLOW_READER_BYTES:
                self._channel.send(self._services.heartbeat())
            await next_beat(HEARTBEAT_S)


def _decode(model: type[ModelT], line: bytes) -> ModelT:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise ProtocolError(f"{error.errors()[0]['msg']} (in {line[:80]!r})") from error
