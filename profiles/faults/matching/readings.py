"""Readings: what a line was found to say, remembered for the lines that say it again.

A line is read alike by every pattern that names no digits, whatever stands where its digits are. So
lines are remembered with zeros in place of their digits, and those of which a pattern does name
digits by all that they are. Other than of a shape, nothing of it is guessed: a line that is
remembered says what reading it would find.
"""

from dataclasses import dataclass
from typing import Final

from profiles.faults.entry import Entry
from profiles.faults.sign import MAX_TEXT, Sign

_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_MAX_READINGS: Final = 8192
_MAX_LINE_BYTES: Final = 1024
_Span = tuple[int, int]
NOWHERE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that a line matches, and the spans of the text that name its parts.

    Attributes:
        entry: The entry.
        device: Where the interface or port stands; an empty span if none is named.
        value: Where the state or count stands that is read; likewise.
    """

    entry: Entry
    device: _Span = NOWHERE
    value: _Span = NOWHERE

    def in_line(self, number: int, text: str) -> Sign:
        """Return the sign that line ``number`` gives, whose text without colours is ``text``."""
        device, value = text[slice(*self.device)], text[slice(*self.value)]
        return Sign(self.entry, number, text[:MAX_TEXT], device, value)


@dataclass(frozen=True, slots=True)
class LineReading:
    """What a line says.

    Attributes:
        found: The entries that it matches.
        names_fault: Whether a fault is among that.
        is_suspicious: Whether a fault was, before the line itself took it back.
    """

    found: tuple[Found, ...]
    names_fault: bool
    is_suspicious: bool


class Readings:
    """The readings of one log, bounded; any of them may be forgotten at any time."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, LineReading] = {}

    def get(self, line: bytes, *, digits_matter: bool) -> LineReading | None:
        """Return what ``line`` says if a line like it was kept."""
        return self._by_key.get(line if digits_matter else line.translate(_ZEROS))

    def keep(self, line: bytes, reading: LineReading, *, digits_matter: bool) -> None:
        """Remember what ``line`` says, unless it is too long to come again."""
        if len(line) > _MAX_LINE_BYTES:
            return
        if len(self._by_key) >= _MAX_READINGS:
            self._by_key.clear()
        self._by_key[line if digits_matter else line.translate(_ZEROS)] = reading
