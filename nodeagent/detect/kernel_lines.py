"""Which lines of the kernel log are worth a report.

The catalogue of faults (``profiles.faults``) knows the wording; what it takes for a fault is
reported with the lines around it, and judged by the controller from those lines alone. Here a
report is only *chosen*:

- A line counts together with what was said in the ``WINDOW_S`` before it, since some faults are
  two lines: a blocked task and its stack, a link that goes down again.
- The same fault of the same device is reported once in ``REPEAT_S``; repeats are counted.
- A storm is bounded: ``MAX_REPORTS`` of one severity in ``WINDOW_S``, the rest is counted. Grave
  faults have a share of their own, so that noise can't silence them.

No I/O and no clock; memory is bounded whatever the log holds.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from nodeagent.protocol.findings import NodeFinding
from profiles.faults.catalogue import Catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.lines import without_colours
from profiles.faults.precedence import Precedence
from profiles.faults.sign import Sign
from profiles.faults.status import Severity
from profiles.faults.verdict import Verdict, decide

WINDOW_S: Final = 60.0
REPEAT_S: Final = 20.0
MAX_REPORTS: Final = 10
MAX_TEXT_BYTES: Final = 4000
_MAX_SIGNS: Final = 256
_MAX_SIGNS_PER_ENTRY: Final = 20
"""Signs of one entry that one call keeps: a storm says the same thousands of times."""
_MAX_LINE_CHARS: Final = 400
_NUM_BEFORE: Final = 1
_NUM_AFTER: Final = 3

_PCI: Final = re.compile(r"\b[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\b")
_PROCESS: Final = re.compile(r"\b[Pp]rocess (\d+)|\bpid[ =](\d+)")


class KernelLogDetector:
    """Takes lines as they come and returns what to report."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._matcher = Matcher(catalogue)  # every line counts: no samples
        self._num_lines = 0
        self._recent: deque[tuple[float, Sign]] = deque(maxlen=_MAX_SIGNS)
        self._reported_at: dict[tuple[str, str], float] = {}
        self._reports: dict[Severity, deque[float]] = defaultdict(deque)
        self._num_dropped = 0

    def take(self, lines: Sequence[bytes], now_s: float) -> list[NodeFinding]:
        """Return the findings that ``lines`` give rise to.

        Args:
            lines: New lines, in order and any bytes; those read at once belong together.
            now_s: Seconds of a monotonic clock.
        """
        near = _Neighbours(lines, self._num_lines + 1)
        signs = self._signs(lines)
        if not signs:
            return []
        self._forget(now_s)
        old = [sign for _, sign in self._recent]
        self._recent.extend((now_s, sign) for sign in signs)
        # What is new is judged by itself too, so that an older, graver fault does not hide it.
        context = [sign for sign in old if not sign.entry.names_fault]
        found: list[NodeFinding] = []
        is_fault = False
        for judged, repeat_s in (([*context, *signs], REPEAT_S), ([*old, *signs], WINDOW_S)):
            verdict = decide(judged, self._catalogue)
            if not verdict.status.is_fault:
                continue
            is_fault = True
            subject = _subject(verdict, judged)
            if self._is_due(verdict, subject, now_s, repeat_s):
                found.append(self._report(subject, _text(verdict, judged, near)))
        if is_fault and not found:
            self._num_dropped += len({sign.line for sign in signs if sign.entry.names_fault})
        return found

    def _signs(self, lines: Iterable[bytes]) -> list[Sign]:
        counts: dict[str, int] = defaultdict(int)
        signs = []
        for line in lines:
            self._num_lines += 1
            for sign in self._matcher.read(self._num_lines, line):
                counts[sign.entry.id] += 1
                is_kept = counts[sign.entry.id] <= _MAX_SIGNS_PER_ENTRY
                if is_kept and sign.entry.precedence is not Precedence.PROGRESS:
                    signs.append(sign)
        return signs

    def _forget(self, now_s: float) -> None:
        while self._recent and now_s - self._recent[0][0] > WINDOW_S:
            self._recent.popleft()
        self._reported_at = {
            key: at_s for key, at_s in self._reported_at.items() if now_s - at_s < WINDOW_S
        }
        for times in self._reports.values():
            while times and now_s - times[0] > WINDOW_S:
                times.popleft()

    def _is_due(self, verdict: Verdict, subject: str, now_s: float, repeat_s: float) -> bool:
        key = (verdict.entry_id, subject)
        times = self._reports[verdict.severity]
        is_repeat = now_s - self._reported_at.get(key, float("-inf")) < repeat_s
        if is_repeat or len(times) >= MAX_REPORTS:
            return False
        self._reported_at[key] = now_s
        times.append(now_s)
        return True

    def _report(self, subject: str, text: str) -> NodeFinding:
        num_dropped, self._num_dropped = self._num_dropped, 0
        return NodeFinding(
            probe="kernel log",
            sign="message",
            subject=subject,
            text=text,
            num_dropped=num_dropped,
        )


class _Neighbours:
    """The lines of one call by their numbers.

    Lines of an earlier call may show another fault.
    """

    def __init__(self, lines: Sequence[bytes], first: int) -> None:
        self._lines = lines
        self._first = first

    def around(self, number: int) -> list[tuple[int, str]]:
        """Return the lines that stand around line ``number``."""
        index = number - self._first
        wanted = range(max(0, index - _NUM_BEFORE), min(len(self._lines), index + _NUM_AFTER + 1))
        return [
            (self._first + near, self._lines[near].decode("utf-8", "replace"))
            for near in wanted
            if near != index
        ]


def _text(verdict: Verdict, signs: Sequence[Sign], near: _Neighbours) -> str:
    """Return the lines that support the verdict, in order.

    If they are too many, the strongest.
    """
    faults = [(sign.line, sign.text) for sign in signs if sign.entry.names_fault]
    others = [(sign.line, sign.text) for sign in signs if not sign.entry.names_fault]
    strongest_first = [(verdict.line, verdict.evidence), *reversed(faults), *reversed(others)]
    chosen: dict[int, str] = {}
    room = MAX_TEXT_BYTES
    for number, line in [*strongest_first, *near.around(verdict.line)]:
        text = without_colours(line)[:_MAX_LINE_CHARS].strip()
        size = len(text.encode()) + 1
        if text and number not in chosen and size <= room:
            chosen[number] = text
            room -= size
    return "\n".join(chosen[number] for number in sorted(chosen))


def _subject(verdict: Verdict, signs: Sequence[Sign]) -> str:
    """Return the device or process of a verdict, if the lines that agree name one."""
    root = [sign for sign in signs if sign.line == verdict.line]
    agreeing = [sign for sign in signs if sign.entry.status == verdict.status]
    for sign in (*root, *reversed(agreeing)):
        if sign.device:
            return sign.device
        if found := _PCI.search(sign.text):
            return f"PCI {found[0]}"
        if found := _PROCESS.search(sign.text):
            return f"process {found[1] or found[2]}"
    return ""
