"""Screens without a cluster: before the first view arrives, and in a terminal that is too small."""

from typing_extensions import override

from console.screens.console_screen import LineScreen
from console.viewmodel.console_state import State
from console.viewmodel.drawing.numbers import seconds
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, span, wrap
from console.viewmodel.panel_places import LEAST_HEIGHT, LEAST_WIDTH
from console.widgets.appearance import Appearance


class WaitingScreen(LineScreen):
    """Shown until the first view arrives: the output of the demo, or why there is no connection."""

    def __init__(self, appearance: Appearance, state: State) -> None:
        super().__init__(appearance, state)
        self._began_at = state.now

    @override
    def picture(self, width: int, height: int) -> list[Line]:
        state, glyphs = self.state, self.appearance.glyphs
        what = "starting the demo cluster" if state.owns_demo else "connecting"
        what = "reading the past" if state.owns_playback else what
        waited = seconds(state.now - self._began_at)
        head = Line(
            (span(f" UNICRON {glyphs.bar} {what} {glyphs.dot} {waited}", Tone.STRONG),),
            Ground.BAR_VIEW,
        )
        foot = Line((Span(" "), span("<q>", Tone.KEY), span("quit")))
        texts = state.progress
        # While our own server starts, a socket that is not there yet is no news.
        is_own = state.owns_demo or state.owns_playback
        if not is_own and state.link.reason:
            texts = (state.link.reason,)
        room = max(1, height - 4)
        lines = [
            Line((span(f"  {part}", Tone.PLAIN if text is texts[-1] else Tone.DIM),))
            for text in texts[-room:]
            for part in wrap(text, max(8, width - 4), 3, glyphs.ellipsis)
        ][-room:]
        blank = [Line()] * max(0, height - 3 - len(lines))
        return [head, Line(), *lines, *blank, foot]


class TooSmall(LineScreen):
    """Shown while the terminal is too small for the overview."""

    @override
    def picture(self, width: int, height: int) -> list[Line]:
        text = f"terminal {width}x{height} is too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is needed"
        note = "q quits and ends the demo" if self.state.owns_demo else "q quits"
        rows = max(1, height - 1)
        lines = [Line((span(part),)) for part in wrap(text, max(1, width), rows, "")]
        return [*lines, Line((span(note, Tone.DIM),))]
