"""The API's socket: pushes snapshots and log lines, takes commands and answers them.

A slow client never holds the controller up: snapshots are coalesced to the newest, and a client
whose log lines pile up past ``_MAX_BACKLOG`` is disconnected; it reconnects and gets the newest.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from controller.api.views import ClusterView, LogLine, View
from controller.api.wire import Command, Greeting, LogLines, Reply, Snapshot

_INTERVAL_S: Final = 0.1
_SILENCE_S: Final = 1.0
_MAX_BACKLOG: Final = 5000
_KEPT_LINES: Final = 2000
_MAX_LINE_BYTES: Final = 64 * 1024
_COMMAND: Final[TypeAdapter[Command]] = TypeAdapter(Command)


class ApiSocketError(Exception):
    """The socket can't be served; the text names the path and the reason."""


class _Client:
    """One connection: what it still has to be sent."""

    def __init__(self, lines: deque[LogLine], writer: asyncio.StreamWriter) -> None:
        self.lines = deque(lines)
        self.writer = writer
        self.replies: deque[Reply] = deque()
        self.has_news = True
        self.wake = asyncio.Event()


class ApiServer:
    """Serves consoles on a unix socket of mode 0600.

    ``view`` gives the newest snapshot; ``command`` takes a decoded command, whose answer is later
    passed to ``answer`` under the same request id.
    """

    def __init__(
        self, cluster: str, view: Callable[[], ClusterView], command: Callable[[Command], None]
    ) -> None:
        self._cluster = cluster
        self._view = view
        self._command = command
        self._clients: set[_Client] = set()
        self._asked: dict[str, _Client] = {}
        self._lines: deque[LogLine] = deque(maxlen=_KEPT_LINES)

    def add_line(self, line: LogLine) -> None:
        """Send a log line to everybody, once."""
        self._lines.append(line)
        for client in list(self._clients):
            client.lines.append(line)
            client.wake.set()
            if len(client.lines) > _MAX_BACKLOG:
                self._drop(client)

    def _drop(self, client: _Client) -> None:
        """End a client's connection without waiting for it to read."""
        self._clients.discard(client)
        client.writer.transport.abort()

    def state_changed(self) -> None:
        """Have a new snapshot sent to everybody, soon."""
        for client in self._clients:
            client.has_news = True
            client.wake.set()

    def answer(self, reply: Reply) -> None:
        """Send the answer of a command to whoever asked."""
        client = self._asked.pop(reply.request_id, None)
        if client is not None:
            client.replies.append(reply)
            client.wake.set()

    async def run(self, path: Path) -> None:
        """Serve on ``path`` until cancelled; the socket is removed in the end."""
        with _listening(path) as listener:
            server = await asyncio.start_unix_server(
                self._serve, sock=listener, limit=_MAX_LINE_BYTES
            )
            try:
                async with server:
                    await server.serve_forever()
            finally:
                for client in list(self._clients):
                    self._drop(client)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self._lines, writer)
        self._clients.add(client)
        try:
            async with asyncio.TaskGroup() as group:
                sender = group.create_task(self._send(client, writer))
                await self._receive(client, reader)
                sender.cancel()
        except* OSError:
            pass  # the client went away
        finally:
            self._clients.discard(client)
            writer.close()

    async def _receive(self, client: _Client, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                return  # longer than any command
            if not line:
                return
            try:
                command = _COMMAND.validate_json(line)
            except ValidationError as error:
                text = error.errors(include_url=False)[0]["msg"]
                client.replies.append(
                    Reply(request_id="", is_ok=False, code="invalid", message=text)
                )
                client.wake.set()
                continue
            self._asked[command.request_id] = client
            self._command(command)

    async def _send(self, client: _Client, writer: asyncio.StreamWriter) -> None:
        writer.write(_line(Greeting(cluster=self._cluster)))
        while True:
            try:
                async with asyncio.timeout(_SILENCE_S):
                    await client.wake.wait()
            except TimeoutError:
                client.has_news = True  # nothing happened: say so, or the view looks stale
            client.wake.clear()
            while client.replies:
                writer.write(_line(client.replies.popleft()))
            if client.has_news:
                client.has_news = False
                writer.write(_line(Snapshot(view=self._view())))
            if client.lines:
                lines, client.lines = list(client.lines), deque()
                writer.write(_line(LogLines(lines=lines)))
            await writer.drain()
            await asyncio.sleep(_INTERVAL_S)


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """Yield a listening socket on ``path``, readable by its owner alone from the first moment.

    Raises:
        ApiSocketError: The path is too long, or something is there already.
    """
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
