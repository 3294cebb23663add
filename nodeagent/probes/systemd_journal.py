"""The kernel log by way of systemd's journal, for who may read that and not ``/dev/kmsg``.

A ``journalctl`` that follows writes into a pipe, which is read without blocking. Its end is an
error; whoever uses this starts another one, later. Beside the kernel's messages it is asked for
those by which journald says that it has missed some.
"""

import os
import shutil
import subprocess
from typing import Final

from typing_extensions import override

from nodeagent.detect.log_lines import LineCutter
from nodeagent.detect.lost_lines import Lost
from nodeagent.probes.log_source import LogSource

_MISSED_MESSAGES: Final = "e9bf28e6e834481bb6f48f548ad13606"
"""``SD_MESSAGE_JOURNAL_MISSED``. It is no kernel message, so ``-k`` does not show it."""
_COMMAND: Final = (
    "-b", "-f", "-n", "0", "-o", "short-iso", "--no-pager",
    "_TRANSPORT=kernel", "+", f"MESSAGE_ID={_MISSED_MESSAGES}",
)  # fmt: skip
_READ_BYTES: Final = 128 * 1024
_MAX_REASON_CHARS: Final = 200


class SystemdJournal(LogSource):
    """Kernel messages of the journal since this object was made."""

    def __init__(self) -> None:
        """Start ``journalctl``.

        Raises:
            OSError: There is none, or it can't be started.
        """
        program = shutil.which("journalctl")
        if program is None:
            raise FileNotFoundError("there is no journalctl")
        self._lines = LineCutter()
        self._process = subprocess.Popen(  # noqa: S603 - an argument list of our own
            [program, *_COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._output, self._errors = self._process.stdout.fileno(), self._process.stderr.fileno()
        for end in (self._output, self._errors):
            os.set_blocking(end, False)

    @property
    @override
    def name(self) -> str:
        return "the journal (journalctl)"

    @override
    def read(self) -> list[bytes]:
        """Return new lines.

        Raises:
            OSError: ``journalctl`` has ended; the text is its last words.
        """
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return []
        if data:
            return self._lines.feed(data)
        raise OSError(f"journalctl ended: {self._last_words() or 'without a word'}")

    @override
    def take_lost(self) -> Lost:
        """Return nothing: what was lost stands in the lines themselves."""
        return Lost()

    @override
    def close(self) -> None:
        """End ``journalctl``. May be called again."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _last_words(self) -> str:
        try:
            text = os.read(self._errors, _READ_BYTES).decode("utf-8", "replace")
        except BlockingIOError:
            return ""
        return text.strip().rpartition("\n")[2][:_MAX_REASON_CHARS]
