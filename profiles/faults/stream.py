"""Findings in a log without end: signs that stand near each other are one fault, and one finding.

Memory does not grow with the log, and what is found does not depend on how its bytes arrive.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.precedence import Precedence
from profiles.faults.sign import Sign
from profiles.faults.verdict import Verdict, decide

QUIET_LINES: Final = 200
"""Lines without a sign of a fault after which the next sign is another fault's."""
_MAX_SPAN_LINES: Final = 5000
"""Longest finding: a fault that is printed without end is found again."""
_MAX_LINE_BYTES: Final = 1 << 20
"""Longer lines are read in parts."""
_MAX_SIGNS_PER_ENTRY: Final = 50
_MAX_CONTEXT: Final = 32
_MAX_TRAILING_PROGRESS: Final = 4
_PROGRESS_THAT_ENDS: Final = 40
"""Progress lines after which training has left a fault behind it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault in a log.

    Attributes:
        first_line: Number of its first line, counted from 1.
        last_line: Number of the last one.
        verdict: What it is; never ``none``.
    """

    first_line: int
    last_line: int
    verdict: Verdict


class FindingStream:
    """Turns the bytes of a log into findings. Feed it chunks of any size, then close it."""

    def __init__(self, *, catalogue: Catalogue | None = None) -> None:
        """Begin a log; what wrote its lines need not be known."""
        self._catalogue = catalogue or default_catalogue()
        self._matcher = Matcher(self._catalogue, is_long=True)
        self._rest = b""
        self._num_lines = 0
        self._is_in_line = False
        self._incident = _Incident(self._catalogue)
        self._findings: list[Finding] = []

    @property
    def num_lines(self) -> int:
        """Lines that were read so far; one without a line feed at its end counts when it begins."""
        return self._num_lines

    def feed(self, chunk: bytes) -> list[Finding]:
        """Read ``chunk`` and return the findings that are complete."""
        *lines, rest = (self._rest + chunk).split(b"\n") if self._rest else chunk.split(b"\n")
        if lines and self._is_in_line:
            self._take(self._matcher.read(self._num_lines, lines.pop(0)))
            self._is_in_line = False
        if max(map(len, lines), default=0) > _MAX_LINE_BYTES:
            for line in lines:
                self._read_long(line)
        else:
            self._take(self._matcher.read_all(lines, self._num_lines + 1))
            self._num_lines += len(lines)
        while len(rest) >= _MAX_LINE_BYTES:
            self._read_part(rest[:_MAX_LINE_BYTES])
            rest = rest[_MAX_LINE_BYTES:]
        self._rest = rest
        return self._taken()

    def close(self) -> list[Finding]:
        """End the log and return the last findings."""
        if self._rest:
            self._read_part(self._rest)
            self._rest = b""
        self._end_incident()
        return self._taken()

    def _taken(self) -> list[Finding]:
        findings, self._findings = self._findings, []
        return findings

    def _read_long(self, line: bytes) -> None:
        for start in range(0, max(len(line), 1), _MAX_LINE_BYTES):
            self._read_part(line[start : start + _MAX_LINE_BYTES])
        self._is_in_line = False

    def _read_part(self, part: bytes) -> None:
        """Read a part of a line, the first or a further one."""
        if not self._is_in_line:
            self._num_lines += 1
            self._is_in_line = True
        self._take(self._matcher.read(self._num_lines, part))

    def _take(self, signs: Iterable[Sign | int]) -> None:
        for sign in signs:
            if isinstance(sign, int):
                self._incident.extend(sign)
                continue
            if self._incident.is_over(sign.line):
                self._end_incident()
            self._incident.add(sign)

    def _end_incident(self) -> None:
        finding, self._incident = self._incident.end()
        if finding is not None:
            self._findings.append(finding)


class _Incident:
    """Signs that stand near each other, and what was said shortly before them."""

    def __init__(self, catalogue: Catalogue, context: tuple[Sign, ...] = ()) -> None:
        self._catalogue = catalogue
        self._context: deque[Sign] = deque(context, maxlen=_MAX_CONTEXT)
        self._signs: list[Sign] = []
        self._counts: Counter[str] = Counter()
        self._first_line = 0
        self._last_line = 0
        self._num_trailing_progress = 0

    def is_over(self, line: int) -> bool:
        """Whether a sign in ``line`` belongs to another fault."""
        return bool(self._signs) and (
            line - self._last_line > QUIET_LINES
            or line - self._first_line > _MAX_SPAN_LINES
            or self._num_trailing_progress >= _PROGRESS_THAT_ENDS
        )

    def extend(self, line: int) -> None:
        """Take in ``line``, which says what a line shortly before it said."""
        if self._signs and not self.is_over(line):
            self._last_line = line
            self._num_trailing_progress = 0

    def add(self, sign: Sign) -> None:
        """Take a sign in; of an entry that repeats itself only the first ones."""
        if not sign.entry.names_fault and not self._signs:
            if sign.entry.precedence is not Precedence.PROGRESS or not self._context_ends_in(sign):
                self._context.append(sign)
            return
        if sign.entry.precedence is Precedence.PROGRESS:
            self._num_trailing_progress += 1
            if self._num_trailing_progress <= _MAX_TRAILING_PROGRESS:
                self._signs.append(sign)
            return
        if sign.entry.names_fault:
            if not self._signs:
                self._signs = [
                    near for near in self._context if sign.line - near.line <= QUIET_LINES
                ]
                self._first_line = sign.line
            self._last_line = sign.line
            self._num_trailing_progress = 0
        self._counts[sign.entry.id] += 1
        if self._counts[sign.entry.id] <= _MAX_SIGNS_PER_ENTRY:
            self._signs.append(sign)

    def _context_ends_in(self, sign: Sign) -> bool:
        return bool(self._context) and self._context[-1].entry is sign.entry

    def end(self) -> tuple[Finding | None, "_Incident"]:
        """Return the finding, if there is one, and the incident that may follow."""
        context = tuple(sign for sign in self._signs if not sign.entry.names_fault)
        follower = _Incident(self._catalogue, context or tuple(self._context))
        if not self._signs:
            return None, follower
        verdict = decide(self._signs, self._catalogue)
        if not verdict.status.is_fault:
            return None, follower
        return Finding(self._first_line, self._last_line, verdict), follower
