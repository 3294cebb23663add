"""One-line widgets: status, decision, activity and keys. None of them takes the focus."""

from collections.abc import Callable, Sequence

from textual import events
from textual.message import Message

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Line
from console.viewmodel.panels.key_bar import KeyHint, draw_key_bar
from console.widgets.look import Appearance
from console.widgets.painted import Painted

DrawLine = Callable[[State, int, Glyphs], Line]


class StateBar(Painted):
    """A line that the view model draws from the state."""

    def __init__(self, draw: DrawLine, look: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(look, id=id)
        self._draw_line = draw
        self._state = State()

    def show(self, state: State) -> None:
        """Show ``state``."""
        self._state = state
        if self.size.width > 0:
            self.paint(self.draw())

    def draw(self) -> list[Line]:
        """Return the line for the present width."""
        return [self._draw_line(self._state, self.size.width, self.look.glyphs)]


class KeyBar(Painted):
    """The keys that are to be had now; each can be clicked.

    Drawn from the command registry. Textual's own ``Footer`` leaks a widget per refresh.
    """

    class Clicked(Message):
        """A key was clicked."""

        def __init__(self, command_id: str) -> None:
            super().__init__()
            self.command_id = command_id

    def __init__(self, look: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(look, id=id)
        self._hints: Sequence[KeyHint] = ()
        self._places: tuple[tuple[int, int, str], ...] = ()

    def show_hints(self, hints: Sequence[KeyHint]) -> None:
        """Show ``hints``."""
        self._hints = hints
        if self.size.width > 0:
            self.paint(self.draw())

    def draw(self) -> list[Line]:
        """Return the bar for the present width, and remember where its keys lie."""
        bar = draw_key_bar(self._hints, self.size.width, self.look.glyphs)
        self._places = bar.places
        return [bar.line]

    def on_click(self, event: events.Click) -> None:
        """Run the command under the mouse."""
        for first, end, command_id in self._places:
            if first <= event.x < end:
                self.post_message(self.Clicked(command_id))
