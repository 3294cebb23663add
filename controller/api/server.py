"""The API's socket: sends snapshots and log lines, takes commands, and sends the answers.

A slow client must not delay the controller or fill its memory. It gets only the newest snapshot,
or what has changed since the last one that it was sent. With more than ``_MAX_BACKLOG`` unread log
lines or ``_MAX_REPLIES`` unread replies it is disconnected. It can reconnect and then gets the
newest lines. This module does not judge commands.
"""

import asyncio
import itertools
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from controller.api.view_changes import difference, is_mostly_new
from controller.api.views import ClusterView, LogLine, View
from controller.api.wire import (
    Changes,
    Command,
    FollowChanges,
    FromClient,
    Greeting,
    LogLines,
    Reply,
    Snapshot,
)

_LOG: Final = logging.getLogger(__name__)
_INTERVAL_S: Final = 0.1
_LARGEST_SHARE: Final = 0.1
"""Share of the processor's time that snapshots may take."""
_SILENCE_S: Final = 1.0
_MAX_BACKLOG: Final = 5000
_MAX_REPLIES: Final = 1000
_KEPT_LINES: Final = 2000
_MAX_LINE_BYTES: Final = 64 * 1024
_FROM_CLIENT: Final[TypeAdapter[FromClient]] = TypeAdapter(FromClient)


class ApiSocketError(Exception):
    """The socket can't be made. The text names the path and the reason."""


