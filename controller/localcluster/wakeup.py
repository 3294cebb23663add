"""Signals as bytes on a socket, for a loop around ``select``.

The handlers do nothing. They keep a signal from ending the process, and unlike an ignored signal
they are reset to the default in programs that the process starts. Standard library only.
"""

import signal
import socket
from typing import Final

_HANDLED: Final = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_CHUNK_BYTES: Final = 4096


class SignalSocket:
    """A socket that is readable after a signal. A later object in the same process replaces it."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        for end in (self._reader, self._writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in _HANDLED:
            signal.signal(number, lambda *_: None)

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._reader.fileno()

    def receive(self) -> set[int]:
        """Return the numbers of the signals since the last call."""
        try:
            return set(self._reader.recv(_CHUNK_BYTES))
        except BlockingIOError:
            return set()

    def close(self) -> None:
        """Close the socket. A process just forked calls this before it makes its own."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()
