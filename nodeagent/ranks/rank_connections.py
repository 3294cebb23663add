"""The agent's side of ``ranks.sock``: reports from ranks, and orders to them.

A rank's control connection begins with ``RankHello``. Its reports are stored in the outbox, and
only then answered with ``ReportStored``: until then the rank keeps them. A report that is sent
again after a reconnect is recognised by its number. Numbers continue when the process becomes
another rank. A store connection carries rendezvous calls and nothing else.

Orders go to a process, by pid, under whatever name it has at the time. Orders that must not be lost
are on disk and are repeated at each hello: a halt while its generation is halted, ``Join`` until
the rank says hello under its new name, ``StopAtBoundary`` always. They are repeated also at the
hello of a rank that has just joined: a halt of its new generation may have reached it too
early, and was ignored then. A ``Join`` is sent once on each connection, since a rank keeps it until
it can follow.

Reports of ranks of an earlier run of the controller are answered but not passed on. The present
controller would take them for reports of its own task.
"""

import asyncio
import itertools
import logging
from dataclasses import dataclass, field
from typing import Final, Protocol

from pydantic import TypeAdapter

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.process_tools.json_streams import LineChannel, MessageChannel
from nodeagent.protocol.codec import MAX_LINE_BYTES, ProtocolError
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import (
    AskStanding,
    BreakRank,
    FromRank,
    Join,
    RankHello,
    RankPulse,
    RankReport,
    RankStands,
    ReportStored,
    StopAtBoundary,
)
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rendezvous import StoreCall
from nodeagent.protocol.standing import Standing
from nodeagent.ranks.store_relay import StoreRelay
from nodeagent.ranks.supervisor import RankKey, key_of

_LOG = logging.getLogger(__name__)

_FROM_RANK: Final[TypeAdapter[FromRank]] = TypeAdapter(FromRank)
MAX_RANK_LINE_BYTES: Final = MAX_LINE_BYTES - 4096
"""A little below the protocol's limit, so that what is passed on still fits in a line."""
_DRAIN_LIMIT_S: Final = 1.0
_ACCEPT_S: Final = 0.01
_RECONNECT_POLL_S: Final = 0.02


class Rank(Protocol):
    """A rank's process, as far as its connections need it."""

    @property
    def pid(self) -> int:
        """The process; if it is a command, its child may send in its place."""

    @property
    def key(self) -> RankKey:
        """The rank that it is now."""

    @property
    def name(self) -> str:
        """Its name in marks."""

    @property
    def is_foreign(self) -> bool:
        """Whether it was started for an earlier run of the controller."""

    @property
    def became(self) -> RankLaunch | None:
        """The rank that it was ordered to become, if any."""


class Ranks(Protocol):
    """Who looks after the processes of ranks."""

    async def greet(self, hello: RankHello) -> Rank | None:
        """Take in that a rank says who it is; return its process, if it is known.

        Raises:
            OSError: That can't be stored.
        """

    def pulse(self, pid: int, pulse: RankPulse) -> None:
        """Take in how far a rank is."""

    def is_foreign(self, pid: int) -> bool:
        """Return whether ``pid`` is a rank of an earlier run of the controller."""


@dataclass(slots=True, eq=False)
class _Control:
    """A control connection, and the newest ``Join`` that was sent on it."""

    channel: LineChannel
    joined: RankKey | None = None

    def send_join(self, launch: RankLaunch) -> None:
        if key_of(launch) != self.joined:
            self.joined = key_of(launch)
            self.channel.send(Join(launch=launch))


