"""Every tone can be read on every ground it may lie on, in every theme, and with other eyes."""

import itertools
import math

import pytest
from rich.style import Style

from console.themes.colours import THEMES, Palette
from console.viewmodel.drawing.text import Ground, Tone

LEAST_CONTRAST = {"contrast": 7.0}
USUAL_CONTRAST = 4.5
Colour = tuple[float, float, float]

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB.
EYES = {
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}  # fmt: skip
LEAST_DISTANCE = 25.0
"""In CIE Lab; 2.3 is what can just be told apart."""


def linear(hexadecimal: str) -> Colour:
    """Return a colour as linear red, green and blue."""
    parts = [int(hexadecimal[first : first + 2], 16) / 255 for first in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return red, green, blue


def contrast(style: Style) -> float:
    lights = []
    for colour in (style.color, style.bgcolor):
        assert colour is not None
        red, green, blue = linear(colour.get_truecolor().hex)
        lights.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(lights) / min(lights)


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_readable(theme: str) -> None:
    least = LEAST_CONTRAST.get(theme, USUAL_CONTRAST)
    poor = {
        (tone, ground): found
        for tone, ground in itertools.product(Tone, Ground)
        if (found := contrast(Palette(theme).style(tone, ground))) < least
    }
    assert poor == {}


@pytest.mark.parametrize("theme", THEMES)
def test_the_tables_are_total(theme: str) -> None:
    assert set(THEMES[theme].tones) == set(Tone)
    assert set(THEMES[theme].grounds) == set(Ground)
    assert set(THEMES[theme].ink) <= set(Ground)


def seen_by(eyes: str, colour: Colour) -> Colour:
    """Return a colour as these eyes see it."""
    red, green, blue = (
        min(1.0, max(0.0, sum(part * factor for part, factor in zip(colour, row, strict=True))))
        for row in EYES[eyes]
    )
    return red, green, blue


def lab(colour: Colour) -> Colour:
    """Return a colour in CIE Lab."""
    red, green, blue = colour
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883
    fx, fy, fz = (
        math.cbrt(part) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z)
    )
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("eyes", EYES)
def test_good_warning_and_bad_differ_for_these_eyes(eyes: str) -> None:
    tones = THEMES[eyes].tones
    colours = [lab(seen_by(eyes, linear(tones[tone]))) for tone in (Tone.GOOD, Tone.WARN, Tone.BAD)]
    for one, other in itertools.combinations(colours, 2):
        assert math.dist(one, other) >= LEAST_DISTANCE


def test_a_theme_for_other_eyes_would_not_do() -> None:
    """The test can fail: in the dark theme, warning and bad are close without green."""
    tones = THEMES["dark"].tones
    colours = [
        lab(seen_by("deuteranopia", linear(tones[tone])))
        for tone in (Tone.GOOD, Tone.WARN, Tone.BAD)
    ]
    nearest = min(math.dist(one, other) for one, other in itertools.combinations(colours, 2))
    assert nearest < LEAST_DISTANCE
