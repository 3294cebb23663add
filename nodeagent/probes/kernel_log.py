"""The node's kernel log, from the first place that lets itself be read.

In this order: ``/dev/kmsg``, the journal, one of the files that syslog daemons write. A file that
the operator names is the only place. An unreadable place is reported
once and tried again without end.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from nodeagent.detect.lost_lines import Lost
from nodeagent.probes.kmsg import KernelMessages
from nodeagent.probes.log_file import LogFile
from nodeagent.probes.log_source import LogSource
from nodeagent.probes.systemd_journal import SystemdJournal

_LOG = logging.getLogger(__name__)

RETRY_S: Final = 10.0
_SYSLOG_FILES: Final = (Path("/var/log/kern.log"), Path("/var/log/messages"))

Opening = Callable[[], LogSource]


class KernelLog:
    """New lines of the kernel log. Never raises and never blocks."""

    def __init__(self, path: Path | None = None, openings: Sequence[Opening] = ()) -> None:
        """Choose where to read.

        Args:
            path: The only file to follow; None to look for the kernel log itself.
            openings: Places to look for it, best first; the usual ones if none are given.
        """
        # Followed from the very beginning on, so that a file which appears later is read whole.
        self._file = None if path is None else LogFile(path)
        self._openings = openings or (KernelMessages, SystemdJournal, _open_syslog)
        self._source: LogSource | None = self._file
        self._retry_at_s = 0.0
        self._next = 0
        self._problem = ""

    @property
    def state(self) -> str:
        """What it reads, or why it does not, in words for an operator."""
        if self._problem:
            return f"can't be read, tried again: {self._problem}"
        return "not opened yet" if self._source is None else f"follows {self._source.name}"

    def read(self, now_s: float) -> list[bytes]:
        """Return the lines that are new at ``now_s``, seconds of a monotonic clock."""
        if self._source is None:
            if now_s < self._retry_at_s:
                return []
            self._source = self._open(now_s)
        if self._source is None:
            return []
        try:
            lines = self._source.read()
        except OSError as error:
            self._note_problem(str(error))
            if self._file is None:
                self._source.close()
                # The next place, and from the first one again when all have failed.
                self._next = (self._next + 1) % len(self._openings)
                self._source, self._retry_at_s = None, now_s + (0.0 if self._next else RETRY_S)
            return []
        if self._problem and lines:
            _LOG.info("kernel log source changed: source=%s", self._source.name)
            self._problem = ""
        return lines

    def take_lost(self) -> Lost:
        """Return the loss since the last call, as far as the present source knows."""
        return Lost() if self._source is None else self._source.take_lost()

    def close(self) -> None:
        """Let go of the log. May be called again."""
        if self._source is not None:
            self._source.close()

    def _open(self, now_s: float) -> LogSource | None:
        problems = []
        for number in range(self._next, len(self._openings)):
            self._next = number
            try:
                return self._openings[number]()
            except OSError as error:
                problems.append(str(error))
        self._next = 0
        self._note_problem("; ".join(problems))
        self._retry_at_s = now_s + RETRY_S
        return None

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            _LOG.warning("kernel log unreadable, will retry: reason=%s", problem)
        self._problem = problem


def _open_syslog() -> LogSource:
    for path in _SYSLOG_FILES:
        if path.exists():
            return LogFile(path)
    raise FileNotFoundError(f"there is no {' and no '.join(map(str, _SYSLOG_FILES))}")
