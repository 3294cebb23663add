"""How things look: colours and signs, chosen once at the start."""

from dataclasses import dataclass, field

from console.themes.colours import Palette
from console.viewmodel.drawing.glyphs import UNICODE, Glyphs


@dataclass(frozen=True, slots=True)
class Appearance:
    """The console's palette and glyphs."""

    palette: Palette = field(default_factory=Palette)
    glyphs: Glyphs = UNICODE
