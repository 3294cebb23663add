"""Which entries of the catalogue a line matches.

Logs repeat themselves: without its digits, a line is one of a few shapes, and what a shape can't
match is remembered. So most lines cost one translation and one look-up. A pattern is tried only on
lines that hold its literals. Vetoes are tried only on lines that match an entry. In
a long log, lines of a shape that has said the same many times are mostly taken to say it again.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from profiles.faults.catalogue import Catalogue
from profiles.faults.entry import Entry
from profiles.faults.lines import body_of, without_colours
from profiles.faults.matching.readings import NOWHERE, Found, LineReading, Readings
from profiles.faults.matching.rules import Rule
from profiles.faults.matching.screen import texts_and_words
from profiles.faults.matching.shapes import IDLE, NUMBERS, Shape, ShapeBook
from profiles.faults.precedence import Precedence
from profiles.faults.series import TrainingSeries
from profiles.faults.sign import Sign

_PIECE_BYTES: Final = 8192
_PIECE_OVERLAP: Final = 512
_DIGIT: Final = re.compile(r"\d")

_MIN_NUMBERS: Final = 2048
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
"""What is over if the program that reports it continues. Broken devices are not."""


class Matcher:
    """Reads the lines of one log in order.

    It remembers the numbers of training and the shapes of lines, both bounded, and nothing else.
    """

    def __init__(self, catalogue: Catalogue, *, is_long: bool = False) -> None:
        """Begin a log.

        Args:
            catalogue: What is known.
            is_long: Whether the log is long, so that of lines that repeat themselves a sample will
                do.
        """
        self._catalogue = catalogue
        self._series = TrainingSeries()
        self._is_long = is_long
        self._num_progress = 0
        self._watchful_until = 0
        self._shapes = ShapeBook(catalogue.screen)
        self._readings = Readings()

    def read_all(self, lines: Iterable[bytes], first_number: int) -> Iterator[Sign | int]:
        """Yield the signs in lines that are numbered from ``first_number``.

        In a long log, an integer stands for lines that are taken to name the same fault as the last
        one of their shape: it is the number of the last of them.
        """
        shape_of = self._shapes.shape_of
        skipped = 0
        for number, line in enumerate(lines, start=first_number):
            # Nine lines of ten end here, so every step here slows down the reading of a log.
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
            reading = self._reading_of(shape, line, text)
            found = [each.in_line(number, text) for each in reading.found]
            if reading.is_suspicious:
                self._watchful_until = number + _WATCHFUL_LINES
            shape.num_read += 1
            shape.last_read = number
            shape.progress_then = self._num_progress
            shape.says_fault = reading.names_fault
        if shape.has_numbers:
            for event in self._series.read(text):
                entry = self._catalogue.entries[event]
                # Most lines of most logs end here, so that this sign costs nothing.
                found.append(Found(entry).in_line(number, text if entry.names_fault else ""))
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

    def _reading_of(self, shape: Shape, line: bytes, text: str) -> LineReading:
        """Return what a line says: remembered, or read."""
        known = self._readings.get(line, digits_matter=shape.digits_matter)
        if known is None:
            known = self._read_anew(shape, line, text)
            self._readings.keep(line, known, digits_matter=shape.digits_matter)
        return known

    def _read_anew(self, shape: Shape, line: bytes, text: str) -> LineReading:
        body = body_of(text) if shape.needs_body else ""
        has_digits = _DIGIT.search(text) is not None
        found = [
            each
            for rule in shape.rules
            if (each := _match(rule, text, body, has_digits=has_digits))
        ]
        if shape.has_xid and (entry := self._catalogue.xids.read(text)):
            found.append(Found(entry))
        if not any(each.entry.names_fault for each in found):
            return LineReading(tuple(found), names_fault=False, is_suspicious=False)
        if shape.vetoes is None:
            shape.vetoes = _possible(self._catalogue.vetoes, texts_and_words(line))
            patterns = (p for veto in shape.vetoes for p in (*veto.patterns, *veto.unless))
            shape.digits_matter |= any(pattern.names_digits for pattern in patterns)
        body = body or body_of(text)
        settled = _settle(found, [veto.entry for veto in shape.vetoes if veto.search(text, body)])
        names_fault = any(each.entry.names_fault for each in settled)
        return LineReading(settled, names_fault, is_suspicious=True)


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


def _match(rule: Rule, text: str, body: str, *, has_digits: bool) -> Found | None:
    match = rule.search(text, body, has_digits=has_digits)
    if match is None:
        return None
    # An anchored pattern is matched against the body, which is the end of the text.
    offset = len(text) - len(match.string)
    names = match.groupdict()
    device = next((key for key, name in names.items() if key.startswith("device") and name), "")
    return Found(
        rule.entry,
        _span(match, device, offset) if device else NOWHERE,
        _span(match, "value", offset) if names.get("value") else NOWHERE,
    )


def _span(match: re.Match[str], group: str, offset: int) -> tuple[int, int]:
    start, end = match.span(group)
    return start + offset, end + offset


def _settle(found: list[Found], vetoes: list[Entry]) -> tuple[Found, ...]:
    """Drop what others in the same line take back or know better."""
    taken_back: set[Precedence] = set()
    for veto in vetoes:
        if veto.precedence is Precedence.SOFT:
            taken_back |= _SOFTENED
        else:
            taken_back.update(veto.vetoes or Precedence)
    # An exit code in the text of an exception is less than the exception.
    knows_better = any(
        each.entry.precedence.is_ranked
        and each.entry.precedence is not Precedence.EXIT
        and not each.entry.is_generic
        for each in found
    )
    return tuple(
        each
        for each in found
        if not (each.entry.names_fault and each.entry.precedence in taken_back)
        and not (each.entry.is_generic and knows_better)
    )
