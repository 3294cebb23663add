"""Shapes of lines: lines that differ in their numbers only, and the entries they can match.

A log repeats itself. So the matches of a shape are remembered, and most lines cost one translation
and one look-up. The memory is bounded, and a shape may be forgotten at any time.
"""

import re
from dataclasses import dataclass
from typing import Final

from profiles.faults.matching.rules import Rule
from profiles.faults.matching.screen import LiteralScreen, lowered, shape_of
from profiles.faults.series import ODD_WORDS, SERIES_WORDS
from profiles.faults.xid import XID_WORD, xid_numbers

_HEX_WORD: Final = re.compile(rb"\bx[a-f]+\b|\b(?!dead\b)[a-f]{4,}\b")
"""What is left of a hash or an address without its digits."""
_MAX_SHAPES: Final = 8192
_MAX_SHAPE_BYTES: Final = 1024
_STORM: Final = 64
"""Lines of one shape after which most of the next are taken to say the same."""
_MAX_SKIPPED_LINES: Final = 160
"""How far behind the line that was read last the next of its shape may be taken to say the same."""
_MAX_SKIPPED_PROGRESS: Final = 32
"""How many lines of progress may stand between them: after more of them it says something new."""
_HEX_SIGN: Final = b"0x"
_CHATTER: Final = b"number of nan iterations"
"""Stands in every progress line of Megatron, and would make each of them look suspicious."""
_LEVEL_NAME: Final = "info"
"""Would look like an infinity in every line that was logged at this level."""


@dataclass(slots=True, eq=False)
class Shape:
    """The rules that lines of one shape can match, and their newest result.

    Attributes:
        rules: The rules worth trying.
        needs_body: Whether a rule asks for the text behind the line's prefixes.
        has_certain_digits: Whether a rule asks for certain numbers.
        digits_matter: Whether lines with other digits in the same places may match other rules.
        has_xid: Whether the lines hold the word Xid.
        has_numbers: Whether the lines may hold numbers of training.
        vetoes: Vetoes that may match the lines; None until they are needed.
        num_read: Lines that were read.
        last_read: Number of the line that was read last.
        progress_then: Lines of progress before that line.
        says_fault: Whether that line named a fault.
    """

    rules: tuple[Rule, ...] = ()
    needs_body: bool = False
    has_certain_digits: bool = False
    digits_matter: bool = False
    has_xid: bool = False
    has_numbers: bool = False
    vetoes: tuple[Rule, ...] | None = None
    num_read: int = 0
    last_read: int = 0
    progress_then: int = 0
    says_fault: bool = False

    def is_skipped(self, number: int, num_progress: int) -> bool:
        """Whether line ``number`` of a long log counts as equal to the line that was read last.

        Args:
            number: Number of the line.
            num_progress: Lines of progress before it.
        """
        return (
            self.num_read >= _STORM
            and number - self.last_read < _MAX_SKIPPED_LINES
            and num_progress - self.progress_then < _MAX_SKIPPED_PROGRESS
            and not self.has_numbers
            and (self.says_fault or not self.has_certain_digits)
        )


IDLE: Final = Shape()
"""Of lines that can't say anything."""
NUMBERS: Final = Shape(has_numbers=True)
"""Of lines that can say nothing but finite numbers."""
_ODD_NUMBERS: Final = Shape(has_numbers=True)
"""Of lines that can say nothing but numbers, of which some may be infinite or none."""
_BY_XID: Final = Shape(has_xid=True)
"""Stands for lines whose shape alone does not say enough: the code belongs to it."""


class ShapeBook:
    """The shapes of one log."""

    def __init__(self, screen: LiteralScreen) -> None:
        self._screen = screen
        self._shape_by_key: dict[bytes, Shape] = {}
        self._idle_keys: set[bytes] = set()

    def shape_of(self, line: bytes) -> Shape:
        """Return the shape of ``line``, a new one if there is none like it."""
        key = shape_of(line)
        known = self._shape_by_key.get(key)
        if known is None:
            return IDLE if key in self._idle_keys else self._looked_up(key, line)
        if known is _BY_XID:
            return self._shape_by_key.get(_with_xids(key, line)) or self._looked_up(key, line)
        return known

    def _looked_up(self, key: bytes, line: bytes) -> Shape:
        """Return the shape of a line that is not known yet; only a hash in it may be new."""
        if _HEX_SIGN in line and (known := self._without_hash(key, line)):
            return known
        texts = self._screen.texts_in(line)
        if not texts.isdisjoint(ODD_WORDS) and _CHATTER in line:
            line = line.replace(_CHATTER, b"")
            texts = self._screen.texts_in(line)
        if not texts:
            return self._keep_idle(key)
        rules = self._screen.rules_with(texts, line)
        has_numbers = not texts.isdisjoint(SERIES_WORDS)
        if rules or XID_WORD in texts:
            known = self._without_hash(key, line)
            if known is None:
                return self._keep(key, line, rules, has_numbers)
            return known if known.has_xid else self._keep_shape(key, known)
        if not has_numbers:
            return self._keep_idle(key)
        is_odd = not texts.isdisjoint(ODD_WORDS) and _has_odd_numbers(line)
        return self._keep_shape(key, _ODD_NUMBERS if is_odd else NUMBERS)

    def _without_hash(self, key: bytes, line: bytes) -> Shape | None:
        """Return the shape of lines that differ from ``line`` in hashes and addresses alone."""
        key = _HEX_WORD.sub(b"", key)
        known = self._shape_by_key.get(key)
        return self._shape_by_key.get(_with_xids(key, line)) if known is _BY_XID else known

    def _keep(self, key: bytes, line: bytes, rules: tuple[Rule, ...], has_numbers: bool) -> Shape:
        patterns = [pattern for rule in rules for pattern in (*rule.patterns, *rule.unless)]
        has_xid = XID_WORD in lowered(line)
        shape = Shape(
            rules,
            any(pattern.is_anchored for pattern in patterns),
            any(pattern.has_certain_digits for pattern in patterns),
            has_xid or any(pattern.names_digits for pattern in patterns),
            has_xid,
            has_numbers,
        )
        key = _HEX_WORD.sub(b"", key)
        if has_xid:
            self._keep_shape(key, _BY_XID)
            key = _with_xids(key, line)
        return self._keep_shape(key, shape)

    def _keep_shape(self, key: bytes, shape: Shape) -> Shape:
        if len(key) <= _MAX_SHAPE_BYTES:
            if len(self._shape_by_key) >= _MAX_SHAPES:
                self._shape_by_key.clear()
            self._shape_by_key[key] = shape
        return shape

    def _keep_idle(self, key: bytes) -> Shape:
        if len(key) <= _MAX_SHAPE_BYTES:
            if len(self._idle_keys) >= _MAX_SHAPES:
                self._idle_keys.clear()
            self._idle_keys.add(key)
        return IDLE


def _has_odd_numbers(line: bytes) -> bool:
    text = lowered(line).replace(_LEVEL_NAME, "")
    return any(word in text for word in ODD_WORDS)


def _with_xids(key: bytes, line: bytes) -> bytes:
    return b"%b #%b" % (key, xid_numbers(line))