@dataclass(slots=True)
class _Peer:
    """The open connections of one process."""

    channels: set[LineChannel] = field(default_factory=set)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class RankConnections:
    """All connections of ranks to this agent."""

    def __init__(self, outbox: OutboxFile, relay: StoreRelay) -> None:
        self._outbox = outbox
        self._relay = relay
        self._ranks: Ranks | None = None
        self._peers: dict[int, _Peer] = {}
        self._control: dict[int, _Control] = {}
        self._questions = itertools.count(1)
        self._answers: dict[tuple[int, int], asyncio.Future[Standing]] = {}

    def attach(self, ranks: Ranks) -> None:
        """Name who looks after the processes; once, before the first connection."""
        self._ranks = ranks

    async def serve(self, channel: LineChannel) -> None:
        """Serve one connection to its end. A malformed line closes it, and it alone."""
        peer = self._peers.setdefault(channel.peer_pid, _Peer())
        peer.channels.add(channel)
        try:
            await self._take_all(channel)
        except ProtocolError as error:
            _LOG.warning("rank connection closed: pid=%d reason=%s", channel.peer_pid, error)
        except OSError as error:
            # Not stored, so not answered: the rank connects again and repeats.
            _LOG.error("cannot store a rank's report: pid=%d reason=%s", channel.peer_pid, error)
        finally:
            channel.close()
            self._relay.drop(channel)
            peer.channels.discard(channel)
            if not peer.channels:
                del self._peers[channel.peer_pid]
                peer.gone.set()
            control = self._control.get(channel.peer_pid)
            if control is not None and control.channel is channel:
                del self._control[channel.peer_pid]

    async def drained(self, pid: int) -> None:
        """Wait until everything that the dead process ``pid`` had sent is taken in.

        Its connections are ended after that: a child of it, a worker of its data loader perhaps,
        may hold them open for much longer.
        """
        try:
            async with asyncio.timeout(_DRAIN_LIMIT_S):
                # One round of the loop accepts what may still wait in the listening socket.
                await asyncio.sleep(_ACCEPT_S)
                if (peer := self._peers.get(pid)) is not None:
                    for channel in peer.channels:
                        channel.end_input()
                    await peer.gone.wait()
        except TimeoutError:
            _LOG.warning("connection of an ended rank is still open: pid=%d", pid)

    def halt(self, pid: int, halt: HaltOrder) -> None:
        """Ask a rank to park. One without a connection is asked at its hello, if that is stored."""
        if (control := self._control.get(pid)) is not None:
            control.channel.send(halt)

    def join(self, pid: int, launch: RankLaunch) -> None:
        """Send a process the rank that it has become.

        A process without a connection gets it at its hello.
        """
        if (control := self._control.get(pid)) is not None:
            control.send_join(launch)

    def stop_at_boundary(self, pid: int) -> None:
        """Ask a rank to stop. One without a connection is asked at its hello, if that is stored."""
        if (control := self._control.get(pid)) is not None:
            control.channel.send(StopAtBoundary())

    def break_rank(self, pid: int, fault: RankFault) -> bool:
        """Have a rank stage a fault in itself; return False if it has no connection."""
        control = self._control.get(pid)
        if control is None:
            return False
        control.channel.send(BreakRank(fault=fault))
        return True

    async def ask_standing(self, pid: int, limit_s: float) -> Standing | None:
        """Ask a rank where it stands; return None if it does not say so within ``limit_s``."""
        number = next(self._questions)
        answer: asyncio.Future[Standing] = asyncio.get_running_loop().create_future()
        self._answers[pid, number] = answer
        try:
            async with asyncio.timeout(limit_s):
                # A former agent may have held its connection until a moment ago.
                while (control := self._control.get(pid)) is None:  # noqa: ASYNC110 - see above
                    await asyncio.sleep(_RECONNECT_POLL_S)
                control.channel.send(AskStanding(number=number))
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._answers[pid, number]

    async def _take_all(self, channel: LineChannel) -> None:
        hello: RankHello | None = None
        rank: Rank | None = None
        async for message in MessageChannel(channel, _FROM_RANK).messages():
            match message:
                case RankHello():
                    rank = await self._greet(channel, message) or rank
                    hello = hello or message
                case StoreCall():
                    self._take_call(channel, message)
                case RankReport() if hello is not None:
                    self._take_report(channel, hello, rank, message)
                case RankPulse() if hello is not None:
                    self._owner.pulse(hello.pid if rank is None else rank.pid, message)
                case RankStands() if hello is not None:
                    asked = hello.pid if rank is None else rank.pid
                    answer = self._answers.get((asked, message.number))
                    if answer is not None and not answer.done():
                        answer.set_result(message.standing)
                case RankReport() | RankPulse() | RankStands():
                    raise ProtocolError(f"{message.kind} before rank_hello")

    @property
    def _owner(self) -> Ranks:
        assert self._ranks is not None, "attach() comes before the first connection"
        return self._ranks

    async def _greet(self, channel: LineChannel, hello: RankHello) -> Rank | None:
        if hello.pid != channel.peer_pid:
            raise ProtocolError(f"a rank_hello of pid {hello.pid}")
        control = self._control.get(hello.pid)
        if control is None or control.channel is not channel:
            control = self._control[hello.pid] = _Control(channel)
        rank = await self._owner.greet(hello)
        if rank is not None and rank.pid != hello.pid:
            # The process of the script is the rank. A program that the script has started sends
            # the reports of that rank.
            self._control[rank.pid] = self._control.pop(hello.pid)
        if rank is not None and not rank.is_foreign:
            self._repeat(control, _key_of(hello), rank)
        return rank

    def _repeat(self, control: _Control, called: RankKey, rank: Rank) -> None:
        """Ask again what may have been lost with the former agent, or have come before the rank.

        ``called`` is what the rank takes itself for.
        """
        self._repeat_halt(control, called.task, called.generation)
        if rank.became is not None and rank.key != called:
            control.send_join(rank.became)
            self._repeat_halt(control, rank.key.task, rank.key.generation)
        if self._outbox.outbox.mark(MarkScope.GRACEFUL_STOP, rank.key.task) >= rank.key.generation:
            control.channel.send(StopAtBoundary())

    def _repeat_halt(self, control: _Control, task: TaskId, generation: Generation) -> None:
        halt = self._outbox.outbox.halt(task)
        if halt is not None and halt.generation == generation:
            control.channel.send(halt)

    def _take_call(self, channel: LineChannel, call: StoreCall) -> None:
        if self._owner.is_foreign(channel.peer_pid):
            self._relay.refuse(channel, call, "the controller that started this rank is gone")
        else:
            self._relay.call(channel, call)

    def _take_report(
        self, channel: LineChannel, hello: RankHello, rank: Rank | None, report: RankReport
    ) -> None:
        name = _key_of(hello).process(hello.pid)
        if rank is not None and rank.pid == hello.pid:
            name = rank.name
        own_task = hello.task if rank is None else rank.key.task
        if report.observation.task != own_task:
            raise ProtocolError(f"a rank of {own_task} reports about {report.observation.task!r}")
        mark = Mark(scope=MarkScope.INTAKE, name=name, value=report.seq)
        if rank is not None and rank.is_foreign:
            self._outbox.advance(mark.scope, mark.name, mark.value)
        else:
            self._outbox.store(report.observation, report.wall_s, mark)
        channel.send(ReportStored(seq=self._outbox.outbox.mark(MarkScope.INTAKE, name)))


def _key_of(hello: RankHello) -> RankKey:
    return RankKey(hello.task, hello.generation, hello.global_rank)
