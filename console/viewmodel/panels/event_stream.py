"""The event stream: a window of lines that does not move while the operator reads it.

The window is anchored by the sequence number of its lowest line. New lines and dropped lines
therefore never move the window. Without an anchor it follows the newest line.
"""

from bisect import bisect_right

from console.viewmodel.console_state import EventWindow, State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import clock
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, fit, span, wrap
from console.viewmodel.words import LEVEL_WORDS
from controller.api.views import LogLine

MAX_WRAP = 3
"""Rows that one event may take."""

SOURCE_WIDTH = 8


def event_lines(
    state: State, anchor: int | None, width: int, height: int, glyphs: Glyphs
) -> list[Line]:
    """Return the heading and the newest ``height - 1`` rows up to and including ``anchor``."""
    log = state.log
    heading = _heading(log, anchor, width, glyphs)
    start_s = state.view.started_wall_s if state.view else 0.0
    rows: list[Line] = []
    for record in reversed(log.lines[: _end(log, anchor)]):
        rows = [*record_lines(record, start_s, width, glyphs), *rows]
        if len(rows) >= height - 1:
            break
    return [heading, *rows[-(height - 1) :]] if height > 1 else [heading]


def num_newer(log: EventWindow, anchor: int | None) -> int:
    """Return how many lines lie below the window."""
    return len(log.lines) - _end(log, anchor)


def moved_anchor(log: EventWindow, anchor: int | None, delta: int, page: int) -> int | None:
    """Return the anchor ``delta`` records further down, or None at the end: follow again.

    The oldest ``page`` records are the highest window there is.
    """
    if not log.lines:
        return None
    end = _end(log, anchor) + delta
    if end >= len(log.lines):
        return None
    return log.lines[max(min(page, len(log.lines)) - 1, end - 1, 0)].seq


def record_lines(record: LogLine, start_s: float, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one event as one to ``MAX_WRAP`` rows."""
    sign, _, tone = LEVEL_WORDS[record.level]
    head = (
        span(f" {clock(start_s + record.at)} ", Tone.DIM),
        span(f"{getattr(glyphs, sign)} ", tone),
        *fit((span(record.source, Tone.STRONG),), SOURCE_WIDTH, glyphs.ellipsis),
        Span(" "),
    )
    indent = 13 + SOURCE_WIDTH
    texts = wrap(record.text, max(8, width - indent), MAX_WRAP, glyphs.ellipsis)
    first = Line((*head, span(texts[0], tone)))
    return [first, *(Line((Span(" " * indent), span(text, tone))) for text in texts[1:])]


def _end(log: EventWindow, anchor: int | None) -> int:
    if anchor is None:
        return len(log.lines)
    return bisect_right(log.lines, anchor, key=lambda line: line.seq)


def _heading(log: EventWindow, anchor: int | None, width: int, glyphs: Glyphs) -> Line:
    spans = [Span("  "), span(f"EVENTS {len(log.lines)}", Tone.TITLE)]
    if log.num_missed:
        spans.append(span(f"  {glyphs.warn} {log.num_missed} missed", Tone.WARN))
    newer = num_newer(log, anchor)
    if newer:
        spans.append(span(f"  +{newer} new below, press end to follow", Tone.BUSY))
    elif anchor is None:
        spans.append(span("  following", Tone.DIM))
    return Line(fit(spans, width, glyphs.ellipsis), Ground.HEADING)
