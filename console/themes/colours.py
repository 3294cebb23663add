"""Tones and grounds as terminal styles.

One dark palette. Every text tone has a contrast of at least 4.5:1 on every ground it appears on
(tested). ``NO_COLOR`` is honoured by Textual, which removes the colours and keeps the attributes;
words and signs carry all meaning without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rich.style import Style

from console.viewmodel.drawing.text import Ground, Tone

BACKGROUND: Final = "#101418"

TONES: Final[Mapping[Tone, tuple[str, str]]] = {
    Tone.PLAIN: ("#d5dbe3", ""),
    Tone.DIM: ("#a0adbd", ""),
    Tone.STRONG: ("#f2f5f9", "bold"),
    Tone.TITLE: ("#f2f5f9", "bold"),
    Tone.FOCUS: ("#ffd479", "bold"),
    Tone.KEY: ("#7fd1ff", "bold"),
    Tone.GOOD: ("#7ddb9a", ""),
    Tone.BUSY: ("#7fc8f8", ""),
    Tone.WARN: ("#f2b84b", "bold"),
    Tone.BAD: ("#ff8a80", "bold"),
    Tone.DRILL: ("#d9a6ff", ""),
    Tone.TASK_0: ("#82aaff", "bold"),
    Tone.TASK_1: ("#f29ad0", "bold"),
    Tone.TASK_2: ("#5fd7c4", "bold"),
    Tone.TASK_3: ("#d7c46a", "bold"),
    Tone.TASK_4: ("#c3a6ff", "bold"),
    Tone.TASK_5: ("#a8cf7a", "bold"),
}

GROUNDS: Final[Mapping[Ground, str]] = {
    Ground.PANEL: BACKGROUND,
    Ground.HEADING: "#1c242d",
    Ground.SELECTED: "#2b3947",
    Ground.DIALOG: "#18202a",
    Ground.BAR_VIEW: "#26313d",
    Ground.BAR_ARMED: "#f2b84b",
    Ground.BAR_LOST: "#c4342d",
    Ground.DECISION: "#3d3217",
}

INK: Final[Mapping[Ground, str]] = {Ground.BAR_ARMED: "#14110a", Ground.BAR_LOST: "#ffffff"}
"""Grounds so strong that all text on them has one colour."""


@dataclass(frozen=True, slots=True)
class Palette:
    """Looks up styles. ``faded`` is for data that may no longer be true."""

    name: str = "dark"

    def style(self, tone: Tone, ground: Ground, *, is_faded: bool = False) -> Style:
        """Return the style of text in ``tone`` on ``ground``."""
        return _style(tone, ground, is_faded)


@lru_cache(maxsize=512)
def _style(tone: Tone, ground: Ground, is_faded: bool) -> Style:
    colour, attributes = TONES[tone]
    colour = INK.get(ground, colour)
    if is_faded and ground not in INK:
        colour, attributes = TONES[Tone.DIM][0], "dim"
    return Style.parse(f"{attributes} {colour} on {GROUNDS[ground]}")
