"""Ctrl-C while logs are read: at once while bytes are awaited, else after the current chunk.

So what has been read can be printed, and no line is left half read.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Remembers Ctrl-C. A second one ends the command wherever it is."""

    def __init__(self) -> None:
        self.is_wanted = False
        self._is_waiting = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle SIGINT inside of the block. Only the main thread can do that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Let Ctrl-C end the block at once, by a ``KeyboardInterrupt``."""
        self._is_waiting = True
        try:
            self.check()
            yield
        finally:
            self._is_waiting = False

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C came."""
        if self.is_wanted:
            raise KeyboardInterrupt

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.is_wanted or self._is_waiting:
            self.is_wanted = True
            raise KeyboardInterrupt
        self.is_wanted = True
