"""Entries made ready for matching: compiled patterns, each with the literals that it needs."""

import re
from dataclasses import dataclass

from profiles.faults.entry import Entry
from profiles.faults.literals import literals_of


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to say what an entry is about.

    Attributes:
        expression: The compiled pattern.
        literals: Lower-case literals of which every match holds one; empty if there are none.
        is_anchored: Whether it is matched behind the prefixes of the line.
    """

    expression: re.Pattern[str]
    literals: frozenset[str]
    is_anchored: bool

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
    literals = literals_of(pattern)
    return Pattern(re.compile(pattern, flags), literals, pattern.startswith("^"))
