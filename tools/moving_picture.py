"""Frames of a terminal as a recording: an asciicast, and an SVG that a browser plays.

    from tools.moving_picture import asciicast, moving_svg

Rows that frames have in common are in the SVG once. Who wants no motion sees the last frame.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.color import ColorType
from rich.style import Style
from textual.strip import Strip

_CELL: Final = (8.4, 17.0)
"""Width and height of a cell in the SVG."""
_LAST_S: Final = 4.0
"""How long the last frame is shown."""
_FONT: Final = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


class Run(NamedTuple):
    """Text in one style. Colours are ``#rrggbb``, empty for the terminal's own."""

    text: str
    ink: str = ""
    ground: str = ""
    is_bold: bool = False


Row = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a terminal shows from a time on, in seconds."""

    at: float
    rows: tuple[Row, ...]


def rows_of(strips: Sequence[Strip]) -> tuple[Row, ...]:
    """Return what Textual's compositor has drawn."""
    return tuple(
        tuple(_run(segment.text, segment.style) for segment in strip if segment.text)
        for strip in strips
    )


def _run(text: str, style: Style | None) -> Run:
    if style is None:
        return Run(text)
    ink, ground = (_hex(style, is_ground=each) for each in (False, True))
    return (
        Run(text, ground, ink, bool(style.bold))
        if style.reverse
        else Run(text, ink, ground, bool(style.bold))
    )


def _hex(style: Style, *, is_ground: bool) -> str:
    color = style.bgcolor if is_ground else style.color
    if color is None or color.type is ColorType.DEFAULT:
        return ""
    return color.get_truecolor().hex


def without_pauses(frames: Sequence[Frame], longest_s: float) -> list[Frame]:
    """Return frames that differ from the one before, none shown for longer than ``longest_s``."""
    kept: list[Frame] = []
    at = 0.0
    for before, frame in pairwise([None, *frames]):
        if before is not None:
            at += min(longest_s, frame.at - before.at)
        if not kept or kept[-1].rows != frame.rows:
            kept.append(Frame(round(at, 3), frame.rows))
    return kept


def asciicast(frames: Sequence[Frame], size: tuple[int, int], title: str) -> Iterator[str]:
    """Yield the lines of an asciicast, version 2 of the format, for ``asciinema play``."""
    width, height = size
    yield json.dumps({"version": 2, "width": width, "height": height, "title": title})
    shown: tuple[Row, ...] = ()
    for frame in frames:
        changed = [
            f"\x1b[{number};1H{_ansi(row)}"
            for number, row in enumerate(frame.rows, start=1)
            if number > len(shown) or shown[number - 1] != row
        ]
        clear = "" if shown else "\x1b[?25l\x1b[2J"
        yield json.dumps([frame.at, "o", clear + "".join(changed)])
        shown = frame.rows
    yield json.dumps([frames[-1].at + _LAST_S, "o", "\x1b[0m\x1b[?25h"])


def _ansi(row: Row) -> str:
    parts = []
    for run in row:
        codes = ["0", *(["1"] if run.is_bold else [])]
        for kind, color in ((38, run.ink), (48, run.ground)):
            if color:
                codes.append(f"{kind};2;{';'.join(str(part) for part in _rgb(color))}")
        parts.append(f"\x1b[{';'.join(codes)}m{run.text}")
    return "".join(parts)


def _rgb(color: str) -> tuple[int, int, int]:
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def moving_svg(frames: Sequence[Frame], size: tuple[int, int], title: str, ground: str) -> str:
    """Return an SVG that shows the frames again and again.

    Args:
        frames: In the order of time.
        size: Columns and rows.
        title: For those who can't see it.
        ground: Colour of the terminal.
    """
    width, height = size[0] * _CELL[0], size[1] * _CELL[1]
    whole_s = frames[-1].at + _LAST_S
    numbers: dict[Row, int] = {}
    for frame in frames:
        for row in frame.rows:
            numbers.setdefault(row, len(numbers))
    shown_until = [*(frame.at for frame in frames[1:]), whole_s]
    styles, groups = [], []
    for number, (frame, until) in enumerate(zip(frames, shown_until, strict=True)):
        begin, end = 100 * frame.at / whole_s, 100 * until / whole_s
        hidden = "0%{visibility:hidden}" if begin > 0 else ""
        styles.append(
            f"@keyframes k{number}{{{hidden}{begin:.3f}%{{visibility:visible}}"
            + (f"{end:.3f}%,100%{{visibility:hidden}}}}" if end < 100 else "100%{visibility:visible}}")
            + f"#f{number}{{animation:k{number} {whole_s:.2f}s step-end infinite}}"
        )  # fmt: skip
        uses = "".join(
            f'<use href="#r{numbers[row]}" y="{place * _CELL[1]:g}"/>'
            for place, row in enumerate(frame.rows)
        )
        groups.append(f'<g id="f{number}" class="f">{uses}</g>')
    last = len(frames) - 1
    rows = "".join(f'<g id="r{number}">{_row_svg(row)}</g>' for row, number in numbers.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">'
        f"<title>{escape(title)}</title><style>text{{font:14px {_FONT};white-space:pre}}"
        f".f{{visibility:hidden}}.b{{font-weight:bold}}{''.join(styles)}"
        f"@media (prefers-reduced-motion:reduce){{.f{{animation:none!important}}"
        f"#f{last}{{visibility:visible}}}}</style><defs>{rows}</defs>"
        f'<rect width="100%" height="100%" fill="{ground}"/>{"".join(groups)}</svg>\n'
    )


def _row_svg(row: Row) -> str:
    parts, column = [], 0
    for run in row:
        cells = cell_len(run.text)
        x, wide = column * _CELL[0], cells * _CELL[0]
        if run.ground:
            parts.append(
                f'<rect x="{x:g}" width="{wide + 0.3:g}" height="{_CELL[1]:g}" fill="{run.ground}"/>'
            )
        if run.text.strip():
            bold = ' class="b"' if run.is_bold else ""
            parts.append(
                f'<text x="{x:g}" y="13" textLength="{wide:g}" fill="{run.ink or "#d0d0d0"}"{bold}>'
                f"{escape(run.text)}</text>"
            )
        column += cells
    return "".join(parts)
