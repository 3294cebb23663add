"""The key bar and the key help, from plain descriptions of commands.

The registry lives in ``console.command_registry``; this module only draws what it is given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.text import Cell, Line, Span, Tone, cells_wide, fit, span

_KEY_NAMES: Final = {
    "question_mark": "?",
    "slash": "/",
    "at": "@",
    "comma": ",",
    "full_stop": ".",
    "equals_sign": "=",
    "left_parenthesis": "(",
    "colon": ":",
    "greater_than_sign": ">",
    "less_than_sign": "<",
    "right_parenthesis": ")",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "escape": "esc",
    "enter": "enter",
    "shift+tab": "shift+tab",
    "pageup": "pgup",
    "pagedown": "pgdn",
}


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A command as the key bar and the help show it. ``reason`` is empty if it is enabled."""

    id: str
    keys: str
    label: str
    title: str
    scope: str
    reason: str = ""


def with_keys(hints: Sequence[KeyHint], keys: Mapping[str, str]) -> list[KeyHint]:
    """Return the hints with the keys of an operator's own map."""
    return [replace(hint, keys=keys.get(hint.id, hint.keys)) for hint in hints]


@dataclass(frozen=True, slots=True)
class KeyBarContent:
    """The drawn bar and where on it each command lies, for the mouse."""

    line: Line
    places: tuple[tuple[int, int, str], ...]
    """First cell, cell after the last, command id."""


def key_name(key: str) -> str:
    """Return a key as it is written on screen."""
    return _KEY_NAMES.get(key) or key.replace("ctrl+", "^")


def draw_key_bar(hints: Sequence[KeyHint], width: int, glyphs: Glyphs) -> KeyBarContent:
    """Return the bar. Where it is too narrow, disabled hints go first; the last two always stay.

    An enabled key stands in angle brackets; a disabled one is dimmed and in none.
    """
    shown = list(hints)
    while len(shown) > 2 and 1 + sum(cells_wide(_item(hint)) for hint in shown) > width:
        disabled = [hint for hint in shown[:-2] if hint.reason]
        shown.remove(disabled[-1] if disabled else shown[-3])
    spans: list[Span] = [Span(" ")]
    places = []
    for hint in shown:
        first = cells_wide(spans)
        spans += _item(hint)
        places.append((first, cells_wide(spans), hint.id))
    return KeyBarContent(Line(fit(spans, width, glyphs.ellipsis)), tuple(places))


def _item(hint: KeyHint) -> Cell:
    key = key_name(hint.keys.split(",")[0])
    if hint.reason:
        return (span(f" {key} {hint.label} ", Tone.DIM),)
    return (span(f"<{key}>", Tone.KEY), span(f"{hint.label} "))


def help_lines(hints: Sequence[KeyHint], width: int, glyphs: Glyphs) -> list[Line]:
    """Return every command with its keys, or the reason why it is disabled."""
    lines: list[Line] = []
    scopes = dict.fromkeys(hint.scope for hint in hints)
    keys = {hint.id: ", ".join(key_name(key) for key in hint.keys.split(",")) for hint in hints}
    column = max((len(text) for text in keys.values()), default=0) + 2
    for scope in scopes:
        lines.append(Line((span(scope, Tone.TITLE),)))
        for hint in hints:
            if hint.scope != scope:
                continue
            spans = [span(keys[hint.id].ljust(column), Tone.KEY), span(hint.title)]
            if hint.reason:
                spans.append(span(f"  (not now: {hint.reason})", Tone.DIM))
            lines.append(Line(fit(spans, width, glyphs.ellipsis)))
        lines.append(Line())
    return lines[:-1]


def legend_lines(glyphs: Glyphs) -> list[Line]:
    """Return the meaning of the worker cells."""
    texts = (
        (" A0", "worker holds rank 0 of task A"),
        (f"{glyphs.busy}A0", "rank is being started"),
        (f"{glyphs.ask}A0", "node unreachable, presumed training"),
        (f"{glyphs.bad}{glyphs.dash}", "node lost, or GPU isolated"),
        (f" A{glyphs.dash}", "spare for task A"),
        (f" {glyphs.dash}", "idle worker"),
    )
    head = Line((span("Worker cells", Tone.TITLE),))
    return [head, *(Line((span(sign.ljust(6)), span(text))) for sign, text in texts)]
