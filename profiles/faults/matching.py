"""Which entries of the catalogue a line speaks for.

Logs repeat themselves: without its digits, a line is one of a few shapes, and what a shape can't
match is remembered. So most lines cost one translation and one look-up; patterns are tried only on
lines that hold what they need, and what makes a line harmless only on lines that say something. In
a long log, lines of a shape that has said the same many times are mostly taken to say it again.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Entry, Precedence
from profiles.faults.lines import Moment, body_of, moment_of, without_colours
from profiles.faults.rules import Rule
from profiles.faults.screen import lowered, shape_of
from profiles.faults.series import SERIES_WORDS, TrainingSeries
from profiles.faults.sign import Sign
from profiles.faults.xid import XID_WORD, xid_numbers

_HEX_WORD: Final = re.compile(rb"\b(?!dead\b)[a-f]{4,}\b")
"""What is left of a hash or an address without its digits."""
_MAX_SHAPES: Final = 8192
_MAX_SHAPE_BYTES: Final = 1024
_PIECE_BYTES: Final = 8192
_PIECE_OVERLAP: Final = 512
_MAX_TEXT: Final = 400

_ODD_NUMBERS: Final = ("nan", "inf")
_MIN_NUMBERS: Final = 512
"""Progress lines that are read one and all before samples will do: they give the levels."""
_SAMPLE: Final = 32
"""Of how many progress lines one is read then: what leaves its level and stays is still seen."""
_STORM: Final = 64
"""Lines of one shape after which most of the next are taken to say the same."""
_MAX_SKIPPED_LINES: Final = 64
"""How far behind the line that was read last the next of its shape may be taken to say the same."""
_WATCHFUL_LINES: Final = 200
"""Lines after a sign of a fault in which every number is read."""
_CHATTER: Final = b"number of nan iterations"
"""Stands in every progress line of Megatron, and would make each of them look suspicious."""
_LEVEL_NAME: Final = "info"
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
    """What lines of one shape can match, and what they said.

    Attributes:
        rules: Those worth trying.
        needs_body: Whether one of them asks for the text behind the line's prefixes.
        has_certain_digits: Whether one of them asks for certain numbers.
        has_xid: Whether the lines hold the word Xid.
        has_numbers: Whether the lines may hold numbers of training.
        has_odd_numbers: Whether these may be no numbers.
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
    has_odd_numbers: bool = False
    vetoes: tuple[Rule, ...] | None = None
    num_read: int = 0
    last_read: int = 0
    says_fault: bool = False

    def is_skipped(self, number: int) -> bool:
        """Whether line ``number`` is taken to say what the last one that was read said."""
        return (
            self.num_read >= _STORM
            and number - self.last_read < _MAX_SKIPPED_LINES
            and not self.has_numbers
            and (self.says_fault or not self.has_certain_digits)
        )


_IDLE: Final = _Shape()
_NUMBERS: Final = _Shape(has_numbers=True)
_BY_XID: Final = _Shape(has_xid=True)
"""Stands for lines whose shape alone does not say enough: the code belongs to it."""


