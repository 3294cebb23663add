"""What a detail screen is about, and its lines."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from console.viewmodel.console_state import State
from console.viewmodel.details.incident_detail import incident_lines
from console.viewmodel.details.node_detail import node_lines
from console.viewmodel.details.plan_detail import plan_detail_lines
from console.viewmodel.details.task_detail import task_lines
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Line, Span, Tone, fit, span
from console.viewmodel.panels.key_bar import KeyHint, draw_key_bar
from console.viewmodel.panels.playback_strip import foot_line
from console.viewmodel.panels.status_bar import status_line

DetailKind = Literal["task", "node", "incident", "plan"]


@dataclass(frozen=True, slots=True)
class DetailSubject:
    """One thing that a screen is about."""

    kind: DetailKind
    name: str


def subject_of_alert(key: str) -> DetailSubject | None:
    """Return what an alert is about, by its key; None if it is about the cluster."""
    words = key.split()
    if len(words) < 2:
        return None
    kind, name = words[0], words[1]
    if kind == "plan":
        return DetailSubject("plan", name.partition(":")[0])
    if kind in {"incident", "task"}:
        return DetailSubject("incident" if kind == "incident" else "task", name)
    return DetailSubject("node", name.partition(":")[0])


def detail_lines(state: State, subject: DetailSubject, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all lines about a subject, for a screen of this width."""
    return _LINES[subject.kind](state, subject.name, width, glyphs)


def detail_picture(
    state: State,
    subject: DetailSubject,
    top: int,
    size: tuple[int, int],
    glyphs: Glyphs,
    keys: Sequence[KeyHint] = (),
) -> list[Line]:
    """Return the whole screen: status, crumbs, the window on the lines, activity and keys."""
    width, height = size
    lines = detail_lines(state, subject, width - 2, glyphs)
    rows = max(1, height - 4)
    first = min(max(0, top), max(0, len(lines) - rows))
    window = [Line((Span(" "), *line.spans)) for line in lines[first : first + rows]]
    window += [Line()] * (rows - len(window))
    return [
        status_line(state, width, glyphs),
        _crumbs(subject, first, len(window), len(lines), width, glyphs),
        *window,
        foot_line(state, width, glyphs),
        draw_key_bar(keys, width, glyphs).line,
    ]


def most_top(state: State, subject: DetailSubject, size: tuple[int, int], glyphs: Glyphs) -> int:
    """Return how far a screen can be scrolled."""
    width, height = size
    return max(0, len(detail_lines(state, subject, width - 2, glyphs)) - max(1, height - 4))


def _crumbs(
    subject: DetailSubject, first: int, shown: int, total: int, width: int, glyphs: Glyphs
) -> Line:
    note = f"{first + 1}-{min(total, first + shown)} of {total}" if total > shown else ""
    spans = (
        span(" overview ", Tone.DIM),
        span(f"{glyphs.cursor} {subject.kind} ", Tone.DIM),
        span(subject.name, Tone.TITLE),
    )
    tail = Span(f"  {note} ", Tone.DIM)
    room = max(0, width - len(tail.text))
    return Line((*fit(spans, room, glyphs.ellipsis), tail))


_LINES: Final[Mapping[DetailKind, Callable[[State, str, int, Glyphs], list[Line]]]] = {
    "task": task_lines,
    "node": node_lines,
    "incident": incident_lines,
    "plan": plan_detail_lines,
}
