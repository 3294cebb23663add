"""The line of a playback: how time passes, where the instant lies, and what was last before it."""

from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import clock, seconds
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, cells_wide, fit, span
from console.viewmodel.panels.status_bar import activity_line
from controller.api.views import ClusterView, MarkView, PlaybackView

SPEEDS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0)
OUTCOME_SHOWN_S: Final = 8.0
_LEAST_STRIP: Final = 10
_MOST_STRIP: Final = 60


def faster(speed: float) -> float:
    """Return the next higher speed."""
    return next((each for each in SPEEDS if each > speed), SPEEDS[-1])


def slower(speed: float) -> float:
    """Return the next lower speed."""
    return next((each for each in reversed(SPEEDS) if each < speed), SPEEDS[0])


def foot_line(state: State, width: int, glyphs: Glyphs) -> Line:
    """Return the one line above the keys of a screen about one thing.

    It shows the instant of a playback, but for some seconds what became of an action instead.
    """
    activity = state.activity
    is_new = activity is not None and state.now - activity.changed_at < OUTCOME_SHOWN_S
    if state.playback is None or is_new:
        return activity_line(state, width, glyphs)
    return playback_line(state, width, glyphs)


def playback_line(state: State, width: int, glyphs: Glyphs) -> Line:
    """Return the line in at most ``width`` cells; an empty one of a living cluster."""
    view, playback = state.view, state.playback
    if view is None or playback is None:
        return Line()
    head = span(f" {_pace(playback)} ", Tone.STRONG)
    begin = span(f" {clock(view.started_wall_s + playback.begin)} ", Tone.DIM)
    end = span(f" {clock(view.started_wall_s + playback.end)} ", Tone.DIM)
    newest = _newest_mark(view, playback)
    note = span(f" {newest}" if newest else "", Tone.PLAIN)
    room = width - sum(cells_wide((each,)) for each in (head, begin, end, note))
    strip = _strip(view, playback, max(_LEAST_STRIP, min(_MOST_STRIP, room)), glyphs)
    return Line(fit((head, begin, *strip, end, note), width, glyphs.ellipsis), Ground.HEADING)


def _pace(playback: PlaybackView) -> str:
    if not playback.is_playing:
        return "paused"
    return f"x{playback.speed:g}"


def _newest_mark(view: ClusterView, playback: PlaybackView) -> str:
    mark = next((each for each in reversed(playback.marks) if each.at <= view.now), None)
    if mark is None:
        return ""
    name = "" if mark.kind == "controller" else f"{mark.name} "
    return f"{seconds(view.now - mark.at)} after {name}{mark.text}"


def _strip(view: ClusterView, playback: PlaybackView, width: int, glyphs: Glyphs) -> list[Span]:
    """Return the span of time: incidents, starts of controllers, and the instant."""
    cells = [span(glyphs.rule, Tone.DIM)] * width
    # An incident is never hidden by something else in the same cell.
    for mark in sorted(playback.marks, key=lambda mark: mark.kind == "incident"):
        cells[_place(mark, playback, width)] = _sign(mark, glyphs)
    length = playback.end - playback.begin
    share = (view.now - playback.begin) / length if length > 0 else 1.0
    cells[round(min(1.0, max(0.0, share)) * (width - 1))] = span(glyphs.ok, Tone.FOCUS)
    return cells


def _place(mark: MarkView, playback: PlaybackView, width: int) -> int:
    length = playback.end - playback.begin
    share = (mark.at - playback.begin) / length if length > 0 else 1.0
    return round(min(1.0, max(0.0, share)) * (width - 1))


def _sign(mark: MarkView, glyphs: Glyphs) -> Span:
    match mark.kind:
        case "incident":
            return span(glyphs.warn, Tone.BAD)
        case "controller":
            return span(glyphs.held, Tone.BUSY)
        case _:
            return span(glyphs.dot, Tone.WARN)
