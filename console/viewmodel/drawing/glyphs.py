"""The signs that stand beside words, in a Unicode and an ASCII set.

A sign never stands alone: the word beside it carries the same meaning.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs. Every sign is one cell wide, except ``arrow`` and ``ellipsis``."""

    ok: str
    busy: str
    ask: str
    bad: str
    warn: str
    idle: str
    done: str
    held: str
    drill: str
    cursor: str
    bar: str
    rule: str
    dash: str
    arrow: str
    ellipsis: str
    dot: str
    spark: str
    corners: str
    """Top left, top right, bottom left, bottom right."""
    side: str


UNICODE: Final = Glyphs(
    ok="●",
    busy="◐",
    ask="?",
    bad="✕",
    warn="▲",
    idle="○",
    done="✓",
    held="■",
    drill="◆",
    cursor="▸",
    bar="│",
    rule="─",
    dash="–",  # noqa: RUF001 (an en dash stands for "no value")
    arrow="→",
    ellipsis="…",
    dot="·",
    spark="▁▂▃▄▅▆▇█",
    corners="╭╮╰╯",
    side="│",
)

ASCII: Final = Glyphs(
    ok="o",
    busy="~",
    ask="?",
    bad="x",
    warn="!",
    idle=".",
    done="=",
    held="#",
    drill="*",
    cursor=">",
    bar="|",
    rule="-",
    dash="-",
    arrow="->",
    ellipsis="..",
    dot="-",
    spark="_.,-=+*#",
    corners="++++",
    side="|",
)
