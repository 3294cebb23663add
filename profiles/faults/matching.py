"""Which entries of the catalogue a line speaks for.

Logs repeat themselves: without its digits, a line is one of a few shapes, and what a shape can't
match is remembered. So most lines cost one translation and one look-up; patterns are tried only on
lines that hold one of an entry's words.
"""

from dataclasses import dataclass, replace
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Channel, Entry, Precedence
from profiles.faults.lines import Moment, body_of, moment_of, without_colours
from profiles.faults.rules import Rule
from profiles.faults.series import TrainingSeries
from profiles.faults.sign import Sign

_SHAPE_DROPS: Final = bytes([*b"0123456789", *range(128, 256)])
"""Bytes that the shape of a line leaves out: numbers, and the blocks of progress bars."""
_MAX_SHAPES: Final = 8192
_MAX_SHAPE_BYTES: Final = 1024
_PIECE_BYTES: Final = 8192
_PIECE_OVERLAP: Final = 512
_MAX_TEXT: Final = 400

_XID_WORD: Final = b"xid"
_SERIES_WORDS: Final = (b"loss", b"grad", b"iter", b"step", b"gnorm")
_UNSOFTENED: Final = frozenset(
    {Precedence.HARDWARE, Precedence.KILLER, Precedence.LINK, Precedence.LINK_EVENT}
)
"""What stays true although the program that reports it goes on."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What lines of one shape can match."""

    rules: tuple[Rule, ...]
    has_xid: bool
    has_numbers: bool

    @property
    def is_idle(self) -> bool:
        return not (self.rules or self.has_xid or self.has_numbers)


class Matcher:
    """Reads the lines of one log in order.

    It remembers the numbers of training and the shapes of lines, both bounded, and nothing else.
    """

    def __init__(self, catalogue: Catalogue, channel: Channel | None = None) -> None:
        """Prepare the entries of ``channel``, or all of them."""
        self._catalogue = catalogue
        self._rules = [
            rule for rule in catalogue.rules if channel is None or channel in rule.entry.channels
        ]
        self._literals = frozenset(
            literal
            for rule in self._rules
            for pattern in rule.patterns
            for literal in pattern.literals
        )
        self._series = TrainingSeries()
        self._shapes: dict[bytes, _Shape] = {}

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
        if shape.is_idle:
            return []
        text = without_colours(line.decode("utf-8", "replace"))
        body = body_of(text)
        found = [sign for rule in shape.rules if (sign := _match(rule, number, text, body))]
        if shape.has_xid and (entry := self._catalogue.xids.read(text)):
            found.append(_sign(entry, number, text))
        if shape.has_numbers:
            for event in self._series.read(text):
                entry = self._catalogue.entries[event]
                if event == "progress" and not found:
                    return [Sign(entry, number, "")]  # most lines of most logs end here
                found.append(_sign(entry, number, text))
        return _settle(found)

    def _shape(self, shape: bytes) -> _Shape:
        known = self._shapes.get(shape)
        if known is None:
            lowered = shape.lower()
            known = _Shape(
                self._rules_for(lowered),
                _XID_WORD in lowered,
                any(word in lowered for word in _SERIES_WORDS),
            )
            if len(shape) <= _MAX_SHAPE_BYTES:
                if len(self._shapes) >= _MAX_SHAPES:
                    self._shapes.clear()
                self._shapes[shape] = known
        return known

    def _rules_for(self, shape: bytes) -> tuple[Rule, ...]:
        held = {literal for literal in self._literals if literal in shape}
        rules = []
        for rule in self._rules:
            patterns = tuple(
                pattern
                for pattern in rule.patterns
                if not pattern.literals or not held.isdisjoint(pattern.literals)
            )
            if patterns:
                rules.append(replace(rule, patterns=patterns))
        return tuple(rules)


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


def _settle(found: list[Sign]) -> list[Sign]:
    """Apply what the signs of one line say about each other."""
    if len(found) < 2:
        return [sign for sign in found if sign.entry.precedence not in _WITHIN_A_LINE]
    vetoed: set[Precedence] = set()
    for sign in found:
        if sign.entry.precedence is Precedence.VETO:
            vetoed.update(sign.entry.vetoes or Precedence)
        elif sign.entry.precedence is Precedence.SOFT:
            vetoed.update(set(Precedence) - _UNSOFTENED)
    knows_better = any(
        sign.entry.precedence.is_ranked and not sign.entry.is_generic for sign in found
    )
    return [
        sign
        for sign in found
        if sign.entry.precedence not in _WITHIN_A_LINE
        and not (sign.entry.names_fault and sign.entry.precedence in vetoed)
        and not (sign.entry.is_generic and knows_better)
    ]


_WITHIN_A_LINE: Final = frozenset({Precedence.VETO, Precedence.SOFT})
