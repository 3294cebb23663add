"""Tones and grounds as terminal styles, in themes.

Every text tone has a contrast of at least 4.5:1 on every ground it appears on, and of 7:1 in the
theme ``contrast`` (tested). Two themes keep good, warning and bad apart for people who see no
green or no blue (tested with a model of such eyes). ``NO_COLOR`` is honoured by Textual, which
removes the colours and keeps the attributes; words and signs carry all meaning without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rich.style import Style

from console.viewmodel.drawing.text import Ground, Tone

_BOLD: Final = frozenset(
    {Tone.STRONG, Tone.TITLE, Tone.FOCUS, Tone.KEY, Tone.WARN, Tone.BAD}
    | {tone for tone in Tone if tone.name.startswith("TASK")}
)


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one theme.

    Attributes:
        title: What it is, for help.
        tones: Colour of each text tone.
        grounds: Colour of each ground.
        ink: Grounds so strong that all text on them has one colour.
    """

    title: str
    tones: Mapping[Tone, str]
    grounds: Mapping[Ground, str]
    ink: Mapping[Ground, str]


_DARK_TONES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "#d5dbe3", Tone.DIM: "#a0adbd", Tone.STRONG: "#f2f5f9", Tone.TITLE: "#f2f5f9",
    Tone.FOCUS: "#ffd479", Tone.KEY: "#7fd1ff", Tone.GOOD: "#7ddb9a", Tone.BUSY: "#7fc8f8",
    Tone.WARN: "#f2b84b", Tone.BAD: "#ff8a80", Tone.DRILL: "#d9a6ff", Tone.TASK_0: "#82aaff",
    Tone.TASK_1: "#f29ad0", Tone.TASK_2: "#5fd7c4", Tone.TASK_3: "#d7c46a",
    Tone.TASK_4: "#c3a6ff", Tone.TASK_5: "#a8cf7a",
}  # fmt: skip
_DARK_GROUNDS: Final[Mapping[Ground, str]] = {
    Ground.PANEL: "#101418", Ground.HEADING: "#1c242d", Ground.SELECTED: "#2b3947",
    Ground.DIALOG: "#18202a", Ground.BAR_VIEW: "#26313d", Ground.BAR_ARMED: "#f2b84b",
    Ground.BAR_LOST: "#c4342d", Ground.BAR_PAST: "#1f5fa8", Ground.DECISION: "#3d3217",
}  # fmt: skip
_INK: Final[Mapping[Ground, str]] = {
    Ground.BAR_ARMED: "#14110a", Ground.BAR_LOST: "#ffffff", Ground.BAR_PAST: "#ffffff",
}  # fmt: skip

_LIGHT_TONES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "#22303c", Tone.DIM: "#44525f", Tone.STRONG: "#0b1218", Tone.TITLE: "#0b1218",
    Tone.FOCUS: "#6b3d00", Tone.KEY: "#004a77", Tone.GOOD: "#0b5323", Tone.BUSY: "#0a4a7a",
    Tone.WARN: "#6b4300", Tone.BAD: "#8f1712", Tone.DRILL: "#5a2391", Tone.TASK_0: "#1c3f9a",
    Tone.TASK_1: "#86195e", Tone.TASK_2: "#00504a", Tone.TASK_3: "#574500",
    Tone.TASK_4: "#4a2f9c", Tone.TASK_5: "#2f4f0a",
}  # fmt: skip
_LIGHT_GROUNDS: Final[Mapping[Ground, str]] = {
    Ground.PANEL: "#fbfcfd", Ground.HEADING: "#e9eef3", Ground.SELECTED: "#cfe0f0",
    Ground.DIALOG: "#f1f5f9", Ground.BAR_VIEW: "#dde5ed", Ground.BAR_ARMED: "#f2b84b",
    Ground.BAR_LOST: "#a3241e", Ground.BAR_PAST: "#1b4f8f", Ground.DECISION: "#f7e7bf",
}  # fmt: skip

_CONTRAST_TONES: Final[Mapping[Tone, str]] = {
    Tone.PLAIN: "#ffffff", Tone.DIM: "#d8d8d8", Tone.STRONG: "#ffffff", Tone.TITLE: "#ffffff",
    Tone.FOCUS: "#ffff66", Tone.KEY: "#80e0ff", Tone.GOOD: "#80ff9e", Tone.BUSY: "#9ad8ff",
    Tone.WARN: "#ffd54a", Tone.BAD: "#ffb3ab", Tone.DRILL: "#ecc8ff", Tone.TASK_0: "#b8ccff",
    Tone.TASK_1: "#ffbfe6", Tone.TASK_2: "#8ff5e4", Tone.TASK_3: "#ffe98a",
    Tone.TASK_4: "#dccbff", Tone.TASK_5: "#ccf29a",
}  # fmt: skip
_CONTRAST_GROUNDS: Final[Mapping[Ground, str]] = {
    Ground.PANEL: "#000000", Ground.HEADING: "#16181a", Ground.SELECTED: "#1a3350",
    Ground.DIALOG: "#0a0c0e", Ground.BAR_VIEW: "#202428", Ground.BAR_ARMED: "#ffd54a",
    Ground.BAR_LOST: "#8c0f0a", Ground.BAR_PAST: "#0d3b78", Ground.DECISION: "#332700",
}  # fmt: skip

THEMES: Final[Mapping[str, Theme]] = {
    "dark": Theme("light text on a dark ground", _DARK_TONES, _DARK_GROUNDS, _INK),
    "light": Theme("dark text on a light ground", _LIGHT_TONES, _LIGHT_GROUNDS, _INK),
    "contrast": Theme(
        "white on black, with a contrast of 7:1", _CONTRAST_TONES, _CONTRAST_GROUNDS, _INK
    ),
    "deuteranopia": Theme(
        "dark, for eyes that see no green or no red: blue is good, orange is bad",
        {**_DARK_TONES, Tone.GOOD: "#6fb4ff", Tone.WARN: "#fff0a8", Tone.BAD: "#ff9636"},
        _DARK_GROUNDS,
        _INK,
    ),
    "tritanopia": Theme(
        "dark, for eyes that see no blue: teal is good, red is bad",
        {**_DARK_TONES, Tone.GOOD: "#4fe0c8", Tone.WARN: "#fff3f0", Tone.BAD: "#ff7c72"},
        _DARK_GROUNDS,
        _INK,
    ),
}


@dataclass(frozen=True, slots=True)
class Palette:
    """Looks up styles. ``faded`` is for data that may no longer be true."""

    name: str = "dark"

    @property
    def background(self) -> str:
        """Colour behind everything."""
        return THEMES[self.name].grounds[Ground.PANEL]

    def style(self, tone: Tone, ground: Ground, *, is_faded: bool = False) -> Style:
        """Return the style of text in ``tone`` on ``ground``."""
        return _style(self.name, tone, ground, is_faded)


@lru_cache(maxsize=512)
def _style(name: str, tone: Tone, ground: Ground, is_faded: bool) -> Style:
    theme = THEMES[name]
    colour = theme.ink.get(ground, theme.tones[tone])
    attributes = "bold" if tone in _BOLD else ""
    if is_faded and ground not in theme.ink:
        colour, attributes = theme.tones[Tone.DIM], "dim"
    return Style.parse(f"{attributes} {colour} on {theme.grounds[ground]}")
