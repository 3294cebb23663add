"""Colours, signs and keys of the console, chosen once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.themes.colours import Palette
from console.viewmodel.drawing.glyphs import UNICODE, Glyphs
from console.viewmodel.news import Attention


@dataclass(frozen=True, slots=True)
class Appearance:
    """The console's palette, glyphs, keys and signals."""

    palette: Palette = field(default_factory=Palette)
    glyphs: Glyphs = UNICODE
    keys: Mapping[str, str] = field(default_factory=dict)
    """Keys of commands, where they are not the registry's."""
    attention: Attention = "none"
    """How it calls for attention."""
