"""Which entries of the catalogue a line speaks for.

Logs repeat themselves: without its digits, a line is one of a few shapes, and what a shape can't
match is remembered. So most lines cost one translation and one look-up; patterns are tried only on
lines that hold what they need, and what makes a line harmless only on lines that say something. In
a long log, lines of a shape that has said the same many times are mostly taken to say it again.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Entry, Precedence
from profiles.faults.lines import Moment, body_of, moment_of, without_colours
from profiles.faults.rules import Rule
from profiles.faults.screen import texts_and_words
from profiles.faults.series import TrainingSeries
from profiles.faults.shapes import IDLE, NUMBERS, Shape, ShapeBook
from profiles.faults.sign import Sign

_PIECE_BYTES: Final = 8192
_PIECE_OVERLAP: Final = 512
_MAX_TEXT: Final = 400
_DIGIT: Final = re.compile(r"\d")

_MIN_NUMBERS: Final = 512
"""Progress lines that are read one and all before samples will do: they give the levels."""
_SAMPLE: Final = 32
"""Of how many progress lines one is read then: what leaves its level and stays is still seen."""
_WATCHFUL_LINES: Final = 200
"""Lines after a sign of a fault in which every number is read."""
_SOFTENED: Final = frozenset(Precedence) - {
    Precedence.HARDWARE,
    Precedence.KILLER,
    Precedence.LINK,
    Precedence.LINK_EVENT,
}
"""What is over where the program that reports it goes on. Broken devices are not."""


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
        self._shapes = ShapeBook(catalogue.screen)

    def read_all(self, lines: Iterable[bytes], first_number: int) -> Iterator[Sign | int]:
        """Yield the signs in lines that are numbered from ``first_number``.

        In a long log, an integer stands for lines that are taken to name the same fault as the last
        one of their shape: it is the number of the last of them.
        """
        shape_of = self._shapes.shape_of
        skipped = 0
        for number, line in enumerate(lines, start=first_number):
            # Nine lines of ten end here: what is not done here is what makes a log fast to read.
            shape = shape_of(line)
            if shape is IDLE or (shape is NUMBERS and not self._is_due(number)):
                continue
            if self._is_long and shape.is_skipped(number, self._num_progress):
                if shape.says_fault:
                    skipped = number
                    self._watchful_until = number + _WATCHFUL_LINES
                continue
            if skipped:
                yield skipped
                skipped = 0
            if len(line) > _PIECE_BYTES or b"\r" in line:
                yield from self.read(number, line)
            else:
                yield from self._read_shaped(number, line, shape)
        if skipped:
            yield skipped

    def read(self, number: int, line: bytes) -> list[Sign]:
        """Return the signs in line ``number``, which holds no line feed; any bytes will do.

        Carriage returns separate the states of a progress bar; they are read one by one.
        """
        return [
            sign
            for part in (line.split(b"\r") if b"\r" in line else (line,))
            for piece in _pieces_of(part)
            if (shape := self._shapes.shape_of(piece)) is not IDLE
            for sign in self._read_shaped(number, piece, shape)
        ]

    def _read_shaped(self, number: int, line: bytes, shape: Shape) -> list[Sign]:
        text = line.decode("utf-8", "replace")
        found: list[Sign] = []
        if shape.rules or shape.has_xid:
            text = without_colours(text)
            found = self._speaking(shape, number, text, line)
            shape.num_read += 1
            shape.last_read = number
            shape.progress_then = self._num_progress
            shape.says_fault = any(sign.entry.names_fault for sign in found)
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

    def _speaking(self, shape: Shape, number: int, text: str, line: bytes) -> list[Sign]:
        body = body_of(text) if shape.needs_body else ""
        has_digits = _DIGIT.search(text) is not None
        found = [
            sign for rule in shape.rules if (sign := _match(rule, number, text, body, has_digits))
        ]
        if shape.has_xid and (entry := self._catalogue.xids.read(text)):
            found.append(_sign(entry, number, text))
        if not any(sign.entry.names_fault for sign in found):
            return found
        self._watchful_until = number + _WATCHFUL_LINES
        if shape.vetoes is None:
            shape.vetoes = _possible(self._catalogue.vetoes, texts_and_words(line))
        body = body or body_of(text)
        return _settle(found, [veto.entry for veto in shape.vetoes if veto.search(text, body)])


def _pieces_of(line: bytes) -> Iterable[bytes]:
    """Return ``line`` in pieces that overlap.

    Patterns look some way back and ahead: on a line without end that would cost its square.
    """
    if len(line) <= _PIECE_BYTES:
        return (line,) if line else ()
    step = _PIECE_BYTES - _PIECE_OVERLAP
    return (line[start : start + _PIECE_BYTES] for start in range(0, len(line), step))


def _possible(rules: Iterable[Rule], text: str) -> tuple[Rule, ...]:
    """Return ``rules`` without the patterns that no line like ``text`` can match."""
    return tuple(
        Rule(rule.entry, patterns, rule.unless)
        for rule in rules
        if (patterns := tuple(p for p in rule.patterns if p.can_match(text)))
    )


def _match(rule: Rule, number: int, text: str, body: str, has_digits: bool) -> Sign | None:
    found = rule.search(text, body, has_digits=has_digits)
    if found is None:
        return None
    groups = found.groupdict()
    devices = (name for key, name in groups.items() if key.startswith("device") and name)
    return _sign(
        rule.entry, number, text, device=next(devices, ""), value=groups.get("value") or ""
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
