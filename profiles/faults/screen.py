"""The screen: which rules are worth trying on a line, from the words it holds.

Every pattern needs certain literals, and every literal has a longest word. Lines of a log may never
repeat, but the words they are made of do. So the screen remembers of each word what literals it can
be a part of; of most words that is none, and a line of such words is done with one set operation.
Words that are new are searched once, by one expression in the shape of a prefix tree: at every
place only one branch can go on, so the time does not depend on how many literals there are.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from profiles.faults.rules import Pattern, Rule

_END: Final = ""
_NO_TEXT: Final = bytes([*b"0123456789", *range(128, 256)])
"""Bytes that say nothing: numbers, and the blocks of progress bars."""
_LOWER: Final = bytes(range(256)).lower()
_LETTERS: Final = bytes(
    byte if byte in b"abcdefghijklmnopqrstuvwxyz" else ord(" ") for byte in _LOWER
)
_DIGITS: Final = b"0123456789"
_HEX: Final = b"abcdefx"
_MAX_HEX: Final = 4
"""Longer words of these letters are what is left of a hash or an address."""
_BEGINNING: Final = 3
_MAX_WORD: Final = 64
_MAX_WORDS: Final = 16_384


def shape_of(line: bytes) -> bytes:
    """Return ``line`` without numbers: lines that differ in numbers alone have one shape."""
    return line.translate(None, _NO_TEXT)


def words_of(line: bytes) -> list[bytes]:
    """Return the words of ``line``: lower-case letters, as if its digits were not there."""
    return line.translate(_LETTERS, _DIGITS).split()


class Screen:
    """Finds the rules that a line could match.

    What it remembers are words, at most some ten thousand; they may come from many logs.
    """

    def __init__(self, rules: Sequence[Rule], *, watchwords: Iterable[str] = ()) -> None:
        """Index ``rules``. Takes some milliseconds.

        Args:
            rules: Those to choose from.
            watchwords: Lower-case words whose lines are of interest without any rule.
        """
        self._rules = rules
        self._always: list[tuple[int, Pattern]] = []
        self._patterns_by_text: dict[str, list[tuple[int, Pattern]]] = defaultdict(list)
        self._texts_by_part: dict[str, set[str]] = defaultdict(set)
        self._texts_by_whole: dict[str, set[str]] = defaultdict(set)
        for number, rule in enumerate(rules):
            for pattern in rule.patterns:
                for literal in pattern.literals:
                    self._patterns_by_text[literal.text].append((number, pattern))
                    index = self._texts_by_whole if literal.part.is_whole else self._texts_by_part
                    index[literal.part.letters].add(literal.text)
                if not pattern.literals:
                    self._always.append((number, pattern))
        for watchword in watchwords:
            self._texts_by_part.setdefault(watchword, set())
        parts = list(self._texts_by_part)
        self._shorter = {part: [p for p in parts if part.startswith(p)] for part in parts}
        # A look-ahead, because parts may overlap; of those that begin at one place it finds the
        # longest, and the shorter ones are its beginnings.
        self._search = re.compile(f"(?=({_expression(_tree(parts))}))") if parts else None
        # Most words hold no three letters that a part begins with, and this is told ten times faster.
        self._beginnings = {tuple(part[:_BEGINNING].encode()) for part in parts}
        self._can_sift = all(len(part) >= _BEGINNING for part in parts)
        self._idle: set[bytes] = set()
        self._texts_by_word: dict[bytes, frozenset[str]] = {}

    def is_idle(self, line: bytes) -> bool:
        """Whether ``line`` is made of words that no rule cares for."""
        words = words_of(line)
        return self._idle.issuperset(words) or all(
            word in self._idle or self._texts_of(word) is None for word in words
        )

    def rules_for(self, line: bytes) -> tuple[Rule, ...]:
        """Return the rules worth trying, each with those of its patterns that are."""
        held = self._texts_in(words_of(line))
        if not held and not self._always:
            return ()
        text = lowered(line)
        chosen: dict[int, set[Pattern]] = defaultdict(set)
        for number, pattern in self._always:
            chosen[number].add(pattern)
        for literal in held:
            if literal in text:
                for number, pattern in self._patterns_by_text[literal]:
                    if pattern.can_match(text):
                        chosen[number].add(pattern)
        # In the order of the catalogue: of the patterns of a rule the first that matches counts.
        return tuple(
            Rule(rule.entry, tuple(p for p in rule.patterns if p in chosen[number]), rule.unless)
            for number in sorted(chosen)
            for rule in (self._rules[number],)
        )

    def _texts_in(self, words: Iterable[bytes]) -> set[str]:
        """Return the literals of which a line of ``words`` may hold some."""
        held: set[str] = set()
        for word in set(words).difference(self._idle):
            held |= self._texts_of(word) or set()
        return held

    def _texts_of(self, word: bytes) -> frozenset[str] | None:
        """Return the literals that ``word`` may be a part of, None if nothing cares for it."""
        texts = self._texts_by_word.get(word)
        return self._learn(word) if texts is None else texts

    def _learn(self, word: bytes) -> frozenset[str] | None:
        parts = self._parts_of(word)
        whole = self._texts_by_whole.get(word.decode("ascii"), set())
        texts = frozenset().union(whole, *(self._texts_by_part[part] for part in parts))
        is_idle = not (parts or whole)
        if len(word) > _MAX_WORD or (len(word) > _MAX_HEX and not word.strip(_HEX)):
            return None if is_idle else texts  # There is no end to such words.
        if len(self._idle) + len(self._texts_by_word) >= _MAX_WORDS:
            self._idle.clear()
            self._texts_by_word.clear()
        if is_idle:
            self._idle.add(word)
            return None
        self._texts_by_word[word] = texts
        return texts

    def _parts_of(self, word: bytes) -> set[str]:
        if self._search is None:
            return set()
        if self._can_sift and self._beginnings.isdisjoint(
            zip(word, word[1:], word[2:], strict=False)
        ):
            return set()
        longest = {found[1] for found in self._search.finditer(word.decode("ascii"))}
        return {part for found in longest for part in self._shorter[found]}


def lowered(line: bytes) -> str:
    """Return ``line`` in lower case and without its numbers."""
    return line.translate(_LOWER, _NO_TEXT).decode("ascii")


_Tree = Mapping[str, "_Tree"]


def _tree(words: Iterable[str]) -> _Tree:
    root: dict[str, dict[str, object]] = {}
    for word in words:
        branch: dict[str, dict[str, object]] = root
        for letter in word:
            branch = branch.setdefault(letter, {})  # type: ignore[assignment]
        branch[_END] = {}
    return root  # type: ignore[return-value]


def _expression(tree: _Tree) -> str:
    branches = [
        f"{re.escape(letter)}{_expression(branch)}" for letter, branch in tree.items() if letter
    ]
    if not branches:
        return ""
    choice = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{choice})?" if _END in tree else choice
