"""Findings in a log without end: signs that stand near each other are one fault, and one finding.

Memory does not grow with the log, and what is found does not depend on how its bytes arrive.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiles.faults.catalogue import Catalogue, default_catalogue
from profiles.faults.line_matching import Matcher
from profiles.faults.matching.readings import Found
from profiles.faults.precedence import Precedence
from profiles.faults.sign import Sign
from profiles.faults.tracebacks import OpenTraceback, begins_traceback
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
_PROGRESS_OF_ANOTHER_RUN: Final = 100
"""Progress lines after the end of a run that must be another run's."""
_MAX_OPEN: Final = 8
"""Findings that may wait for progress, which would refute them."""
_DEATHS: Final = frozenset({Precedence.EXIT, Precedence.DEATH})
_MAX_WAIT_LINES: Final = 20_000
"""How long they wait, if nothing else happens."""


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
        self._open: deque[_Ended] = deque()
        self._findings: list[Finding] = []
        self._abort_line: int | None = None
        self._lines: list[bytes] = []
        self._first = 0
        self._tracebacks: list[OpenTraceback] = []

    @property
    def abort_line(self) -> int | None:
        """Number of the first line with an abort after the run had ended, if there is one.

        The result is there, so it is no finding.
        """
        return self._abort_line

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
        self._show_tracebacks(lines)
        if max(map(len, lines), default=0) > _MAX_LINE_BYTES:
            for line in lines:
                self._read_long(line)
        else:
            self._take(self._matcher.read_all(lines, self._num_lines + 1))
            self._num_lines += len(lines)
        self._lines = []
        while len(rest) >= _MAX_LINE_BYTES:
            self._read_part(rest[:_MAX_LINE_BYTES])
            rest = rest[_MAX_LINE_BYTES:]
        self._rest = rest
        return self._taken()

    def close(self) -> list[Finding]:
        """End the log and return the last findings."""
        if self._rest:
            if not self._is_in_line:
                self._show_tracebacks([self._rest])
            self._read_part(self._rest)
            self._rest = b""
        self._end_incident(self._num_lines)
        self._release(0)
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

    def _show_tracebacks(self, lines: list[bytes]) -> None:
        """Show the next lines to the tracebacks whose exceptions have not come yet."""
        self._lines, self._first = lines, self._num_lines + 1
        if self._tracebacks:
            self._tracebacks = [each for each in self._tracebacks if each.read(self._first, lines)]

    def _take(self, signs: Iterable[Sign | int]) -> None:
        for sign in signs:
            if isinstance(sign, int):
                self._incident.extend(sign)
                continue
            if self._incident.is_over(sign.line):
                self._end_incident(sign.line)
            if sign.entry.run == "launches":
                self._end_incident(sign.line)
                self._release(0)
            elif self._open:
                self._show_open(sign)
            if begins_traceback(sign) and self._incident.has_room_for(sign):
                traceback = OpenTraceback(sign)
                if traceback.read(self._first, self._lines):
                    self._tracebacks.append(traceback)
            self._incident.add(sign)

    def _end_incident(self, line: int) -> None:
        before = self._incident
        ended, self._incident = before.end(line)
        if ended is None and self._abort_line is None:
            self._abort_line = before.abort_line
        if ended is not None:
            self._open.append(ended)
            self._release(_MAX_OPEN)

    def _show_open(self, sign: Sign) -> None:
        """Show ``sign`` to the findings that wait for progress."""
        is_late = sign.line - self._open[0].finding.last_line > _MAX_WAIT_LINES
        if sign.entry.precedence is Precedence.PROGRESS:
            self._open = deque(ended for ended in self._open if not ended.is_refuted_by(sign))
        if self._open:
            self._release(0 if is_late else _MAX_OPEN)

    def _release(self, num_open: int) -> None:
        """Give the findings that wait for nothing, in their order, and leave ``num_open`` open."""
        while self._open and (len(self._open) > num_open or not self._open[0].may_be_refuted):
            self._findings.append(self._open.popleft().finding)


class _Ended:
    """An incident that has ended with a finding. Progress may still refute it."""

    def __init__(self, finding: Finding, signs: list[Sign], catalogue: Catalogue) -> None:
        self.finding = finding
        self._signs = signs
        self._catalogue = catalogue
        progress = Found(catalogue.entries["steps-counted"])
        line = max(sign.line for sign in signs)
        self.may_be_refuted = self._is_refuted([progress.in_line(line + n, "") for n in (1, 2)])

    def is_refuted_by(self, progress: Sign) -> bool:
        """Whether ``progress`` and what came before it show that there is no fault."""
        if not self.may_be_refuted:
            return False
        self._signs.append(progress)
        return self._is_refuted([])

    def _is_refuted(self, more: list[Sign]) -> bool:
        return not decide([*self._signs, *more], self._catalogue).status.is_fault


class _Incident:
    """Signs that stand near each other, and what was said shortly before them."""

    def __init__(self, catalogue: Catalogue, context: tuple[Sign, ...] = ()) -> None:
        self._catalogue = catalogue
        self.run_end: Sign | None = None
        self.num_progress_since_end = 0
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
        self._follow_run(sign)
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
                self._signs = [] if self.run_end is None else [self.run_end]
                self._signs += [
                    near
                    for near in self._context
                    if sign.line - near.line <= QUIET_LINES and near.entry.run != "ends"
                ]
                self._first_line = sign.line
            self._last_line = sign.line
            self._num_trailing_progress = 0
        if self.has_room_for(sign):
            self._signs.append(sign)
        self._counts[sign.entry.id] += 1

    def has_room_for(self, sign: Sign) -> bool:
        """Whether a further sign of the same entry is kept."""
        return self._counts[sign.entry.id] < _MAX_SIGNS_PER_ENTRY

    @property
    def abort_line(self) -> int | None:
        """Number of the first line that says that a process died after the end of the run."""
        if not self._signs or self._signs[0].entry.run != "ends":
            return None
        lines = (sign.line for sign in self._signs if sign.entry.precedence in _DEATHS)
        return next(lines, None)

    def _follow_run(self, sign: Sign) -> None:
        """Remember the end of a run until another run is there."""
        if sign.entry.run == "ends":
            self.run_end = sign
            self.num_progress_since_end = 0
        elif sign.entry.run:
            self.run_end = None
        elif self.run_end is not None and sign.entry.precedence is Precedence.PROGRESS:
            self.num_progress_since_end += 1
            if self.num_progress_since_end > _PROGRESS_OF_ANOTHER_RUN:
                self.run_end = None

    def _context_ends_in(self, sign: Sign) -> bool:
        return bool(self._context) and self._context[-1].entry is sign.entry

    def end(self, line: int) -> tuple[_Ended | None, "_Incident"]:
        """Return what ends before ``line`` with a finding, and the incident that may follow."""
        context = tuple(sign for sign in self._signs if not sign.entry.names_fault)
        follower = _Incident(self._catalogue, context or tuple(self._context))
        follower.run_end = self.run_end
        follower.num_progress_since_end = self.num_progress_since_end
        if not self._signs:
            return None, follower
        num_lines_after = line - self._last_line
        verdict = decide(self._signs, self._catalogue, num_lines_after=num_lines_after)
        if not verdict.status.is_fault:
            return None, follower
        finding = Finding(self._first_line, max(self._last_line, verdict.line), verdict)
        return _Ended(finding, self._signs, self._catalogue), follower
