"""Shapes of lines: what lines that differ in their numbers alone can match, and what they said.

A log repeats itself, so what was found out about a shape is remembered, and most lines cost one
translation and one look-up. What is remembered is bounded, and may be forgotten at any time.
"""

import re
from dataclasses import dataclass
from typing import Final

from profiles.faults.rules import Rule
from profiles.faults.screen import Screen, lowered, shape_of
from profiles.faults.series import SERIES_WORDS
from profiles.faults.xid import XID_WORD, xid_numbers

_HEX_WORD: Final = re.compile(rb"\bx[a-f]+\b|\b(?!dead\b)[a-f]{4,}\b")
"""What is left of a hash or an address without its digits."""
_MAX_SHAPES: Final = 8192
_MAX_SHAPE_BYTES: Final = 1024
_STORM: Final = 64
"""Lines of one shape after which most of the next are taken to say the same."""
_MAX_SKIPPED_LINES: Final = 64
"""How far behind the line that was read last the next of its shape may be taken to say the same."""
_ODD_NUMBERS: Final = ("nan", "inf")
_CHATTER: Final = b"number of nan iterations"
"""Stands in every progress line of Megatron, and would make each of them look suspicious."""
_LEVEL_NAME: Final = "info"
"""Would look like an infinity in every line that was logged at this level."""


@dataclass(slots=True, eq=False)
class Shape:
    """What lines of one shape can match, and what they said.

    Attributes:
        rules: Those worth trying.
        needs_body: Whether one of them asks for the text behind the line's prefixes.
        has_certain_digits: Whether one of them asks for certain numbers.
        has_xid: Whether the lines hold the word Xid.
        has_numbers: Whether the lines may hold numbers of training.
        vetoes: What may take back what the lines say; None until it is needed.
        num_read: Lines that were read.
        last_read: Number of the last one.
        says_fault: Whether that one named a fault.
    """

    rules: tuple[Rule, ...] = ()
    needs_body: bool = False
    has_certain_digits: bool = False
    has_xid: bool = False
    has_numbers: bool = False
    vetoes: tuple[Rule, ...] | None = None
    num_read: int = 0
    last_read: int = 0
    says_fault: bool = False

    def is_skipped(self, number: int) -> bool:
        """Whether line ``number`` of a long log is taken to say what the last that was read said."""
        return (
            self.num_read >= _STORM
            and number - self.last_read < _MAX_SKIPPED_LINES
            and not self.has_numbers
            and (self.says_fault or not self.has_certain_digits)
        )


IDLE: Final = Shape()
"""Of lines that can't say anything."""
NUMBERS: Final = Shape(has_numbers=True)
"""Of lines that can say nothing but finite numbers."""
_BY_XID: Final = Shape(has_xid=True)
"""Stands for lines whose shape alone does not say enough: the code belongs to it."""


class ShapeBook:
    """The shapes of one log."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._shape_by_key: dict[bytes, Shape] = {}
        self._idle_keys: set[bytes] = set()

    def glance(self, line: bytes) -> Shape | None:
        """Return the shape of ``line`` if that is quickly told, else None.

        An idle line is told by its shape, or by being made of words that no rule cares for.
        """
        key = shape_of(line)
        known = self._shape_by_key.get(key)
        if known is not None:
            return known if known is not _BY_XID else self._shape_by_key.get(_with_xids(key, line))
        if key in self._idle_keys:
            return IDLE
        if self._screen.is_idle(line):
            self._keep_idle(key)
            return IDLE
        return None

    def shape_of(self, line: bytes) -> Shape:
        """Return the shape of ``line``, a new one if there is none like it."""
        key = shape_of(line)
        known = self._shape_by_key.get(key)
        if known is None:
            if key in self._idle_keys:
                return IDLE
            key = _HEX_WORD.sub(b"", key)
            known = self._shape_by_key.get(key)
        if known is _BY_XID:
            known = self._shape_by_key.get(_with_xids(key, line))
        return known or self._keep(key, line)

    def _keep(self, key: bytes, line: bytes) -> Shape:
        shape = self._new_shape(line)
        if shape is IDLE:
            self._keep_idle(key)
        elif len(key) <= _MAX_SHAPE_BYTES:
            if len(self._shape_by_key) >= _MAX_SHAPES:
                self._shape_by_key.clear()
            if shape.has_xid:
                self._shape_by_key[key] = _BY_XID
                key = _with_xids(key, line)
            self._shape_by_key[key] = shape
        return shape

    def _keep_idle(self, key: bytes) -> None:
        if len(key) <= _MAX_SHAPE_BYTES:
            if len(self._idle_keys) >= _MAX_SHAPES:
                self._idle_keys.clear()
            self._idle_keys.add(key)

    def _new_shape(self, line: bytes) -> Shape:
        line = line.replace(_CHATTER, b"")
        rules = self._screen.rules_for(line)
        text = lowered(line)
        has_xid = XID_WORD in text
        has_numbers = any(word in text for word in SERIES_WORDS)
        if not (rules or has_xid or has_numbers):
            return IDLE
        without_level = text.replace(_LEVEL_NAME, "")
        has_odd_numbers = any(word in without_level for word in _ODD_NUMBERS)
        if has_numbers and not (rules or has_xid or has_odd_numbers):
            return NUMBERS
        patterns = [pattern for rule in rules for pattern in (*rule.patterns, *rule.unless)]
        return Shape(
            rules,
            any(pattern.is_anchored for pattern in patterns),
            any(pattern.has_certain_digits for pattern in patterns),
            has_xid,
            has_numbers,
        )


def _with_xids(key: bytes, line: bytes) -> bytes:
    return b"%b #%b" % (key, xid_numbers(line))