class Matcher:
    """Reads the lines of one log in order.

    It remembers the numbers of training and the shapes of lines, both bounded, and nothing else.
    """

    def __init__(self, catalogue: Catalogue, *, is_long: bool = False) -> None:
        """Begin a log.

        Args:
            catalogue: What is known.
            is_long: Whether the log is long, so that of lines that repeat themselves a sample will do.
        """
        self._catalogue = catalogue
        self._series = TrainingSeries()
        self._is_long = is_long
        self._num_progress = 0
        self._watchful_until = 0
        self._shapes: dict[bytes, _Shape] = {}
        self._idle_shapes: set[bytes] = set()

    def read_all(self, lines: Iterable[bytes], first_number: int) -> Iterator[Sign | int]:
        """Yield the signs in lines that are numbered from ``first_number``.

        In a long log, an integer stands for a line that is taken to name the same fault as the last
        one of its shape: it is the line's number.
        """
        shape_by_key, idle_shapes = self._shapes.get, self._idle_shapes
        is_idle = self._catalogue.screen.is_idle
        for number, line in enumerate(lines, start=first_number):
            # Nine lines of ten end here: what is not done here is what makes a log fast to read.
            key = shape_of(line)
            shape = shape_by_key(key)
            if shape is None:
                if key in idle_shapes:
                    continue
                if is_idle(line):
                    self._remember_idle(key)
                    continue
            elif shape is _NUMBERS and not self._is_due(number):
                continue
            yield from self.read(number, line)

    def read(self, number: int, line: bytes) -> list[Sign | int]:
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

    def _read_pieces(self, number: int, line: bytes) -> list[Sign | int]:
        if len(line) <= _PIECE_BYTES:
            return self._read_piece(number, line)
        # Patterns look some way back and ahead: on a line without end that would cost its square.
        step = _PIECE_BYTES - _PIECE_OVERLAP
        return [
            sign
            for start in range(0, len(line), step)
            for sign in self._read_piece(number, line[start : start + _PIECE_BYTES])
        ]

    def _read_piece(self, number: int, line: bytes) -> list[Sign | int]:
        shape = self._shape(line)
        if shape is _IDLE:
            return []
        if self._is_long and shape.is_skipped(number):
            return [number] if shape.says_fault else []
        text = line.decode("utf-8", "replace")
        found: list[Sign | int] = []
        if shape.rules or shape.has_xid:
            text = without_colours(text)
            signs = self._speaking(shape, number, text, line)
            shape.num_read += 1
            shape.last_read = number
            shape.says_fault = any(sign.entry.names_fault for sign in signs)
            found += signs
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

    def _speaking(self, shape: _Shape, number: int, text: str, line: bytes) -> list[Sign]:
        body = body_of(text) if shape.needs_body else ""
        found = [sign for rule in shape.rules if (sign := _match(rule, number, text, body))]
        if shape.has_xid and (entry := self._catalogue.xids.read(text)):
            found.append(_sign(entry, number, text))
        if not any(sign.entry.names_fault for sign in found):
            return found
        self._watchful_until = number + _WATCHFUL_LINES
        if shape.vetoes is None:
            shape.vetoes = _possible(self._catalogue.vetoes, lowered(line))
        body = body or body_of(text)
        return _settle(found, [veto.entry for veto in shape.vetoes if veto.search(text, body)])

    def _shape(self, line: bytes) -> _Shape:
        key = shape_of(line)
        known = self._shapes.get(key)
        if known is None:
            if key in self._idle_shapes:
                return _IDLE
            key = _HEX_WORD.sub(b"", key)
            known = self._shapes.get(key)
        if known is _BY_XID:
            known = self._shapes.get(_with_xids(key, line))
        return known or self._remember(key, line)

    def _remember(self, key: bytes, line: bytes) -> _Shape:
        shape = self._new_shape(line)
        if shape is _IDLE:
            self._remember_idle(key)
        elif len(key) <= _MAX_SHAPE_BYTES:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            if shape.has_xid:
                self._shapes[key] = _BY_XID
                key = _with_xids(key, line)
            self._shapes[key] = shape
        return shape

    def _remember_idle(self, key: bytes) -> None:
        if len(key) <= _MAX_SHAPE_BYTES:
            if len(self._idle_shapes) >= _MAX_SHAPES:
                self._idle_shapes.clear()
            self._idle_shapes.add(key)

    def _new_shape(self, line: bytes) -> _Shape:
        line = line.replace(_CHATTER, b"")
        rules = self._catalogue.screen.rules_for(line)
        text = lowered(line)
        has_xid = XID_WORD in text
        has_numbers = any(word in text for word in SERIES_WORDS)
        if not (rules or has_xid or has_numbers):
            return _IDLE
        without_level = text.replace(_LEVEL_NAME, "")
        has_odd_numbers = any(word in without_level for word in _ODD_NUMBERS)
        if has_numbers and not (rules or has_xid or has_odd_numbers):
            return _NUMBERS
        patterns = [pattern for rule in rules for pattern in (*rule.patterns, *rule.unless)]
        return _Shape(
            rules,
            any(pattern.is_anchored for pattern in patterns),
            any(pattern.has_certain_digits for pattern in patterns),
            has_xid,
            has_numbers,
            has_odd_numbers,
        )


def _with_xids(key: bytes, line: bytes) -> bytes:
    return b"%b #%b" % (key, xid_numbers(line))


def _possible(rules: Iterable[Rule], text: str) -> tuple[Rule, ...]:
    """Return ``rules`` without the patterns that no line like ``text`` can match."""
    return tuple(
        Rule(rule.entry, patterns, rule.unless)
        for rule in rules
        if (patterns := tuple(p for p in rule.patterns if p.can_match(text)))
    )


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
