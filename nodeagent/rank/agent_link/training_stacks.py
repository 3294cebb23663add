"""Where this rank stands, told from beside its training thread.

Two ways, for two kinds of trouble. ``read_own_standing`` reads the stacks inside the process, from another thread:
it needs the interpreter's lock, and gives names. ``dump_stacks_on_signal`` has Python's fault handler write
them to a file at a signal: that works while some extension holds the lock for ever. Neither changes
what the training thread does.
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
    """Return where the main thread of this process stands; call it from another thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        Thread(names.get(ident, "a thread"), _frames(frame))
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 - documented, and has no other name
    ]
    standing = standing_of(threads, "rank", linecache.getline)
    assert standing is not None, "the main thread has frames for as long as the process lives"
    return standing


def dump_stacks_on_signal(path: Path) -> None:
    """Append the stacks of all threads to ``path`` at every ``DUMP_SIGNAL`` from now on.

    Raises:
        OSError: The file can't be made.
    """
    path.touch(mode=0o600)
    # The handler writes to the descriptor, which lives as long as the process.
    file = path.open("ab")
    faulthandler.register(DUMP_SIGNAL, file=file, all_threads=True, chain=False)


def _frames(frame: FrameType | None) -> list[StackFrame]:
    frames = []
    while frame is not None:
        frames.append(StackFrame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames
