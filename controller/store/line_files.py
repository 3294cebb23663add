"""Files of lines that a process appends to until it is killed.

A crash can cut off only the last line. That line is dropped, because the process acts only after it
has written the whole line. A line is complete when its newline is there.
"""

import logging
import os
from io import BufferedWriter
from pathlib import Path
from typing import Final

_LOG: Final = logging.getLogger(__name__)


def open_lines(path: Path) -> BufferedWriter:
    """Open a file for more lines; a new file has mode 0600.

    An incomplete last line is cut off first. Otherwise the next line would become a part of it.

    Raises:
        OSError: The file can't be opened.
    """
    path.touch(mode=0o600)
    torn = path.read_bytes().rpartition(b"\n")[2]
    file = path.open("ab")
    if torn:
        file.truncate(file.tell() - len(torn))
        _LOG.warning("incomplete last line cut off: path=%s bytes=%d", path, len(torn))
    return file


def read_lines(path: Path) -> list[bytes]:
    """Return the complete lines of a file, without their newlines.

    Raises:
        OSError: The file can't be read.
    """
    *lines, _torn = path.read_bytes().split(b"\n")
    return lines


def sync_directory(directory: Path) -> None:
    """Have the disk keep the names of the files in a directory.

    Raises:
        OSError: It can't.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
