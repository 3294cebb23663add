"""Dialogs of a playback: going to a moment, and what differs between two instants."""

from collections.abc import Callable, Sequence

from textual import events
from typing_extensions import override

from console.dialogs.frame import Dialog
from console.viewmodel.console_state import State
from console.viewmodel.dialog_frame import DialogContent, TextField
from console.viewmodel.drawing.text import Line, Tone, span, wrap
from console.widgets.appearance import Appearance

_MOST_CHARACTERS = 100


class MomentDialog(Dialog[str]):
    """Asks for a moment. The result is what was typed."""

    def __init__(self, appearance: Appearance, clock: Callable[[], float], state: State) -> None:
        super().__init__(appearance, clock, state)
        self._text = TextField("", _MOST_CHARACTERS)

    @override
    def content(self) -> DialogContent:
        marks = self.state.playback.marks if self.state.playback else []
        names = ", ".join(mark.name for mark in marks if mark.kind == "incident")
        text = f"An incident ({names or 'there is none'}), a time of day such as 14:02:30, or both date and time."
        lines = wrap(text, self.text_width - 4, 4, self.glyphs.ellipsis)
        return DialogContent(
            title="Go to a moment (UTC)",
            body=[
                *(Line((span(f"  {each}", Tone.DIM),)) for each in lines),
                Line(),
                self._text.line("  moment", self.text_width),
            ],
            foot=[Line((span("  Enter goes there, esc closes", Tone.DIM),))],
            cursor=len(lines) + 1,
        )

    @override
    def pressed(self, key: str, character: str | None) -> None:
        if key == "enter":
            self.finish(self._text.text.strip() or None)
        else:
            self._text = self._text.pressed(key, character)

    def on_paste(self, event: events.Paste) -> None:
        """Take a pasted moment."""
        event.stop()
        self._text = self._text.typed(event.text)
        self.redraw()


class ComparisonDialog(Dialog[bool]):
    """What differs between two instants. True forgets the marked one."""

    def __init__(
        self,
        appearance: Appearance,
        clock: Callable[[], float],
        state: State,
        lines: Sequence[str],
    ) -> None:
        super().__init__(appearance, clock, state)
        self._lines = lines

    @override
    def content(self) -> DialogContent:
        first, *rest = self._lines
        room, ellipsis = self.text_width - 4, self.glyphs.ellipsis
        return DialogContent(
            title="Compared",
            body=[
                Line((span(f"  {first}", Tone.STRONG),)),
                Line(),
                *(
                    Line((span(f"  {part}"),))
                    for each in rest
                    for part in wrap(each, room, 4, ellipsis)
                ),
            ],
            foot=[
                Line((span("up and down scroll, d forgets the mark, other keys close", Tone.DIM),))
            ],
        )

    @override
    def pressed(self, key: str, character: str | None) -> None:
        if key in ("up", "down", "k", "j"):
            self.scroll_lines(1 if key in ("down", "j") else -1)
        else:
            self.finish(key == "d")
