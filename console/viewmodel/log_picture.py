"""The screen of logs: lines of all sources by time, or the first fault of each rank."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import clock
from console.viewmodel.drawing.text import (
    TASK_TONES,
    Ground,
    Line,
    Span,
    Tone,
    cells_wide,
    fit,
    span,
)
from console.viewmodel.filtering import matches
from console.viewmodel.log_book import CONTROLLER, LogBook, LogEntry, without_time

_SOURCE_WIDTH: Final = 6
_NODE_WIDTH: Final = 8
_WIDE: Final = 100
"""From this width on, the node stands beside the rank."""
_TIME_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class FirstFault:
    """The first fault in the output of a rank.

    Attributes:
        entry: Its line.
        status: What it is, in the classifier's word.
        severity: How bad that is.
    """

    entry: LogEntry
    status: str
    severity: str


@dataclass(frozen=True, slots=True)
class LogWindow:
    """What of a book is looked at.

    Attributes:
        pattern: Words that a line must have, or must not have (``!word``).
        is_typing: Whether the pattern is being typed.
        anchor: The lowest line; None follows the newest.
        faults: The first fault of each rank, in the order of time, if that is looked at.
    """

    pattern: str = ""
    is_typing: bool = False
    anchor: LogEntry | None = None
    faults: tuple[FirstFault, ...] | None = None


def wanted(book: LogBook, pattern: str) -> Sequence[LogEntry]:
    """Return the lines that match."""
    if not pattern.strip():
        return book.entries
    return [
        entry
        for entry in book.entries
        if matches(pattern, f"{_source(entry)} {entry.node} {entry.text}")
    ]


def moved(
    entries: Sequence[LogEntry], anchor: LogEntry | None, delta: int, page: int
) -> LogEntry | None:
    """Return the anchor ``delta`` lines further down; None at the end, which follows again."""
    end = (len(entries) if anchor is None else bisect_right(entries, anchor)) + delta
    if end >= len(entries) or not entries:
        return None
    return entries[max(min(page, len(entries)) - 1, end - 1, 0)]


def line_near(entries: Sequence[LogEntry], at: float, page: int) -> LogEntry | None:
    """Return the anchor that puts the first line at an instant or after it in the middle."""
    first = bisect_left(entries, at, key=lambda entry: entry.at)
    return moved(entries, None, first + page // 2 - len(entries), page)


def log_rows(
    book: LogBook, window: LogWindow, what: str, size: tuple[int, int], glyphs: Glyphs
) -> list[Line]:
    """Return the heading and the rows under it, as many as ``size`` has."""
    width, height = size
    if window.faults is not None:
        return _fault_rows(window.faults, what, size, glyphs)
    entries = wanted(book, window.pattern)
    end = len(entries) if window.anchor is None else bisect_right(entries, window.anchor)
    shown = entries[max(0, end - height + 1) : end]
    counts = len(entries), len(entries) - end
    heading = _heading(book, window, what, counts, width, glyphs)
    return [heading, *(_row(entry, width, glyphs) for entry in shown)]


def _heading(
    book: LogBook, window: LogWindow, what: str, counts: tuple[int, int], width: int, glyphs: Glyphs
) -> Line:
    num, num_newer = counts
    parts = [span(f"  LOGS {what}  {num} lines", Tone.TITLE)]
    if window.anchor is None:
        parts.append(span("  following", Tone.DIM))
    elif num_newer:
        parts.append(span(f"  +{num_newer} newer", Tone.WARN))
    if book.num_dropped:
        parts.append(span(f"  {book.num_dropped} older ones dropped", Tone.WARN))
    if book.errors:
        rank, error = next(iter(sorted(book.errors.items())))
        more = f" and {len(book.errors) - 1} more ranks" if len(book.errors) > 1 else ""
        parts.append(span(f"  {glyphs.warn} rank {rank}{more}: {error}", Tone.WARN))
    is_filtered = window.is_typing or window.pattern
    text = f"  /{window.pattern}{'_' if window.is_typing else ''} " if is_filtered else ""
    tail = span(text, Tone.FOCUS)
    room = max(0, width - cells_wide((tail,)))
    return Line((*fit(parts, room, glyphs.ellipsis), tail), Ground.HEADING)


def _row(entry: LogEntry, width: int, glyphs: Glyphs) -> Line:
    if entry.source == CONTROLLER:
        tone = Tone.KEY
    else:
        tone = TASK_TONES[int(entry.source) % len(TASK_TONES)]
    head = [
        span(f" {_time(entry)} ", Tone.DIM),
        *fit((span(_source(entry), tone),), _SOURCE_WIDTH, glyphs.ellipsis),
        Span(" "),
    ]
    if width >= _WIDE:
        head += [*fit((span(entry.node, Tone.DIM),), _NODE_WIDTH, glyphs.ellipsis), Span(" ")]
    return Line(fit((*head, span(without_time(entry.text))), width, glyphs.ellipsis))


def _fault_rows(
    faults: Sequence[FirstFault], what: str, size: tuple[int, int], glyphs: Glyphs
) -> list[Line]:
    width, height = size
    heading = Line(
        fit(
            (span(f"  FIRST FAULT of each rank of {what}, by time", Tone.TITLE),),
            width,
            glyphs.ellipsis,
        ),
        Ground.HEADING,
    )
    if not faults:
        text = " no fault is found in what was read of their output"
        return [heading, Line((span(text, Tone.DIM),))]
    first_at = faults[0].entry.at
    rows = list[Line]()
    for fault in faults:
        late = f"+{fault.entry.at - first_at:.3f} s"
        rows.append(
            Line(
                fit(
                    (
                        span(f" {_time(fault.entry)} ", Tone.DIM),
                        span(f"{late:>11} ", Tone.DIM if rows else Tone.BAD),
                        span(f"{_source(fault.entry):<6} {fault.entry.node:<8} ", Tone.STRONG),
                        span(f"{fault.severity} {fault.status}: ", Tone.WARN),
                        span(fault.entry.text),
                    ),
                    width,
                    glyphs.ellipsis,
                )
            )
        )
    return [heading, *rows[: height - 1]]


def _source(entry: LogEntry) -> str:
    return entry.source if entry.source == CONTROLLER else f"r{entry.source}"


def _time(entry: LogEntry) -> str:
    fraction = f"{entry.at % 1:.{_TIME_DIGITS}f}"[1:]
    return f"{clock(entry.at)}{fraction if len(fraction) == _TIME_DIGITS + 1 else '.999'}"
