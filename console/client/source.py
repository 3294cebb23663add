"""The interface through which the app gets events: a controller, a demo, or a fake."""

from collections import deque
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from console.viewmodel.reducer import ConsoleEvent, Received
from controller.api.wire import (
    AskWhatIf,
    Command,
    DescribeCluster,
    MovePlayback,
    ReadEvidence,
    ReadHistory,
    ReadLogs,
    Reply,
    Snapshot,
)

_CHANGES_NOTHING: Final = (
    AskWhatIf,
    DescribeCluster,
    MovePlayback,
    ReadEvidence,
    ReadHistory,
    ReadLogs,
)


class NoReplyError(Exception):
    """No reply came, so the outcome of a command is unknown. The text says why."""


class Inbox:
    """Events on their way from a source to the app's next tick.

    A snapshot replaces one that was not looked at yet; nothing else is ever dropped. Between two
    ticks there are at most as many other events as the controller sent in a fraction of a second.
    """

    def __init__(self) -> None:
        self._events: deque[ConsoleEvent] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether nothing has arrived since the last tick."""
        return not self._events

    def put(self, event: ConsoleEvent) -> None:
        """Add an event, replacing the newest one if both are snapshots."""
        if self._events and _is_snapshot(event) and _is_snapshot(self._events[-1]):
            self._events.pop()
        self._events.append(event)

    def drain(self) -> list[ConsoleEvent]:
        """Return and forget all events, oldest first."""
        events = list(self._events)
        self._events.clear()
        return events


def _is_snapshot(event: ConsoleEvent) -> bool:
    return isinstance(event, Received) and isinstance(event.message, Snapshot)


class ControllerSource(Protocol):
    """A live connection, as the app sees it."""

    @property
    def socket_path(self) -> Path:
        """Where the controller, or what plays it, is reached."""
        ...

    async def run(self, inbox: Inbox) -> None:
        """Fill ``inbox`` until cancelled; a lost connection is an event, never an exception."""

    async def send(self, command: Command) -> Reply:
        """Send a command and return its reply.

        Raises:
            NoReplyError: There is no connection, it went, or the reply is late.
        """
        ...


class ViewOnlySource(ControllerSource):
    """Another source, of which commands that change the cluster are kept back."""

    def __init__(self, source: ControllerSource) -> None:
        self._source = source

    @property
    @override
    def socket_path(self) -> Path:
        return self._source.socket_path

    @override
    async def run(self, inbox: Inbox) -> None:
        await self._source.run(inbox)

    @override
    async def send(self, command: Command) -> Reply:
        """Send a question; refuse everything else."""
        if not isinstance(command, _CHANGES_NOTHING):
            raise NoReplyError("this console is view only: nothing was sent")
        return await self._source.send(command)
