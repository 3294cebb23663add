"""Every tone can be read on every ground it may lie on."""

import itertools

import pytest
from rich.style import Style

from console.themes.colours import GROUNDS, INK, TONES, Palette
from console.viewmodel.drawing.text import Ground, Tone

LEAST_CONTRAST = 4.5


def contrast(style: Style) -> float:
    lights = []
    for colour in (style.color, style.bgcolor):
        assert colour is not None
        parts = [channel / 255 for channel in colour.get_truecolor()]
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        )
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


@pytest.mark.parametrize(("tone", "ground"), itertools.product(Tone, Ground), ids=str)
def test_text_is_readable(tone: Tone, ground: Ground) -> None:
    assert contrast(Palette().style(tone, ground)) >= LEAST_CONTRAST


def test_the_tables_are_total() -> None:
    assert set(TONES) == set(Tone)
    assert set(GROUNDS) == set(Ground)
    assert set(INK) <= set(Ground)
