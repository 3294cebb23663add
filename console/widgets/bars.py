"""Widgets without a focus: status, decision, activity and keys in a line each, and charts."""

from collections.abc import Callable, Sequence

from textual import events
from textual.geometry import Size
from textual.message import Message
from typing_extensions import override

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Line
from console.viewmodel.panels.key_bar import KeyHint, draw_key_bar
from console.widgets.appearance import Appearance
from console.widgets.painted import Painted
from console.widgets.shows_state import ShowsState
from controller.api.views import ClusterView

DrawLine = Callable[[State, int, Glyphs], Line]
DrawLines = Callable[[State, int, int, Glyphs], list[Line]]
Hints = Callable[[State], Sequence[KeyHint]]


class StateBar(Painted, ShowsState):
    """A line that the view model draws from the state."""

    def __init__(self, draw: DrawLine, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self._draw_line = draw
        self._state = State()

    @override
    def show(self, state: State) -> None:
        self._state = state
        if self.size.width > 0:
            self.paint(self.draw())

    @override
    def draw(self) -> list[Line]:
        return [self._draw_line(self._state, self.size.width, self.appearance.glyphs)]


class Picture(Painted, ShowsState):
    """Lines that the view model draws from the state, and that take no focus.

    They are drawn anew only with a new view, or in another size: a large fleet has many workers.
    """

    def __init__(self, draw: DrawLines, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self._draw_lines = draw
        self._state = State()
        self._view: ClusterView | None = None
        self._drawn_for_size: tuple[Size, bool] | None = None

    @override
    def show(self, state: State) -> None:
        self._state = state
        drawn_for = (self.size, state.is_stale)
        is_same = state.view is self._view and drawn_for == self._drawn_for_size
        if self.size.width > 0 and not is_same:
            self._view, self._drawn_for_size = state.view, drawn_for
            self.paint(self.draw(), is_faded=state.is_stale)

    @override
    def draw(self) -> list[Line]:
        width, height = self.size
        return self._draw_lines(self._state, width, height, self.appearance.glyphs)


class KeyBar(Painted, ShowsState):
    """The keys that can be pressed now. Each can also be clicked.

    Drawn from the command registry. Textual's own ``Footer`` leaks a widget per refresh.
    """

    class Clicked(Message):
        """A key was clicked."""

        def __init__(self, command_id: str) -> None:
            super().__init__()
            self.command_id = command_id

    def __init__(self, hints: Hints, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self._hints_of = hints
        self._hints: Sequence[KeyHint] = ()
        self._places: tuple[tuple[int, int, str], ...] = ()

    @override
    def show(self, state: State) -> None:
        self._hints = self._hints_of(state)
        if self.size.width > 0:
            self.paint(self.draw())

    @override
    def draw(self) -> list[Line]:
        bar = draw_key_bar(self._hints, self.size.width, self.appearance.glyphs)
        self._places = bar.places  # for clicks
        return [bar.line]

    def on_click(self, event: events.Click) -> None:
        """Run the command under the mouse."""
        for first, end, command_id in self._places:
            if first <= event.x < end:
                self.post_message(self.Clicked(command_id))
