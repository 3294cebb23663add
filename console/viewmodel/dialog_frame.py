"""The frame that every dialog is drawn in: title, body, and what the keys do.

The body scrolls when it does not fit; banner and foot always stay, so that a question is never
shown without its answers. Also the one-line text field that a dialog may hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import (
    Cell,
    Ground,
    Line,
    Span,
    Tone,
    cells_wide,
    clean,
    crop,
    fit,
    span,
)

MAX_WIDTH = 92
CHROME_WIDTH = 4
"""Frame and margin."""


@dataclass(frozen=True, slots=True)
class DialogContent:
    """What a dialog shows. The lines are not yet fitted to a width."""

    title: str
    body: Sequence[Line]
    foot: Sequence[Line]
    banner: str = ""
    """Why the dialog can't be answered any more; empty while it can."""
    cursor: int | None = None
    """Line of the body that must stay in sight."""


def inner_width(width: int) -> int:
    """Return the cells for text in a dialog on a terminal of ``width`` cells."""
    return min(MAX_WIDTH, width - 2) - CHROME_WIDTH


def draw_dialog(
    content: DialogContent, width: int, height: int, scroll: int, glyphs: Glyphs
) -> list[Line]:
    """Return the framed dialog, at most ``height`` lines of ``inner_width(width) + 4`` cells."""
    inner = inner_width(width)
    fixed = len(content.foot) + 3 + (2 if content.banner else 0)
    room = max(1, height - fixed)
    first = _first(content, scroll, room)
    body = list(content.body[first : first + room])
    hidden = len(content.body) - first - len(body)
    top_left, top_right, low_left, low_right = list(glyphs.corners)
    title = _edge(f" {clean(content.title)} ", inner, top_left, top_right, glyphs)
    more = f" {hidden} more below " if hidden > 0 else ""
    low = _edge(more, inner, low_left, low_right, glyphs)
    lines = [title]
    if content.banner:
        banner = span(f"{glyphs.warn} {content.banner}", Tone.BAD)
        lines += [_framed((banner,), inner, glyphs), _framed((), inner, glyphs)]
    lines += [_framed(line.spans, inner, glyphs, line.ground) for line in body]
    lines.append(_framed((), inner, glyphs))
    lines += [_framed(line.spans, inner, glyphs) for line in content.foot]
    return [*lines, low]


def _first(content: DialogContent, scroll: int, room: int) -> int:
    last = max(0, len(content.body) - room)
    if content.cursor is not None:
        scroll = min(max(scroll, content.cursor - room + 1), content.cursor)
    return min(max(0, scroll), last)


def _edge(text: str, inner: int, left: str, right: str, glyphs: Glyphs) -> Line:
    label = Span(crop(text, inner, glyphs.ellipsis), Tone.TITLE)
    rule = glyphs.rule * (inner + 1 - cells_wide((label,)))
    spans = (span(left + glyphs.rule, Tone.DIM), label, span(rule + right, Tone.DIM))
    return Line(spans, Ground.DIALOG)


def _framed(spans: Cell, inner: int, glyphs: Glyphs, ground: Ground = Ground.DIALOG) -> Line:
    side = span(glyphs.side, Tone.DIM)
    ground = Ground.SELECTED if ground is Ground.SELECTED else Ground.DIALOG
    filled = fit(spans, inner, glyphs.ellipsis)
    return Line((side, Span(" "), *filled, Span(" "), side), ground)


def choice_line(choices: Sequence[tuple[str, bool]], hint: str, glyphs: Glyphs) -> Line:
    """Return buttons, the chosen one marked by a sign and brackets, and a hint."""
    spans: list[Span] = []
    for label, is_chosen in choices:
        text = f"{glyphs.cursor}[ {label} ]" if is_chosen else f" [ {label} ]"
        spans += [span(text, Tone.FOCUS if is_chosen else Tone.DIM), Span("  ")]
    return Line((*spans, span(hint, Tone.DIM)))


@dataclass(frozen=True, slots=True)
class TextField:
    """A line of text that grows and shrinks at its end."""

    text: str = ""
    max_length: int = 200

    def typed(self, text: str) -> "TextField":
        """Return the field after ``text`` was typed or pasted."""
        return replace(self, text=(self.text + clean(text))[: self.max_length])

    def erased(self) -> "TextField":
        """Return the field without its last character."""
        return replace(self, text=self.text[:-1])

    def pressed(self, key: str, character: str | None) -> "TextField":
        """Return the field after a key: a character, backspace or ctrl+u."""
        if key == "backspace":
            return self.erased()
        if key == "ctrl+u":
            return self.cleared()
        return self if character is None else self.typed(character)

    def cleared(self) -> "TextField":
        """Return the empty field."""
        return replace(self, text="")

    def line(self, label: str, width: int) -> Line:
        """Return the field with its end in sight."""
        room = max(0, width - len(label) - 2)
        shown = self.text[max(0, len(self.text) - room) :]
        while cells_wide((span(shown),)) > room:
            shown = shown[1:]
        return Line((span(f"{label} ", Tone.DIM), span(shown), span("_", Tone.FOCUS)))
