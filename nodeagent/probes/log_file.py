"""A log in a file, followed: what is written to it from now on, through rotation and truncation.

What stands in the file when following begins is history. A file that appears later is read from its
beginning, and so is one that takes the place of the old: by another inode (renamed away), by
getting shorter, or by new bytes where the last ones read had stood (copied and truncated). Nothing
here blocks or waits; a file that can't be read is tried again at the next call.
"""

import logging
import os
import stat
from pathlib import Path
from typing import Final

from typing_extensions import override

from nodeagent.detect.log_lines import LineCutter
from nodeagent.detect.lost_lines import Lost
from nodeagent.probes.log_source import LogSource

_LOG = logging.getLogger(__name__)

MAX_READ_BYTES: Final = 128 * 1024
"""What one call reads at most, so that a storm does not hold up the agent."""
MAX_BEHIND_BYTES: Final = 1024 * 1024
"""A reader that is further behind than this skips to the end: new lines matter more."""
_TRACE_BYTES: Final = 64


_Identity = tuple[int, int]


class LogFile(LogSource):
    """The lines of one file that are new since the last call."""

    def __init__(self, path: Path) -> None:
        """Begin to follow ``path``, whether or not it exists or can be read yet."""
        self._path = path
        self._file = -1
        self._lines = LineCutter()
        self._trace = b""
        self._offset = 0
        self._num_skipped = 0
        self._identity: _Identity | None = None
        try:
            there = path.stat()
        except OSError:
            return
        self._offset, self._identity = there.st_size, _identity(there)

    @property
    @override
    def name(self) -> str:
        return str(self._path)

    @override
    def read(self) -> list[bytes]:
        """Return the lines that are complete and were not returned before.

        Raises:
            OSError: The file is not there or can't be read. What it had is not lost: it may be
                called again at any time.
        """
        lines: list[bytes] = []
        try:
            if self._file >= 0 and self._is_replaced():
                lines = self._read_more()
                if self._has_more():
                    return lines
                lines += self._lines.flush()
                self.close()
            self._open()
            lines += self._read_more()
        except OSError:
            self.close()
            if not lines:
                raise
        return lines

    @override
    def take_lost(self) -> Lost:
        """Return how many bytes were skipped since the last call."""
        lost, self._num_skipped = Lost(num_bytes=self._num_skipped), 0
        return lost

    @override
    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        if self._file >= 0:
            return
        self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        opened = os.fstat(self._file)
        if not stat.S_ISREG(opened.st_mode):
            raise OSError(f"{self._path} is no regular file")
        identity = _identity(opened)
        if identity != self._identity:
            self._offset, self._trace, self._identity = 0, b"", identity

    def _is_replaced(self) -> bool:
        try:
            return _identity(self._path.stat()) != self._identity
        except FileNotFoundError:
            return False  # renamed away; until the next one is there, the old one may grow

    def _has_more(self) -> bool:
        return os.fstat(self._file).st_size > self._offset

    def _read_more(self) -> list[bytes]:
        size = os.fstat(self._file).st_size
        if size == self._offset:
            return []
        lines: list[bytes] = []
        if size < self._offset or not self._stands_where_it_was():
            lines = self._lines.flush()
            self._offset, self._trace = 0, b""
        if size - self._offset > MAX_BEHIND_BYTES:
            num_skipped = size - MAX_READ_BYTES - self._offset
            _LOG.warning(
                "log follower is too far behind, bytes skipped: path=%s bytes=%d",
                self._path,
                num_skipped,
            )
            self._num_skipped += num_skipped
            self._offset = size - MAX_READ_BYTES
            lines += self._lines.flush()
        data = os.pread(self._file, MAX_READ_BYTES, self._offset)
        self._offset += len(data)
        self._trace = (self._trace + data[-_TRACE_BYTES:])[-_TRACE_BYTES:]
        return lines + self._lines.feed(data)

    def _stands_where_it_was(self) -> bool:
        """Whether the bytes before the offset are the ones that were read."""
        start = self._offset - len(self._trace)
        return os.pread(self._file, len(self._trace), start) == self._trace


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino
