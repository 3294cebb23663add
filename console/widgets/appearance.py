"""Colours and signs of the console, chosen once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.themes.colours import Palette
from console.viewmodel.drawing.glyphs import UNICODE, Glyphs


@dataclass(frozen=True, slots=True)
class Appearance:
    """The console's palette and glyphs."""

    palette: Palette = field(default_factory=Palette)
    glyphs: Glyphs = UNICODE
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of commands, where they are not the registry's."""
