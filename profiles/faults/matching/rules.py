"""Entries made ready for matching: patterns, each with the literals that it needs."""

import re
from dataclasses import dataclass
from typing import Final

from profiles.faults.entry import Entry
from profiles.faults.matching.literals import Literal, needs_digit, needs_of, parsed

_ANY_DIGITS: Final = re.compile(r"\{\d+(?:,\d*)?\}|\\d|\[0-9[a-fA-F-]*\]|(?<!\\)[A-Za-z_]\d")
"""What a pattern says about numbers without asking for certain ones; names with a digit too."""
_NO_DIGITS: Final = re.compile(r"\{\d+(?:,\d*)?\}|\\d|\[0-9[a-fA-F-]*\]")
"""The same, without the names."""
_CERTAIN_DIGITS: Final = re.compile(r"\d")
_LOOK_BEHIND: Final = "(?<"


class Pattern:
    """One regular expression of an entry, compiled when it is first tried: most never are.

    Attributes:
        literals: The rarest set of literals: every match holds one of them; empty if there are
            none.
        needs: Sets of lower-case texts, the rarest first: every match holds one text of each set. A
            space stands where a word begins or ends.
        is_anchored: Whether it is matched behind the prefixes of the line.
        has_certain_digits: Whether it asks for certain digits. It may then find different things
            in lines that differ in their numbers only.
        names_digits: The same, for digits in names too.
        needs_digit: Whether every match holds a digit.
    """

    __slots__ = (
        "_compiled",
        "_flags",
        "_source",
        "has_certain_digits",
        "is_anchored",
        "literals",
        "names_digits",
        "needs",
        "needs_digit",
    )

    def __init__(self, source: str, flags: int, *, is_screened: bool = True) -> None:
        """Read ``source``.

        Args:
            source: The regular expression.
            flags: Those of ``re``.
            is_screened: Whether its literals are asked for.

        Raises:
            re.error: It is no regular expression.
        """
        tree = parsed(source)
        needs = needs_of(tree) if is_screened else ()
        self.literals: frozenset[Literal] = needs[0] if needs else frozenset()
        self.needs = tuple(frozenset(literal.sought for literal in literals) for literals in needs)
        self.is_anchored = source.startswith("^")
        self.has_certain_digits = bool(_CERTAIN_DIGITS.search(_ANY_DIGITS.sub("", source)))
        self.names_digits = bool(_CERTAIN_DIGITS.search(_NO_DIGITS.sub("", source)))
        self.needs_digit = needs_digit(tree)
        self._source = source
        self._flags = flags
        self._compiled: re.Pattern[str] | None = None
        if _LOOK_BEHIND in source:
            # The one mistake that parsing does not find is a look behind of no certain width.
            self._compiled = re.compile(source, flags)

    @property
    def expression(self) -> re.Pattern[str]:
        """The compiled pattern."""
        if self._compiled is None:
            self._compiled = re.compile(self._source, self._flags)
        return self._compiled

    def can_match(self, lowered: str) -> bool:
        """Whether a line with these texts and words (of ``texts_and_words``) could match."""
        for literals in self.needs:
            for literal in literals:
                if literal in lowered:
                    break
            else:
                return False
        return True

    def search(self, text: str, body: str) -> re.Match[str] | None:
        """Return the match in the line's ``text``, or in its ``body`` if it is anchored."""
        expression = self._compiled or self.expression
        return expression.match(body) if self.is_anchored else expression.search(text)


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry with its patterns, or with those that are worth trying on a line."""

    entry: Entry
    patterns: tuple[Pattern, ...]
    unless: tuple[Pattern, ...]

    def search(self, text: str, body: str, *, has_digits: bool = True) -> re.Match[str] | None:
        """Return the match of the entry in a line, or None.

        Args:
            text: The whole line.
            body: What it says behind its prefixes.
            has_digits: Whether there is a digit in it.
        """
        for pattern in self.patterns:
            if pattern.needs_digit and not has_digits:
                continue
            if found := pattern.search(text, body):
                return None if any(unless.search(text, body) for unless in self.unless) else found
        return None


def rule_of(entry: Entry) -> Rule:
    """Return ``entry`` ready for matching.

    Raises:
        ValueError: One of its patterns is no regular expression; the text says which, and why.
    """
    flags = 0 if entry.is_case_sensitive else re.IGNORECASE
    return Rule(
        entry,
        tuple(_pattern(source, flags) for source in entry.patterns),
        tuple(_pattern(source, re.IGNORECASE, is_screened=False) for source in entry.unless),
    )


def _pattern(source: str, flags: int, *, is_screened: bool = True) -> Pattern:
    try:
        return Pattern(source, flags, is_screened=is_screened)
    except re.error as error:
        raise ValueError(f"{source!r} is no regular expression: {error}") from error
