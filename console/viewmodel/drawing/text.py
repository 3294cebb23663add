"""Toned text: the only currency between view model and widgets.

A ``Line`` is a row of the terminal: spans of text, each with a ``Tone``, on a ``Ground``. Tones
name meanings; ``console.themes`` gives them colours. All text of a cluster passes through ``span``,
which removes control characters, escape sequences and bidirectional overrides. Markup is never
interpreted. Widths are terminal cells, not characters.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

MAX_TEXT: Final = 2_000
"""Longest text that is measured: a 90,000-character line must not stall a frame."""

_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?"
)
_SPACE: Final = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


class Tone(StrEnum):
    """The meaning of a piece of text. A word or sign always says the same."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    TITLE = "title"
    FOCUS = "focus"
    KEY = "key"
    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    DRILL = "drill"
    TASK_0 = "task_0"
    TASK_1 = "task_1"
    TASK_2 = "task_2"
    TASK_3 = "task_3"
    TASK_4 = "task_4"
    TASK_5 = "task_5"


TASK_TONES: Final = (
    Tone.TASK_0,
    Tone.TASK_1,
    Tone.TASK_2,
    Tone.TASK_3,
    Tone.TASK_4,
    Tone.TASK_5,
)


class Ground(StrEnum):
    """What a whole line lies on."""

    PANEL = "panel"
    HEADING = "heading"
    SELECTED = "selected"
    DIALOG = "dialog"
    BAR_VIEW = "bar_view"
    BAR_ARMED = "bar_armed"
    BAR_LOST = "bar_lost"
    BAR_PAST = "bar_past"
    DECISION = "decision"


class Span(NamedTuple):
    """A piece of clean text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


Cell = tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the terminal."""

    spans: Cell = ()
    ground: Ground = Ground.PANEL

    @property
    def text(self) -> str:
        """The line without its tones."""
        return "".join(part.text for part in self.spans)

    def on(self, ground: Ground) -> "Line":
        """Return this line on another ground."""
        return replace(self, ground=ground)


def clean(text: str) -> str:
    """Return ``text`` as one printable line of at most ``MAX_TEXT`` characters."""
    text = text[:MAX_TEXT]
    if text.isascii() and text.isprintable():
        return text
    text = _SPACE.sub(" ", _ESCAPE_SEQUENCE.sub("", text))
    return _UNPRINTABLE.sub("\ufffd", text)


def span(text: str, tone: Tone = Tone.PLAIN) -> Span:
    """Return cleaned ``text`` in ``tone``."""
    return Span(clean(text), tone)


def cell(text: str, tone: Tone = Tone.PLAIN) -> Cell:
    """Return a table cell of one span."""
    return (span(text, tone),)


def cells_wide(spans: Iterable[Span]) -> int:
    """Return how many terminal cells the spans take."""
    return sum(cell_len(part.text) for part in spans)


def crop(text: str, width: int, ellipsis: str) -> str:
    """Return ``text`` in at most ``width`` cells, with an ellipsis where something was cut."""
    if cell_len(text) <= width:
        return text
    if width <= cell_len(ellipsis):
        return ellipsis[: max(0, width)]
    return set_cell_size(text, width - cell_len(ellipsis)).rstrip() + ellipsis


def fit(spans: Sequence[Span], width: int, ellipsis: str, *, align_right: bool = False) -> Cell:
    """Return the spans in exactly ``width`` cells: cropped, or padded with blanks."""
    used = cells_wide(spans)
    if used <= width:
        pad = Span(" " * (width - used))
        return (pad, *spans) if align_right else (*spans, pad)
    kept: list[Span] = []
    left = width
    for part in spans:
        size = cell_len(part.text)
        if size > left or (size == left and part is not spans[-1]):
            # Blanks may be cut without a word.
            rest = part.text[left:] + "".join(one.text for one in spans[len(kept) + 1 :])
            if rest.isspace() and part.text.isascii():
                kept.append(Span(part.text[:left], part.tone))
            else:
                kept.append(Span(crop(part.text + ellipsis, left, ellipsis), part.tone))
            break
        kept.append(part)
        left -= size
    return (*kept, Span(" " * (width - cells_wide(kept))))


def wrap(text: str, width: int, max_lines: int, ellipsis: str) -> list[str]:
    """Break clean ``text`` at blanks into at most ``max_lines`` lines of ``width`` cells.

    A word longer than a line is broken anywhere; what does not fit ends in an ellipsis.
    """
    lines: list[str] = []
    rest = clean(text).strip()
    while rest and len(lines) < max_lines - 1:
        head, rest = _split(rest, width)
        lines.append(head)
    if rest:
        lines.append(crop(rest, width, ellipsis))
    return lines or [""]


def _split(text: str, width: int) -> tuple[str, str]:
    if cell_len(text) <= width:
        return text, ""
    head = set_cell_size(text, max(2, width)).rstrip("\0")
    cut = len(head)
    blank = head.rfind(" ")
    if text[cut : cut + 1] != " " and blank > 0:
        word = text[blank + 1 : blank + 2 + width].split(" ", 1)[0]
        # A word longer than a line is broken anyway: not at the cost of an empty one.
        if blank > width // 3 or cell_len(word) <= width:
            cut = blank
    # A double-width character may not fit the last cell; set_cell_size then pads with a blank.
    while cut and not text.startswith(head[:cut]):
        cut -= 1
    cut = max(cut, 1)
    return text[:cut].rstrip(), text[cut:].lstrip()
