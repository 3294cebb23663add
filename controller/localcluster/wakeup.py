"""Signals as bytes on a socket, so that a loop around ``select`` sees them between two orders.

The handlers do nothing: what matters is that the signals do not end the process, and that programs
started from it get the default handlers back (an ignored signal would stay ignored in them).
Standard library only.
"""

import signal
import socket
from typing import Final

_HANDLED: Final = (signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_CHUNK_BYTES: Final = 4096


class SignalSocket:
    """Readable as soon as a signal has come. A later one in the same process replaces it."""

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
        """Return the numbers of the signals that came since the last call."""
        try:
            return set(self._reader.recv(_CHUNK_BYTES))
        except BlockingIOError:
            return set()

    def close(self) -> None:
        """Stop; used by a process just forked, before it makes its own."""
        signal.set_wakeup_fd(-1)
        self._reader.close()
        self._writer.close()
