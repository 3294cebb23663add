"""Widgets that paint lines, and repaint only the rows that changed.

A picture is a list of ``Line``. ``paint`` compares it with the picture on screen and refreshes the
rows that differ. A tick that changes nothing costs no frame. ``Panel`` adds what all panels of the
overview share: the state they show, the focus, and moving inside them.
"""

from typing import ClassVar, Final

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget
from typing_extensions import override

from console.viewmodel.console_state import State
from console.viewmodel.dialog_frame import TextField
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, cells_wide, fit, span
from console.widgets.appearance import Appearance
from console.widgets.shows_state import ShowsState

_BLANK: Final = Line()


class Painted(Widget):
    """A widget that shows the lines it was given, cropped or padded to its size."""

    ALLOW_SELECT = False

    def __init__(self, appearance: Appearance, *, id: str | None = None) -> None:  # noqa: A002 (Textual's name)
        super().__init__(id=id)
        self.appearance = appearance
        self.lines: list[Line] = []
        self.is_faded = False
        self._drawn_for = Size(0, 0)
        self._strips: dict[int, tuple[Line, int, bool, Strip]] = {}
        """What was rendered of each row, with its line, its width, and whether it was faded."""

    def draw(self) -> list[Line]:
        """Return the lines for the present size; a widget that is only given lines keeps them."""
        return self.lines

    def paint(self, lines: list[Line], *, is_faded: bool = False) -> None:
        """Show ``lines`` from now on; a faded picture may no longer be true."""
        self._drawn_for = self.size
        if is_faded != self.is_faded or len(lines) != len(self.lines):
            self.lines, self.is_faded = list(lines), is_faded
            self.refresh()
            return
        changed = [y for y, line in enumerate(lines) if line != self.lines[y]]
        for y in changed:
            self.lines[y] = lines[y]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return rows for the compositor, drawn anew if the size changed: never a stale frame."""
        if self._drawn_for != self.size:
            self._drawn_for = self.size
            self.lines = list(self.draw())
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Return row ``y`` as styled segments of exactly the widget's width.

        Textual often asks again for rows that have not changed, for instance when the focus moves.
        """
        line = self.lines[y] if y < len(self.lines) else _BLANK
        width, known = self.size.width, self._strips.get(y)
        if known is not None and known[0] is line and known[1:3] == (width, self.is_faded):
            return known[3]
        spans = fit(line.spans, width, self.appearance.glyphs.ellipsis)
        segments = [Segment(text, self._style(tone, line.ground)) for text, tone in spans if text]
        strip = Strip(segments, width)
        self._strips[y] = line, width, self.is_faded, strip
        return strip

    def _style(self, tone: Tone, ground: Ground) -> Style:
        return self.appearance.palette.style(tone, ground, is_faded=self.is_faded)


class Panel(Painted, ShowsState, can_focus=True):
    """A part of the overview that shows the state, with a heading, and can be moved in."""

    has_filter: ClassVar[bool] = True
    """Whether its rows can be filtered."""

    def __init__(self, appearance: Appearance, *, id: str) -> None:  # noqa: A002 (Textual's name)
        super().__init__(appearance, id=id)
        self.state = State()
        self.filter = TextField()
        self.is_typing_filter = False

    def start_filter(self) -> None:
        """Take the next keys for the filter, up to Enter or Escape."""
        if self.has_filter:
            self.is_typing_filter = True
            self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Edit the filter. Escape clears one that stands; other keys are the app's."""
        if not self.has_filter or event.key in {"up", "down", "pageup", "pagedown", "tab"}:
            return
        is_cleared = event.key == "escape"
        if not (self.is_typing_filter or (is_cleared and self.filter.text)):
            return
        event.stop()
        if is_cleared:
            self.filter, self.is_typing_filter = self.filter.cleared(), False
        elif event.key == "enter":
            self.is_typing_filter = False
        else:
            character = event.character if event.is_printable else None
            self.filter = self.filter.pressed(event.key, character)
        self.repaint()

    @override
    def show(self, state: State) -> None:
        self.state = state
        self.repaint()

    def repaint(self) -> None:
        """Draw the picture again, for instance after a move."""
        if self.size.height > 0 and self.size.width > 0:
            self.paint(self.draw(), is_faded=self.state.is_stale)

    @override
    def draw(self) -> list[Line]:
        raise NotImplementedError

    def move(self, delta: int) -> None:
        """Move by ``delta`` rows."""
        raise NotImplementedError

    def page(self, delta: int) -> None:
        """Move by ``delta`` pages."""
        self.move(delta * max(1, self.size.height - 2))

    def jump(self, *, to_end: bool) -> None:
        """Go to the first or last row."""
        self.move(1_000_000 if to_end else -1_000_000)

    def sort(self, delta: int) -> bool:  # noqa: ARG002 (for panels with columns)
        """Sort by the next column, or the one before; return whether there are columns."""
        return False

    def reverse_order(self) -> bool:
        """Sort from the other end; return whether there are columns."""
        return False

    def headed(self, heading: Line, note: str = "") -> Line:
        """Return ``heading`` with the focus mark, and the filter and ``note`` at its right end."""
        glyphs = self.appearance.glyphs
        spans = _marked(heading.spans, glyphs.cursor) if self.has_focus else heading.spans
        filtered = f"  /{self.filter.text}{'_' if self.is_typing_filter else ''}"
        is_filtered = self.is_typing_filter or bool(self.filter.text)
        tail = (
            span(filtered if is_filtered else "", Tone.FOCUS),
            Span(f"  {note} " if note else "", Tone.DIM),
        )
        room = max(0, self.size.width - cells_wide(tail))
        return Line((*fit(spans, room, glyphs.ellipsis), *tail), Ground.HEADING)

    def on_focus(self) -> None:
        """Mark the heading."""
        self.repaint()

    def on_blur(self) -> None:
        """Unmark the heading, and type no filter any more."""
        self.is_typing_filter = False
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down."""
        event.stop()
        self.move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up."""
        event.stop()
        self.move(-3)


def _marked(spans: tuple[Span, ...], cursor: str) -> tuple[Span, ...]:
    """Return a heading with the cursor in its left margin and a highlighted title."""
    margin, title, *rest = spans
    if margin.text[:1].strip() or not margin.text:
        return spans
    mark = Span(cursor + margin.text[1:], Tone.FOCUS)
    return (mark, Span(title.text, Tone.FOCUS), *rest)
