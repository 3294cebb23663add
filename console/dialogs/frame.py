"""The base of all dialogs: frame, place, scrolling, and protection against stray keys.

A dialog never opens by itself. It ignores keys for ``GUARD_S`` after it opened, since the key that
opened it may repeat. It ignores pasted text unless it holds a text field. The first answer offered
changes nothing. Escape and ctrl+c always mean "no".
"""

from collections.abc import Callable
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen, ScreenResultType
from typing_extensions import override

from console.viewmodel.console_state import State, why_not_current
from console.viewmodel.dialog_frame import CHROME_WIDTH, DialogContent, draw_dialog, inner_width
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Line, Tone, span
from console.widgets.appearance import Appearance
from console.widgets.painted import Painted
from console.widgets.shows_state import ShowsState

GUARD_S: Final = 0.4


class Dialog(ModalScreen[ScreenResultType], ShowsState):
    """Base of all dialogs. A subclass gives ``content`` and handles ``pressed``."""

    DEFAULT_CSS = """
    Dialog { align: center middle; background: black 35%; }
    """

    def __init__(self, appearance: Appearance, clock: Callable[[], float], state: State) -> None:
        super().__init__()
        self.appearance = appearance
        self.state = state
        self._clock = clock
        self._opened_at = clock()
        self._scroll = 0

    @property
    def glyphs(self) -> Glyphs:
        """The console's signs."""
        return self.appearance.glyphs

    @property
    def text_width(self) -> int:
        """Cells for text inside the frame."""
        return inner_width(self.app.size.width)

    def content(self) -> DialogContent:
        """Return title, body and foot for the present state."""
        raise NotImplementedError

    def pressed(self, key: str, character: str | None) -> None:
        """Handle a key, except for keys that close or scroll the dialog."""

    def finish(self, result: ScreenResultType | None) -> None:
        """Close with ``result``, once; None refuses. Until Textual has closed it, keys may come."""
        if self.app.screen is self:  # Textual takes away whatever is on top
            _ = self.dismiss(result)

    def compose(self) -> ComposeResult:
        """Create the only widget."""
        yield Painted(self.appearance)

    def on_mount(self) -> None:
        """Draw at once."""
        self.redraw()

    def on_resize(self) -> None:
        """Draw for the new size."""
        self.redraw()

    @override
    def show(self, state: State) -> None:
        self.state = state
        self.redraw()

    def redraw(self) -> None:
        """Draw the content in a frame of its size."""
        if not self.is_mounted:
            return
        width, height = self.app.size
        lines = draw_dialog(self.content(), width, height, self._scroll, self.glyphs)
        painted = self.query_one(Painted)
        painted.styles.width = inner_width(width) + CHROME_WIDTH
        painted.styles.height = len(lines)
        painted.paint(lines)

    def on_key(self, event: events.Key) -> None:
        """Take every key: none reaches the screen below."""
        event.stop()
        event.prevent_default()
        if self._clock() - self._opened_at < GUARD_S:
            return
        match event.key:
            case "escape" | "ctrl+c" | "ctrl+q":
                self.finish(None)
            case "pageup" | "pagedown":
                step = max(1, self.app.size.height // 2)
                self.scroll_lines(step if event.key == "pagedown" else -step)
            case key:
                self.pressed(key, event.character if event.is_printable else None)
                if self.is_attached:
                    self.redraw()

    def scroll_lines(self, delta: int) -> None:
        """Move the body by ``delta`` lines."""
        self._scroll = min(max(0, self._scroll + delta), max(0, len(self.content().body) - 1))
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Ignore pasted text: it must never answer a question."""
        event.stop()


class ReadingDialog(Dialog[None]):
    """A dialog that is only read: the arrows scroll it, and any other key closes it."""

    foot: ClassVar[Line] = Line((span("up and down scroll, any other key closes", Tone.DIM),))

    @override
    def pressed(self, key: str, character: str | None) -> None:
        if key in ("up", "down", "k", "j"):
            self.scroll_lines(1 if key in ("down", "j") else -1)
        else:
            self.finish(None)


class QuestionDialog(Dialog[ScreenResultType]):
    """A dialog that is accepted by ``y`` and then Enter, and refused by anything else.

    It freezes, with a banner, as soon as ``why_frozen`` finds a reason.
    """

    def __init__(self, appearance: Appearance, clock: Callable[[], float], state: State) -> None:
        super().__init__(appearance, clock, state)
        self.is_yes = False

    def why_frozen(self) -> str:
        """Return why the question can't be answered any more, or an empty string."""
        return why_not_current(self.state)

    def accept(self) -> None:
        """Close with the answer that changes the cluster."""
        raise NotImplementedError

    def pressed(self, key: str, character: str | None) -> None:  # noqa: ARG002 (the base's signature)
        """Choose, accept or refuse."""
        if self.why_frozen():
            self.is_yes = False
            if key == "enter":
                self.finish(None)
            return
        match key:
            case "enter" if self.is_yes:
                self.accept()
            case "enter" | "n":
                self.finish(None)
            case "y":
                self.is_yes = True
            case "up" | "down":
                self.scroll_lines(1 if key == "down" else -1)
            case _:
                self.is_yes = False
