"""Which entries of the catalogue a line speaks for.

Logs repeat themselves: without its digits, a line is one of a few shapes, and what a shape can't
match is remembered. So most lines cost one translation and one look-up; patterns are tried only on
lines that hold one of their literals, and what makes a line harmless only on lines that say something.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Entry, Precedence
from profiles.faults.lines import Moment, body_of, moment_of, without_colours
from profiles.faults.rules import Rule
from profiles.faults.series import TrainingSeries
from profiles.faults.sign import Sign

_SHAPE_DROPS: Final = bytes([*b"0123456789", *range(128, 256)])
"""Bytes that the shape of a line leaves out: numbers, and the blocks of progress bars."""
_HEX_WORD: Final = re.compile(rb"\b(?!dead\b)[a-f]{4,}\b")
"""What is left of a hash or an address without its digits."""
_MAX_SHAPES: Final = 8192
_MAX_SHAPE_BYTES: Final = 1024
_PIECE_BYTES: Final = 8192
_PIECE_OVERLAP: Final = 512
_MAX_TEXT: Final = 400

_XID_WORD: Final = b"xid"
_SERIES_WORDS: Final = (b"loss", b"norm", b"iter", b"step")
_ODD_NUMBERS: Final = (b"nan", b"inf")
_MIN_NUMBERS: Final = 512
"""Progress lines that are read one and all before samples will do: they give the levels."""
_SAMPLE: Final = 32
"""Of how many progress lines one is read then: what leaves its level and stays is still seen."""
_STORM: Final = 64
"""Lines of one shape after which most of the next are taken to say the same."""
_STORM_SAMPLE: Final = 16
_WATCHFUL_LINES: Final = 200
"""Lines after a sign of a fault in which every number is read."""
_CHATTER: Final = b"number of nan iterations"
"""Stands in every progress line of Megatron, and would make each of them look suspicious."""
_LEVEL_NAME: Final = b"info"
"""Would look like an infinity in every line that was logged at this level."""
_SOFTENED: Final = frozenset(Precedence) - {
    Precedence.HARDWARE,
    Precedence.KILLER,
    Precedence.LINK,
    Precedence.LINK_EVENT,
}
"""What is over where the program that reports it goes on. Broken devices are not."""


@dataclass(slots=True, eq=False)
class _Shape:
    """What lines of one shape can match, and what they said."""

    rules: tuple[Rule, ...]
    has_xid: bool
    has_numbers: bool
    has_odd_numbers: bool
    num_read: int = 0
    last_signs: Sequence[Sign] = ()


_NUMBERS: Final = _Shape((), has_xid=False, has_numbers=True, has_odd_numbers=False)
_IDLE: Final = _Shape((), has_xid=False, has_numbers=False, has_odd_numbers=False)


class Matcher:
    """Reads the lines of one log in order.

    It remembers the numbers of training and the shapes of lines, both bounded, and nothing else.
    """

    def __init__(self, catalogue: Catalogue, *, is_long: bool = False) -> None:
        """Begin a log.

        Args:
            catalogue: What is known.
            is_long: Whether the log is long, so that of healthy progress lines a sample will do.
        """
        self._catalogue = catalogue
        self._series = TrainingSeries()
        self._is_long = is_long
        self._num_progress = 0
        self._watchful_until = 0
        self._shapes: dict[bytes, _Shape] = {}

    def read_all(self, lines: Iterable[bytes], first_number: int) -> Iterator[Sign]:
        """Yield the signs in lines that are numbered from ``first_number``."""
        shape_of = self._shapes.get
        for number, line in enumerate(lines, start=first_number):
            # Nine lines of ten end here: what is not done here is what makes a log fast to read.
            shape = shape_of(line.translate(None, _SHAPE_DROPS))
            if shape is _IDLE or (shape is _NUMBERS and not self._is_due(number)):
                continue
            yield from self.read(number, line)

    def read(self, number: int, line: bytes) -> list[Sign]:
        """Return the signs in line ``number``, which holds no line feed; any bytes will do.

        Carriage returns separate the states of a progress bar; they are read one by one.
        """
        if b"\r" in line:
            return [
                sign
                for part in line.split(b"\r")
                if part
                for sign in self._read_pieces(number, part)
            ]
        return self._read_pieces(number, line)

    def _read_pieces(self, number: int, line: bytes) -> list[Sign]:
        if len(line) <= _PIECE_BYTES:
            return self._read_piece(number, line)
        # Patterns look some way back and ahead: on a line without end that would cost its square.
        step = _PIECE_BYTES - _PIECE_OVERLAP
        return [
            sign
            for start in range(0, len(line), step)
            for sign in self._read_piece(number, line[start : start + _PIECE_BYTES])
        ]

    def _read_piece(self, number: int, line: bytes) -> list[Sign]:
        shape = self._shape(line.translate(None, _SHAPE_DROPS))
        if shape is _IDLE:
            return []
        text = line.decode("utf-8", "replace")
        found: list[Sign] = []
        if shape.rules or shape.has_xid:
            text = without_colours(text)
            found = self._repeated(shape, number, text) or self._speaking(shape, number, text)
            shape.num_read += 1
            shape.last_signs = found
        if shape.has_numbers:
            for event in self._series.read(text):
                entry = self._catalogue.entries[event]
                # Most lines of most logs end here, so that this sign costs nothing.
                found.append(
                    Sign(entry, number, "") if event == "progress" else _sign(entry, number, text)
                )
        return found

    def _is_due(self, number: int) -> bool:
        """Whether the finite numbers of a line are to be read."""
        self._num_progress += 1
        return (
            not self._is_long
            or self._num_progress <= _MIN_NUMBERS
            or self._num_progress % _SAMPLE == 0
            or number <= self._watchful_until
            or self._series.is_suspicious
        )

    def _repeated(self, shape: _Shape, number: int, text: str) -> list[Sign]:
        """Return what a line says whose like has said the same many times; empty to look at it.

        Faults come in storms of thousands of lines that differ in their numbers. Only in the text
        of an Xid is a number the fault's name.
        """
        if not self._is_long or shape.has_xid or shape.num_read < _STORM:
            return []
        if shape.num_read % _STORM_SAMPLE == 0:
            return []
        return [
            replace(sign, line=number, text=text[:_MAX_TEXT], moment=moment_of(text))
            for sign in shape.last_signs
        ]

    def _speaking(self, shape: _Shape, number: int, text: str) -> list[Sign]:
        body = body_of(text)
        found = [sign for rule in shape.rules if (sign := _match(rule, number, text, body))]
        if shape.has_xid and (entry := self._catalogue.xids.read(text)):
            found.append(_sign(entry, number, text))
        if not any(sign.entry.names_fault for sign in found):
            return found
        self._watchful_until = number + _WATCHFUL_LINES
        vetoes = [rule.entry for rule in self._catalogue.vetoes if rule.search(text, body)]
        return _settle(found, vetoes)

    def _shape(self, shape: bytes) -> _Shape:
        known = self._shapes.get(shape)
        if known is None:
            shape = _HEX_WORD.sub(b"", shape)
            known = self._shapes.get(shape) or self._new_shape(shape)
            if len(shape) <= _MAX_SHAPE_BYTES:
                if len(self._shapes) >= _MAX_SHAPES:
                    self._shapes.clear()
                self._shapes[shape] = known
        return known

    def _new_shape(self, shape: bytes) -> _Shape:
        lowered = shape.lower().replace(_CHATTER, b"")
        rules = self._catalogue.screen.rules_for(lowered.decode("ascii"))
        has_xid = _XID_WORD in lowered
        has_numbers = any(word in lowered for word in _SERIES_WORDS)
        if not (rules or has_xid or has_numbers):
            return _IDLE
        without_level = lowered.replace(_LEVEL_NAME, b"")
        has_odd_numbers = any(word in without_level for word in _ODD_NUMBERS)
        if has_numbers and not (rules or has_xid or has_odd_numbers):
            return _NUMBERS
        return _Shape(rules, has_xid, has_numbers, has_odd_numbers)


def _match(rule: Rule, number: int, text: str, body: str) -> Sign | None:
    found = rule.search(text, body)
    if found is None:
        return None
    groups = found.groupdict()
    return _sign(
        rule.entry,
        number,
        text,
        device=groups.get("device") or groups.get("device2") or "",
        value=groups.get("value") or "",
    )


def _sign(entry: Entry, number: int, text: str, *, device: str = "", value: str = "") -> Sign:
    moment: Moment | None = moment_of(text)
    return Sign(entry, number, text[:_MAX_TEXT], moment, device, value)


def _settle(found: list[Sign], vetoes: list[Entry]) -> list[Sign]:
    """Drop the signs of one line that others in it take back or know better."""
    taken_back: set[Precedence] = set()
    for veto in vetoes:
        if veto.precedence is Precedence.SOFT:
            taken_back |= _SOFTENED
        else:
            taken_back.update(veto.vetoes or Precedence)
    # An exit code in the text of an exception is less than the exception.
    knows_better = any(
        sign.entry.precedence.is_ranked
        and sign.entry.precedence is not Precedence.EXIT
        and not sign.entry.is_generic
        for sign in found
    )
    return [
        sign
        for sign in found
        if not (sign.entry.names_fault and sign.entry.precedence in taken_back)
        and not (sign.entry.is_generic and knows_better)
    ]