class _Client:
    """One connection, and the messages that wait for it."""

    def __init__(self, number: int, lines: deque[LogLine], writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.writer = writer
        self.lines = deque(lines)
        self.replies: deque[Reply] = deque()
        self.has_jumped = False
        """Whether the lines replace what it was sent before."""
        self.has_news = True
        self.follows_changes = False
        self.base: ClusterView | None = None
        """The newest view that it was sent, if it follows changes."""
        self.wake = asyncio.Event()
        self.wake.set()

    @property
    def is_behind(self) -> bool:
        """Whether a view or lines wait for it."""
        return self.has_news or self.has_jumped or bool(self.lines)

    def add_line(self, line: LogLine) -> None:
        """Queue a log line."""
        self.lines.append(line)
        self._keep_within_limits()
        self.wake.set()

    def replace_lines(self, lines: Iterable[LogLine]) -> None:
        """Queue lines that replace all earlier ones."""
        self.lines = deque(lines)
        self.has_jumped = True
        self.wake.set()

    def add_reply(self, reply: Reply) -> None:
        """Queue a reply."""
        self.replies.append(reply)
        self._keep_within_limits()
        self.wake.set()

    def _keep_within_limits(self) -> None:
        """Disconnect a client that does not read: its sender may wait without end."""
        if len(self.lines) > _MAX_BACKLOG or len(self.replies) > _MAX_REPLIES:
            num_lines, num_replies = len(self.lines), len(self.replies)
            _LOG.warning(
                "client is too slow and is disconnected: client=%d lines=%d replies=%d",
                self.number, num_lines, num_replies,
            )  # fmt: skip
            self.lines.clear()
            self.replies.clear()
            self.writer.transport.abort()


class _News:
    """The cluster at one moment, as the lines that clients are sent. Each is made once.

    Args:
        look: Returns the view of the moment.
    """

    def __init__(self, look: Callable[[], ClusterView]) -> None:
        begin_s = time.thread_time()
        self.view = look()
        self.took_s = time.thread_time() - begin_s
        """Seconds of the processor that the view and the lines have cost so far."""
        self._snapshot = b""
        self._changes: list[tuple[ClusterView, bytes]] = []

    def line(self, base: ClusterView | None) -> bytes:
        """Return the line for a client that has ``base``; None for one that has nothing."""
        begin_s = time.thread_time()
        if base is None or is_mostly_new(base, self.view):
            line = self._snapshot = self._snapshot or _line(Snapshot(view=self.view))
        else:
            line = next((line for before, line in self._changes if before is base), b"")
            if not line:
                line = _line(Changes.model_construct(fields=difference(base, self.view)))
                self._changes.append((base, line))
        self.took_s += time.thread_time() - begin_s
        return line


class _Request(View):
    """The request id, also of an invalid command."""

    request_id: str = ""


class ApiServer:
    """Serves clients on a unix socket of mode 0600.

    Args:
        cluster: Name of the cluster.
        view: Returns the newest view.
        command: Called with each valid command. Its answer must be passed to ``answer`` later,
            under the request id of the command. The server chooses that id: two clients may choose
            equal ones.
        largest_share: Share of the processor's time that views may take. After each one the server
            rests accordingly.
    """

    def __init__(
        self,
        cluster: str,
        view: Callable[[], ClusterView],
        command: Callable[[Command], None],
        *,
        largest_share: float = _LARGEST_SHARE,
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._command = command
        self._largest_share = largest_share
        self._clients: set[_Client] = set()
        self._asked: dict[str, tuple[_Client, str]] = {}
        self._request_numbers = itertools.count(1)
        self._client_numbers = itertools.count(1)
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)
        self._news: _News | None = None
        """The newest; None if it has to be made."""
        self._interval_s = _INTERVAL_S
        self.is_listening = asyncio.Event()
        """Set while clients can connect."""

    def add_line(self, line: LogLine) -> None:
        """Send a log line to every client, once."""
        self._lines.append(line)
        for client in self._clients:
            client.add_line(line)

    def replace_lines(self, lines: Iterable[LogLine]) -> None:
        """Send lines to every client that replace all that were sent before."""
        self._lines.clear()
        self._lines.extend(lines)
        for client in self._clients:
            client.replace_lines(self._lines)

    def state_changed(self) -> None:
        """Send a new snapshot to every client, soon."""
        self._news = None
        for client in self._clients:
            client.has_news = True
            client.wake.set()

    def answer(self, reply: Reply) -> None:
        """Send the answer of a command to the client that sent the command."""
        client, request_id = self._asked.pop(reply.request_id, (None, ""))
        if client is not None:
            outcome = "accepted" if reply.is_ok else "refused"
            _LOG.info(
                "command %s: client=%d request=%s code=%s reply=%s",
                outcome, client.number, request_id, reply.code, reply.message,
            )  # fmt: skip
            client.add_reply(reply.model_copy(update={"request_id": request_id}))

    async def run(self, path: Path, *, replaces_stale: bool = False) -> None:
        """Serve on ``path`` until cancelled. At the end clients get a last snapshot.

        Args:
            path: Where to listen.
            replaces_stale: Whether a socket that is there is removed. Its server must have ended.

        Raises:
            ApiSocketError: The socket can't be made there.
        """
        with _listening(path, replaces_stale=replaces_stale) as listener:
            async with asyncio.TaskGroup() as group:

                def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    group.create_task(self._serve(reader, writer))

                server = await asyncio.start_unix_server(
                    accept, sock=listener, limit=_MAX_LINE_BYTES
                )
                self.is_listening.set()
                _LOG.info("API is listening: socket=%s", path)
                try:
                    # Not serve_forever: since Python 3.12 its end waits for the clients to leave.
                    await asyncio.Event().wait()
                finally:
                    self.is_listening.clear()
                    server.close()
                    self._news = None
                    for client in self._clients:
                        client.has_news = True
                        self._write_news(client)
                    _LOG.info("API is closed: socket=%s clients=%d", path, len(self._clients))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(next(self._client_numbers), self._lines, writer)
        _LOG.info("client connected: client=%d", client.number)
        writer.write(_line(Greeting(cluster=self._cluster)))
        self._clients.add(client)
        try:
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(self._send(client))
                await self._receive(client, reader)
                sender.cancel()
        except* OSError:
            pass  # the client went away
        finally:
            self._clients.discard(client)
            self._asked = {k: asked for k, asked in self._asked.items() if asked[0] is not client}
            writer.transport.abort()  # a close would wait until the client has read all
            _LOG.info("client left: client=%d", client.number)

    async def _receive(self, client: _Client, reader: asyncio.StreamReader) -> None:
        while not client.writer.is_closing():
            try:
                line = await reader.readline()
            except ValueError:
                _LOG.info("command refused, its line is too long: client=%d", client.number)
                return
            if not line:
                return
            try:
                command = _FROM_CLIENT.validate_json(line)
            except ValidationError as error:
                refusal = _invalid(line, error)
                _LOG.info(
                    "command refused: client=%d request=%s code=%s reply=%s",
                    client.number, refusal.request_id, refusal.code, refusal.message,
                )  # fmt: skip
                client.add_reply(refusal)
                continue
            if isinstance(command, FollowChanges):
                client.follows_changes = True
                continue
            _LOG.debug(
                "command: client=%d request=%s kind=%s actor=%s",
                client.number, command.request_id, command.kind, command.actor,
            )  # fmt: skip
            number = f"{next(self._request_numbers)}/{command.request_id}"
            self._asked[number] = (client, command.request_id)
            self._command(command.model_copy(update={"request_id": number}))

    async def _send(self, client: _Client) -> None:
        """Send replies at once; views and lines after a rest that grows with what a view costs."""
        time_s = asyncio.get_running_loop().time
        sent_at = rests_until = time_s()
        while True:
            due_at = rests_until if client.is_behind else sent_at + _SILENCE_S
            try:
                async with asyncio.timeout_at(due_at):
                    await client.wake.wait()
            except TimeoutError:
                if not client.is_behind:  # without changes, too: else the view looks stale
                    client.has_news = True
                    self._news = None
            client.wake.clear()
            self._write_replies(client)
            if client.is_behind and time_s() >= rests_until:
                self._write_news(client)
                sent_at = time_s()
                rests_until = sent_at + self._interval_s
            await client.writer.drain()

    def _newest_line(self, client: _Client) -> bytes:
        """Return the newest view as a line for a client.

        One of many nodes takes longer, and is made less often.
        """
        if self._news is None:
            self._news = _News(self._view)
        line = self._news.line(client.base)
        self._interval_s = max(_INTERVAL_S, self._news.took_s / self._largest_share)
        client.base = self._news.view if client.follows_changes else None
        return line

    def _write_replies(self, client: _Client) -> None:
        while client.replies:
            client.writer.write(_line(client.replies.popleft()))

    def _write_news(self, client: _Client) -> None:
        """Write the view and the lines that wait, without blocking."""
        if client.has_news:
            client.has_news = False
            client.writer.write(self._newest_line(client))
        if client.lines or client.has_jumped:
            lines, client.lines = list(client.lines), deque()
            client.writer.write(_line(LogLines(lines=lines, replaces=client.has_jumped)))
            client.has_jumped = False


def _invalid(line: bytes, error: ValidationError) -> Reply:
    """Return the reply to an invalid command, with its request id if it has one."""
    try:
        request_id = _Request.model_validate_json(line).request_id
    except ValidationError:
        request_id = ""
    text = error.errors(include_url=False)[0]["msg"]
    return Reply(request_id=request_id, is_ok=False, code="invalid", message=text)


@contextmanager
def _listening(path: Path, *, replaces_stale: bool) -> Iterator[socket.socket]:
    """Yield a listening socket on ``path``. It has mode 0600 from its first moment.

    Raises:
        ApiSocketError: The path is too long, or a file is there.
    """
    if replaces_stale and path.is_socket():
        path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise ApiSocketError(f"can't serve on {path}: {error.strerror or error}") from error
        finally:
            os.umask(mask)
        try:
            listener.listen()
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _line(message: View) -> bytes:
    return message.model_dump_json().encode() + b"\n"
