"""JSON lines over a unix socket: one object per connection, typed messages in, any out.

Reading and writing fail apart. A rank that dies right after its last report leaves that report
unread in the socket while answers to it can't be delivered any more; with asyncio's own streams the
failed write would throw the unread report away. So a broken write only marks the channel, and
reading continues to the end.

Ends of the connection are ordinary (iteration stops); a malformed line raises ``ProtocolError`` so
that the owner closes this connection and no other. Nothing here interprets a message.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from nodeagent.protocol.codec import MAX_LINE_BYTES, Codec, LineSplitter, encode

MessageT = TypeVar("MessageT")

_LOG = logging.getLogger(__name__)

MAX_QUEUED_BYTES: Final = 2 * MAX_LINE_BYTES
"""A peer that leaves this much unread is cut off: it connects again, and repeats what counts."""
_READ_BYTES: Final = 64 * 1024
_DRAIN_BYTES: Final = 64 * 1024


class LineChannel:
    """One connection, as lines in and messages or lines out. One task reads, any may send."""

    def __init__(self, connection: socket.socket, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._splitter = LineSplitter(max_line_bytes)
        self._lines: deque[bytes] = deque()
        self._queued = bytearray()
        self._taken = asyncio.Event()
        self._is_broken = False
        self._awaits_room = False
        self.peer_pid = _peer_pid(connection)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield lines until the peer closes the connection or it breaks.

        Raises:
            ProtocolError: A line is too long.
        """
        while True:
            while self._lines:
                yield self._lines.popleft()
            try:
                data = await self._loop.sock_recv(self._connection, _READ_BYTES)
            except OSError:
                return
            if not data:
                return
            self._lines.extend(self._splitter.feed(data))

    async def first_line(self) -> bytes | None:
        """Return the next line, or None at the end of the connection."""
        async for line in self.lines():
            return line
        return None

    def send(self, message: BaseModel) -> None:
        """Send ``message`` or queue it; what a broken connection can't take is dropped."""
        self.send_line(encode(message))

    def send_line(self, line: bytes) -> None:
        """Send a line that is already encoded, newline included; see ``send``."""
        if self._is_broken:
            return
        if len(self._queued) > MAX_QUEUED_BYTES:
            _LOG.warning("connection dropped, the peer does not read: pid=%d", self.peer_pid)
            self.abort()
            return
        is_idle = not self._queued
        self._queued += line
        if is_idle:
            self._write()
            if self._queued:
                self._awaits_room = True
                self._loop.add_writer(self._connection, self._write)

    async def drain(self) -> None:
        """Wait until the peer has taken most of what is queued.

        Raises:
            OSError: The connection is broken.
        """
        while len(self._queued) > _DRAIN_BYTES and not self._is_broken:
            self._taken.clear()
            await self._taken.wait()
        if self._is_broken:
            raise BrokenPipeError("the peer has closed the connection")

    @property
    def num_queued_bytes(self) -> int:
        """Bytes that the peer has not taken yet."""
        return len(self._queued)

    def abort(self) -> None:
        """End the connection; the task that reads sees its end. May be called again."""
        self._break()
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it had ended already

    def end_input(self) -> None:
        """End the lines after those that the peer has sent, even if its end is still open.

        For a peer that is dead: all that it wrote waits in the socket already.
        """
        try:
            self._connection.shutdown(socket.SHUT_RD)
        except OSError:
            return  # it had ended already

    def end_output(self) -> None:
        """Send the end of the stream. What the peer still sends can be read."""
        try:
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it had ended already

    def close(self) -> None:
        """Release the socket; by the task that reads, once. What is still queued is lost."""
        self._break()
        self._connection.close()

    def _write(self) -> None:
        try:
            while self._queued:
                del self._queued[: self._connection.send(self._queued)]
        except BlockingIOError:
            self._taken.set()
            return
        except OSError:
            self._break()
            return
        self._await_no_room()
        self._taken.set()

    def _break(self) -> None:
        if not self._is_broken:
            self._is_broken = True
            self._queued.clear()
            self._await_no_room()
            self._taken.set()

    def _await_no_room(self) -> None:
        # Asking the loop to forget what it does not know costs it an exception with the socket's
        # name.
        if self._awaits_room:
            self._awaits_room = False
            self._loop.remove_writer(self._connection)


class MessageChannel(Generic[MessageT]):
    """A ``LineChannel`` whose lines are the members of one union."""

    def __init__(self, channel: LineChannel, adapter: TypeAdapter[MessageT]) -> None:
        self.channel = channel
        self._codec = Codec(adapter)

    async def messages(self) -> AsyncIterator[MessageT]:
        """Yield messages until the connection ends.

        Raises:
            ProtocolError: A line is not a message of the union.
        """
        async for line in self.channel.lines():
            yield self._codec.decode(line)


async def connect(path: Path) -> LineChannel:
    """Connect to the unix socket at ``path``. Raises ``OSError``."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, str(path))
        return LineChannel(connection)
    except OSError:
        connection.close()
        raise


def listen(path: Path) -> socket.socket:
    """Return a listening unix socket at ``path``, for this user only; a stale file is replaced.

    Raises:
        OSError: The path is too long or not writable.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(128)
    listener.setblocking(False)
    return listener


def _peer_pid(connection: socket.socket) -> int:
    """Return the pid at the other end of a unix socket; the kernel vouches for it."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, _uid, _gid = struct.unpack("3i", raw)
    return int(pid)
