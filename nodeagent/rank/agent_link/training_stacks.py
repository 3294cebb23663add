"""Reads the stack of the training thread without stopping it, for a rank that hangs.

``read_own_standing`` reads the stacks from another thread of the process. It needs the
interpreter's lock, and gives names of threads and source lines. ``dump_stacks_on_signal`` has
Python's fault handler write the stacks to a file at a signal. That works also while an extension
holds the lock.
"""

import faulthandler
import linecache
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from nodeagent.detect.stacks import StackFrame, Thread, standing_of
from nodeagent.protocol.standing import Standing

DUMP_SIGNAL: Final = signal.SIGUSR2


def read_own_standing() -> Standing:
    """Return what the main thread of this process does now. Call it from another thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        Thread(names.get(ident, "a thread"), _frames(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - documented, and has no other name
    ]
    standing = standing_of(threads, "rank", linecache.getline)
    assert standing is not None, "the main thread has frames for as long as the process lives"
    return standing


def dump_stacks_on_signal(path: Path) -> None:
    """Append the stacks of all threads to ``path`` at every later ``DUMP_SIGNAL``.

    Raises:
        OSError: The file can't be made.
    """
    path.touch(mode=0o600)
    # Never closed: the handler writes to the descriptor as long as the process lives.
    file = path.open("ab")
    faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)


def _frames(frame: FrameType | None) -> list[StackFrame]:
    frames = []
    while frame is not None:
        # A frame has no line while it does what no line says, as in the middle of an import.
        line = frame.f_lineno or frame.f_code.co_firstlineno
        frames.append(StackFrame(frame.f_code.co_filename, line, frame.f_code.co_name))
        frame = frame.f_back
    return frames
