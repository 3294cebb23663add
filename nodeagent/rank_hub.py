"""The node's side of ``ranks.sock``: what ranks say, and what they are told.

A rank's control connection begins with ``RankHello``; its reports are stored in the outbox and only
then answered with ``ReportStored``, so that a rank forgets what it said no sooner than it is safe.
A report that comes again after a reconnect is recognised by its number. A store connection carries
rendezvous calls and nothing else.

Reports of a rank that was started for an earlier run of the controller are answered but not passed
on: the present controller would take them for its own task's.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, Protocol

from pydantic import TypeAdapter

from nodeagent.outbox import Mark, MarkScope
from nodeagent.outbox_file import OutboxFile
from nodeagent.protocol.codec import MAX_LINE_BYTES, ProtocolError
from nodeagent.protocol.local import (
    FromRank,
    RaiseInRank,
    RankHello,
    RankPulse,
    RankReport,
    ReportStored,
    StopAtBoundary,
)
from nodeagent.protocol.rendezvous import StoreCall
from nodeagent.store_relay import StoreRelay
from nodeagent.streams import LineChannel, MessageChannel
from nodeagent.supervisor import RankKey

_LOG = logging.getLogger(__name__)

_FROM_RANK: Final[TypeAdapter[FromRank]] = TypeAdapter(FromRank)
MAX_RANK_LINE_BYTES: Final = MAX_LINE_BYTES - 4096
"""A little below the protocol's limit, so that what is passed on still fits in a line."""
_DRAIN_LIMIT_S: Final = 1.0
_ACCEPT_S: Final = 0.01


class Ranks(Protocol):
    """Who looks after the processes of ranks."""

    async def greet(self, hello: RankHello) -> None:
        """Take in that a rank connected.

        Raises:
            OSError: That can't be stored.
        """

    def pulse(self, pid: int, pulse: RankPulse) -> None:
        """Take in how far a rank is."""

    def is_foreign(self, pid: int) -> bool:
        """Return whether ``pid`` is a rank of an earlier run of the controller."""


@dataclass(slots=True)
class _Peer:
    """The open connections of one process."""

    channels: set[LineChannel] = field(default_factory=set)
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class RankHub:
    """All connections of ranks to this agent."""

    def __init__(self, outbox: OutboxFile, relay: StoreRelay) -> None:
        self._outbox = outbox
        self._relay = relay
        self._ranks: Ranks | None = None
        self._peers: dict[int, _Peer] = {}
        self._control: dict[RankKey, LineChannel] = {}

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
            _LOG.warning("closed a connection of pid %d: %s", channel.peer_pid, error)
        except OSError as error:
            # Not stored, so not answered: the rank connects again and repeats.
            _LOG.error("can't store what pid %d reports: %s", channel.peer_pid, error)
        finally:
            channel.close()
            self._relay.drop(channel)
            peer.channels.discard(channel)
            if not peer.channels:
                del self._peers[channel.peer_pid]
                peer.gone.set()
            for key in [key for key, known in self._control.items() if known is channel]:
                del self._control[key]

    async def drained(self, pid: int) -> None:
        """Wait until everything that the dead process ``pid`` had sent is taken in.

        Its descriptors are closed, so its connections end once they are read; the limit is for a
        child of it that holds one open.
        """
        try:
            async with asyncio.timeout(_DRAIN_LIMIT_S):
                # One round of the loop accepts what may still wait in the listening socket.
                await asyncio.sleep(_ACCEPT_S)
                if (peer := self._peers.get(pid)) is not None:
                    await peer.gone.wait()
        except TimeoutError:
            _LOG.warning("a connection of the dead rank %d stays open", pid)

    def stop_at_boundary(self, key: RankKey) -> None:
        """Ask a rank to stop; without effect while it has no connection."""
        if (channel := self._control.get(key)) is not None:
            channel.send(StopAtBoundary())

    def raise_in(self, key: RankKey) -> bool:
        """Ask a rank to raise an exception; return False if it has no connection."""
        channel = self._control.get(key)
        if channel is None:
            return False
        channel.send(RaiseInRank())
        return True

    async def _take_all(self, channel: LineChannel) -> None:
        hello: RankHello | None = None
        async for message in MessageChannel(channel, _FROM_RANK).messages():
            match message:
                case RankHello():
                    hello = message
                    await self._greet(channel, hello)
                case StoreCall():
                    self._take_call(channel, message)
                case RankReport() if hello is not None:
                    self._take_report(channel, hello, message)
                case RankPulse() if hello is not None:
                    self._owner.pulse(hello.pid, message)
                case RankReport() | RankPulse():
                    raise ProtocolError(f"{message.kind} before rank_hello")

    @property
    def _owner(self) -> Ranks:
        assert self._ranks is not None, "attach() comes before the first connection"
        return self._ranks

    async def _greet(self, channel: LineChannel, hello: RankHello) -> None:
        if hello.pid != channel.peer_pid:
            raise ProtocolError(f"a rank_hello of pid {hello.pid}")
        key = RankKey(hello.task, hello.generation, hello.global_rank)
        self._control[key] = channel
        await self._owner.greet(hello)
        is_draining = self._outbox.outbox.mark(MarkScope.DRAIN, hello.task) >= hello.generation
        if is_draining and not self._owner.is_foreign(hello.pid):
            # The request may have been lost with the former agent, or come before the rank.
            channel.send(StopAtBoundary())

    def _take_call(self, channel: LineChannel, call: StoreCall) -> None:
        if self._owner.is_foreign(channel.peer_pid):
            self._relay.refuse(channel, call, "the controller that started this rank is gone")
        else:
            self._relay.call(channel, call)

    def _take_report(self, channel: LineChannel, hello: RankHello, report: RankReport) -> None:
        name = RankKey(hello.task, hello.generation, hello.global_rank).process(hello.pid)
        mark = Mark(scope=MarkScope.INTAKE, name=name, value=report.seq)
        if self._owner.is_foreign(hello.pid):
            self._outbox.advance(mark.scope, mark.name, mark.value)
        else:
            self._outbox.store(report.observation, report.wall_s, mark)
        channel.send(ReportStored(seq=self._outbox.outbox.mark(MarkScope.INTAKE, name)))
