"""The WAF of the last quarter of an hour, with the faults that came meanwhile."""

from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.charts import ChartColumn, column_chart
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import seconds
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, fit, span
from console.viewmodel.trend import KEPT_S, STEP_S, WafStep

_LABEL: Final = 7
_GOOD: Final = 0.95
_POOR: Final = 0.5


def trend_lines(state: State, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return the heading, the chart, and a row with a sign for each fault."""
    room = max(1, width - _LABEL - 1)
    steps = state.trend
    shown_s = min(KEPT_S, max(60.0, state.cluster_now - steps[0].at)) if steps else 60.0
    since = state.cluster_now - shown_s
    columns = _columns(steps, since, shown_s, room)
    rows = max(1, height - 2)
    lines = [_heading(state, shown_s, width, glyphs)]
    for number, line in enumerate(column_chart(columns, rows, glyphs.spark)):
        label = "100%" if number == 0 else "0%" if number == rows - 1 else ""
        lines.append(Line((Span(f"{label:>{_LABEL - 1}} ", Tone.DIM), *line.spans)))
    lines.append(_marks(state, since, shown_s, room, glyphs))
    return lines[:height]


def _heading(state: State, shown_s: float, width: int, glyphs: Glyphs) -> Line:
    steps = state.trend
    words = "no WAF yet"
    if steps:
        low = min(step.low for step in steps)
        words = f"now {steps[-1].last:.0%}, lowest {low:.0%} in {seconds(shown_s)}"
    head = (Span("  "), span("WAF", Tone.TITLE), span(f"  {words}", Tone.DIM))
    return Line(fit(head, width, glyphs.ellipsis), Ground.HEADING)


def _columns(
    steps: tuple[WafStep, ...], since: float, shown_s: float, room: int
) -> list[ChartColumn]:
    """Return the lowest WAF in the time of each column. A step lasts until the next one."""
    lows: list[float | None] = [None] * room
    for number, step in enumerate(steps):
        until = steps[number + 1].at if number + 1 < len(steps) else step.at + STEP_S
        first = int((step.at - since) / shown_s * room)
        last = int((min(until, step.at + 2 * STEP_S) - since) / shown_s * room)
        for column in range(max(0, first), min(room, max(first + 1, last))):
            known = lows[column]
            lows[column] = step.low if known is None else min(known, step.low)
    return [None if low is None else (low, _tone(low)) for low in lows]


def _tone(share: float) -> Tone:
    return Tone.GOOD if share >= _GOOD else Tone.WARN if share >= _POOR else Tone.BAD


def _marks(state: State, since: float, shown_s: float, room: int, glyphs: Glyphs) -> Line:
    cells = [" "] * room
    for incident in state.view.incidents if state.view else []:
        column = int((incident.fault_at - since) / shown_s * room)
        if 0 <= column < room:
            cells[column] = glyphs.drill if incident.is_drill else glyphs.warn
    label = "faults" if any(cell != " " for cell in cells) else ""
    return Line((Span(f"{label:>{_LABEL - 1}} ", Tone.DIM), Span("".join(cells), Tone.WARN)))
