"""Lines of the kernel log that were overwritten before the agent read them: counted, and reported.

A reader that is too slow loses lines: the kernel's buffer wraps around, a file grows faster than it
is read, the journal says itself what it has missed. A fault may have been among them, so the
loss is reported. The first loss is reported at once, further ones at most once a minute, as a sum.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from nodeagent.protocol.findings import NodeFinding

REPORT_S: Final = 60.0
"""Losses within this time of a reported loss are reported together."""

_MISSED: Final = re.compile(rb"systemd-journald\S* Missed (\d{1,18}) kernel messages")
"""How journald words it, in its own log and in those of syslog daemons."""


class Lost(NamedTuple):
    """What one reader has lost. Where lines can't be counted it is bytes."""

    num_lines: int = 0
    num_bytes: int = 0

    def plus(self, other: "Lost") -> "Lost":
        """Return both together."""
        return Lost(self.num_lines + other.num_lines, self.num_bytes + other.num_bytes)


class LostLines:
    """Adds up losses and says when they are to be reported."""

    def __init__(self) -> None:
        self._lost = Lost()
        self._reported_at = float("-inf")

    def take(self, lost: Lost, lines: Iterable[bytes], now_s: float) -> NodeFinding | None:
        """Return the finding to report now, if there is one.

        Args:
            lost: What was lost since the last call.
            lines: The lines that were read since then, some of which may show a loss.
            now_s: Seconds of a monotonic clock.
        """
        missed = [_MISSED.search(line) for line in lines if b"Missed" in line]
        num_missed = sum(int(match[1]) for match in missed if match)
        self._lost = self._lost.plus(lost).plus(Lost(num_lines=num_missed))
        if self._lost == Lost() or now_s - self._reported_at < REPORT_S:
            return None
        lost, self._lost, self._reported_at = self._lost, Lost(), now_s
        return _finding(lost)


def _finding(lost: Lost) -> NodeFinding:
    parts = [
        f"{number} {unit}"
        for number, unit in ((lost.num_lines, "lines"), (lost.num_bytes, "bytes"))
        if number
    ]
    return NodeFinding(
        probe="kernel log",
        sign="lines_lost",
        text=f"{' and '.join(parts)} of the log were lost before they were read: faults may be among them",
        value=lost.num_lines or lost.num_bytes,
        is_event=True,
    )
