"""Screens without a cluster: while the connection is made, and when the terminal is too small."""

from textual.app import ComposeResult
from textual.screen import Screen

from console.viewmodel.console_state import State
from console.viewmodel.drawing.numbers import seconds
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, span, wrap
from console.viewmodel.panel_places import LEAST_HEIGHT, LEAST_WIDTH
from console.widgets.look import Appearance
from console.widgets.painted import Painted


class WaitingScreen(Screen[None]):
    """Shown until the first view arrives: what the demo says, or why there is no connection."""

    def __init__(self, look: Appearance, state: State) -> None:
        super().__init__()
        self._look = look
        self._state = state
        self._began_at = state.now

    def compose(self) -> ComposeResult:
        """Create the only widget."""
        yield Painted(self._look)

    def show(self, state: State) -> None:
        """Show how far the start has come."""
        self._state = state
        self.query_one(Painted).paint(self._picture(self.size.width, self.size.height))

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.show(self._state)

    def _picture(self, width: int, height: int) -> list[Line]:
        state, glyphs = self._state, self._look.glyphs
        what = "starting the demo cluster" if state.owns_demo else "connecting"
        waited = seconds(state.now - self._began_at)
        head = Line(
            (span(f" UNICRON {glyphs.bar} {what} {glyphs.dot} {waited}", Tone.STRONG),),
            Ground.BAR_VIEW,
        )
        foot = Line((Span(" "), span("<q>", Tone.KEY), span("quit")))
        texts = state.progress
        # While a demo starts, a socket that is not there yet is no news.
        if not state.owns_demo and state.link.reason:
            texts = (state.link.reason,)
        room = max(1, height - 4)
        lines = [
            Line((span(f"  {part}", Tone.PLAIN if text is texts[-1] else Tone.DIM),))
            for text in texts[-room:]
            for part in wrap(text, max(8, width - 4), 3, glyphs.ellipsis)
        ][-room:]
        blank = [Line()] * max(0, height - 3 - len(lines))
        return [head, Line(), *lines, *blank, foot]


class TooSmall(Screen[None]):
    """Shown while the terminal can't hold anything useful."""

    def __init__(self, look: Appearance, *, ends_demo: bool) -> None:
        super().__init__()
        self._look = look
        self._ends_demo = ends_demo

    def compose(self) -> ComposeResult:
        """Create the only widget."""
        yield Painted(self._look)

    def on_mount(self) -> None:
        """Draw at once."""
        self.on_resize()

    def on_resize(self) -> None:
        """Say the size there is and the size it takes."""
        width, height = self.app.size
        text = f"terminal {width}x{height} is too small: {LEAST_WIDTH}x{LEAST_HEIGHT} is the least"
        note = "q quits and ends the demo" if self._ends_demo else "q quits"
        rows = max(1, height - 1)
        lines = [Line((span(part),)) for part in wrap(text, max(1, width), rows, "")]
        self.query_one(Painted).paint([*lines, Line((span(note, Tone.DIM),))])
