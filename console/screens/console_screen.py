"""The bases of all screens that are no dialogs.

``ConsoleScreen`` decides which commands its keys may run. ``LineScreen`` adds one painted area: a
subclass only says which lines it shows. ``WaitingScreen`` is the shortest example.
"""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget
from typing_extensions import override

from console.viewmodel.console_state import State
from console.viewmodel.drawing.text import Line
from console.widgets.appearance import Appearance
from console.widgets.painted import Painted
from console.widgets.shows_state import ShowsState

QUIT = "app.quit"
SCROLL_KEYS: Final[list[BindingType]] = [
    Binding("escape,backspace", "back", show=False),
    Binding("up,k", "scroll(-1)", show=False),
    Binding("down,j", "scroll(1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown,space", "page(1)", show=False),
    Binding("home,g", "jump(0)", show=False),
    Binding("end,G", "jump(1)", show=False),
]
"""The keys of screens that lie on another one and can be scrolled."""


class ConsoleScreen(Screen[None], ShowsState):
    """A screen that shows the state. ``show`` runs on each tick while it is on the stack."""

    # Textual's own paints the whole screen when the focus moves. Ours: panels paint their headings.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    allowed_commands: ClassVar[frozenset[str]] = frozenset()
    """Ids of the commands that keys may run here.

    An operator acts only on what the screen shows.
    """

    def allows(self, command_id: str) -> bool:
        """Whether a key runs the command while this screen is on top. Quit is always allowed."""
        return command_id == QUIT or command_id in self.allowed_commands


class LineScreen(ConsoleScreen):
    """A screen of lines. A subclass gives ``picture``."""

    def __init__(self, appearance: Appearance, state: State) -> None:
        super().__init__()
        self.appearance = appearance
        self.state = state

    def picture(self, width: int, height: int) -> list[Line]:
        """Return the lines for a terminal of this size."""
        raise NotImplementedError

    @override
    def compose(self) -> ComposeResult:
        yield Painted(self.appearance)

    @override
    def show(self, state: State) -> None:
        self.state = state
        self.redraw()

    def redraw(self) -> None:
        """Paint the picture of the present state, faded if it may no longer be true."""
        if self.is_mounted:
            is_faded = self.state.view is not None and self.state.is_stale
            lines = self.picture(*self.app.size)
            self.query_one(Painted).paint(lines, is_faded=is_faded)

    def on_mount(self) -> None:
        """Draw at once, not at the next tick."""
        self.redraw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()
