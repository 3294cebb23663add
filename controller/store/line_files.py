"""Files of lines that a process adds to until it is killed.

A line that was cut off by a crash can only be the last; it is dropped, because what was not written was not
acted upon either. What counts is the newline: without it a line was not written.
"""

import logging
from io import BufferedWriter
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)


def open_lines(path: Path) -> BufferedWriter:
    """Open a file of mode 0600 for more lines, and make it if it is not there.

    A torn last line is cut off first, so that the next one does not become a part of it.

    Raises:
        OSError: It can't be opened.
    """
    path.touch(mode=0o600)
    torn = path.read_bytes().rpartition(b"\n")[2]
    file = path.open("ab")
    if torn:
        file.truncate(file.tell() - len(torn))
        _LOG.warning("incomplete last line cut off: path=%s bytes=%d", path, len(torn))
    return file


def read_lines(path: Path) -> list[bytes]:
    """Return the whole lines of a file, without their newlines.

    Raises:
        OSError: It can't be read.
    """
    *lines, _torn = path.read_bytes().split(b"\n")
    return lines
