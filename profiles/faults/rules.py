"""Entries made ready for matching: compiled patterns, each with the literals that it needs."""

import re
from dataclasses import dataclass
from typing import Final

from profiles.faults.entry import Entry
from profiles.faults.literals import Literal, needs_of

_ANY_DIGITS: Final = re.compile(r"\{\d+(?:,\d*)?\}|\\d|\[0-9[a-fA-F-]*\]|(?<!\\)[A-Za-z_]\d")
"""What a pattern says about numbers without asking for certain ones; names with a digit too."""
_CERTAIN_DIGITS: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """One way to say what an entry is about.

    Attributes:
        expression: The compiled pattern.
        literals: The rarest of which every match holds one; empty if there are none.
        needs: Sets of lower-case texts, of each of which every match holds one; the rarest first.
        is_anchored: Whether it is matched behind the prefixes of the line.
        has_certain_digits: Whether it asks for certain digits, so that lines which differ in their numbers
            alone may differ in what it finds.
    """

    expression: re.Pattern[str]
    literals: frozenset[Literal]
    needs: tuple[frozenset[str], ...]
    is_anchored: bool
    has_certain_digits: bool

    def can_match(self, lowered: str) -> bool:
        """Whether a line could match which is ``lowered`` without its digits."""
        for literals in self.needs:
            for literal in literals:
                if literal in lowered:
                    break
            else:
                return False
        return True

    def search(self, text: str, body: str) -> re.Match[str] | None:
        """Return the match in the line's ``text``, or in its ``body`` if it is anchored."""
        return self.expression.search(body if self.is_anchored else text)


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry with its patterns, or with those that are worth trying on a line."""

    entry: Entry
    patterns: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]

    def search(self, text: str, body: str) -> re.Match[str] | None:
        """Return what speaks for the entry in a line, or None.

        Args:
            text: The whole line.
            body: What it says behind its prefixes.
        """
        for pattern in self.patterns:
            if found := pattern.search(text, body):
                return None if any(unless.search(text, body) for unless in self.unless) else found
        return None


def compile_rule(entry: Entry) -> Rule:
    """Compile the patterns of ``entry``. Takes milliseconds for an entry with many."""
    flags = 0 if entry.is_case_sensitive else re.IGNORECASE
    return Rule(
        entry,
        tuple(_compile(pattern, flags) for pattern in entry.patterns),
        tuple(_compile(pattern, re.IGNORECASE) for pattern in entry.unless),
    )


def _compile(pattern: str, flags: int) -> Pattern:
    needs = needs_of(pattern)
    return Pattern(
        re.compile(pattern, flags),
        needs[0] if needs else frozenset(),
        tuple(frozenset(literal.text for literal in literals) for literals in needs),
        pattern.startswith("^"),
        bool(_CERTAIN_DIGITS.search(_ANY_DIGITS.sub("", pattern))),
    )
