"""Lines with a label at their left: the building blocks of all details."""

from collections.abc import Iterable, Sequence
from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import clock
from console.viewmodel.drawing.text import Cell, Line, Tone, span, wrap
from console.viewmodel.panels.event_stream import record_lines

LABEL_WIDTH: Final = 11
_MAX_EVENTS: Final = 200


def title(text: str) -> Line:
    """Return the heading of a part."""
    return Line((span(text, Tone.TITLE),))


def labelled(
    label: str, text: str, width: int, glyphs: Glyphs, tone: Tone = Tone.PLAIN
) -> list[Line]:
    """Return a label and its text, wrapped; nothing if the text is empty."""
    if not text:
        return []
    first, *rest = wrap(text, max(8, width - LABEL_WIDTH), 8, glyphs.ellipsis)
    return [
        label_line(label, (span(first, tone),)),
        *(label_line("", (span(each, tone),)) for each in rest),
    ]


def label_line(label: str, cell: Cell) -> Line:
    """Return a label and a cell."""
    return Line((span(f"{label:<{LABEL_WIDTH}}", Tone.DIM), *cell))


def commands(words: Sequence[str]) -> list[Line]:
    """Return what can be typed in a shell about this."""
    lines = [
        label_line("type" if number == 0 else "", (span(each, Tone.KEY),))
        for number, each in enumerate(words)
    ]
    return [Line(), title("IN A SHELL"), *lines]


def instant(state: State, at: float) -> str:
    """Return the time of day of an instant of the run, in UTC."""
    start_s = state.view.started_wall_s if state.view else 0.0
    return clock(start_s + at)


def events_of(state: State, sources: Iterable[str], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the newest lines of the event stream from these sources, oldest first."""
    wanted = set(sources)
    found = [line for line in state.log.lines if line.source in wanted][-_MAX_EVENTS:]
    start_s = state.view.started_wall_s if state.view else 0.0
    lines = [row for record in found for row in record_lines(record, start_s, width, glyphs)]
    none = Line((span("none since this console began", Tone.DIM),))
    return [Line(), title(f"EVENTS {len(found)}"), *(lines or [none])]
