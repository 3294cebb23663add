"""The ``:`` bar: the first letters of a node, task, incident, plan or verb, then Enter."""

from collections.abc import Callable
from typing import Final

from textual import events
from typing_extensions import override

from console.dialogs.frame import Dialog
from console.viewmodel.console_state import State
from console.viewmodel.destinations import Destination, found
from console.viewmodel.dialog_frame import DialogContent, TextField
from console.viewmodel.drawing.text import Ground, Line, Span, Tone, cells_wide, fit, span
from console.widgets.appearance import Appearance

_ROWS: Final = 12
_WORDS_WIDTH: Final = 28


class GoToDialog(Dialog[Destination]):
    """The result is what was chosen. The choice is kept by its words while the list changes."""

    def __init__(self, appearance: Appearance, clock: Callable[[], float], state: State) -> None:
        super().__init__(appearance, clock, state)
        self._text = TextField()
        self._chosen = ""

    @property
    def _listed(self) -> list[Destination]:
        return found(self.state, self._text.text)

    @override
    def content(self) -> DialogContent:
        listed = self._listed
        at = self._place(listed)
        first = max(0, at - _ROWS + 1)
        rows = [
            self._row(each, is_chosen=first + place == at)
            for place, each in enumerate(listed[first : first + _ROWS])
        ]
        rest = len(listed) - first - len(rows)
        more = f"  and {rest} more" if rest else ""
        none = "" if listed else "  nothing has that name"
        body = [self._text.line("  :", self.text_width), Line(), *rows]
        body += [Line()] * (_ROWS - len(rows))
        body.append(Line((span(more or none, Tone.DIM),)))
        return DialogContent(
            title="Go to",
            body=body,
            foot=[Line((span("  Enter goes there, tab completes, esc closes", Tone.DIM),))],
        )

    def _row(self, each: Destination, *, is_chosen: bool) -> Line:
        mark = self.glyphs.cursor if is_chosen else " "
        words = fit((span(each.words, Tone.STRONG),), _WORDS_WIDTH, self.glyphs.ellipsis)
        spans = (Span(f"{mark} ", Tone.FOCUS), *words, Span(" "))
        room = max(0, self.text_width - cells_wide(spans))
        note = fit((span(each.note, Tone.DIM),), room, self.glyphs.ellipsis)
        return Line((*spans, *note), Ground.SELECTED if is_chosen else Ground.PANEL)

    def _place(self, listed: list[Destination]) -> int:
        words = [each.words for each in listed]
        return words.index(self._chosen) if self._chosen in words else 0

    @override
    def pressed(self, key: str, character: str | None) -> None:
        listed = self._listed
        at = self._place(listed)
        match key:
            case "enter":
                if listed:
                    self.finish(listed[at])
            case "up" | "down" if listed:
                at = min(max(0, at + (1 if key == "down" else -1)), len(listed) - 1)
                self._chosen = listed[at].words
            case "tab" if listed:
                self._text = TextField(listed[at].words)
                self._chosen = listed[at].words
            case _:
                self._type(self._text.pressed(key, character))

    def on_paste(self, event: events.Paste) -> None:
        """Take a pasted name; it is chosen with Enter."""
        event.stop()
        self._type(self._text.typed(event.text))
        self.redraw()

    def _type(self, text: TextField) -> None:
        """Take a text, and choose the closest: what comes to the list later is not chosen."""
        self._text = text
        self._chosen = next((each.words for each in self._listed), "")
