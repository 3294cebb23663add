"""The screen: which rules are worth trying on a line, from the words it holds.

Every pattern needs certain literals, and every literal has a longest word. Lines of a log may never
repeat, but the words they are made of do. So the screen remembers of each word what literals it can
be a part of; of most words that is none, and a line of such words is done with one set operation.
Of the words that are left it remembers what they can hold together: lines that never repeat do
repeat those. Words that are new are searched once, by the beginnings of what is looked for, so the
time does not depend on how many literals there are.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import filterfalse
from typing import Final

from profiles.faults.matching.rules import Pattern, Rule

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
_MAX_TOGETHER: Final = 8
"""How many words are remembered together: more of them do not come together again."""
_NOTHING: Final[frozenset[str]] = frozenset()


def shape_of(line: bytes) -> bytes:
    """Return ``line`` without numbers: lines that differ in numbers alone have one shape."""
    return line.translate(None, _NO_TEXT)


class LiteralScreen:
    """Finds the rules that a line could match.

    What it remembers are words, at most some ten thousand; they may come from many logs.
    """

    def __init__(self, rules: Sequence[Rule], *, watchwords: Collection[str] = ()) -> None:
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
            self._texts_by_part[watchword].add(watchword)
        self._silent = frozenset(watchwords).difference(self._patterns_by_text)
        # Most words hold no three letters that a part begins with, and this is quickly checked.
        self._beginning = min((_BEGINNING, *map(len, self._texts_by_part)))
        self._parts_by_beginning: dict[str, list[str]] = defaultdict(list)
        for part in self._texts_by_part:
            self._parts_by_beginning[part[: self._beginning]].append(part)
        self._idle: set[bytes] = set()
        self._is_idle = self._idle.__contains__
        self._texts_by_word: dict[bytes, frozenset[str]] = {}
        self._texts_by_words: dict[frozenset[bytes], frozenset[str]] = {}

    def texts_in(self, line: bytes) -> frozenset[str]:
        """Return the literals and watchwords that ``line`` may hold, by its words.

        Words are lower-case letters, as if the line's digits were not there. Of a line of words
        that no rule cares for there are none.
        """
        words = frozenset(filterfalse(self._is_idle, line.translate(_LETTERS, _DIGITS).split()))
        if not words:
            return _NOTHING
        texts = self._texts_by_words.get(words)
        return self._texts_of_all(words) if texts is None else texts

    def rules_with(self, texts: frozenset[str], line: bytes) -> tuple[Rule, ...]:
        """Return the rules worth trying on ``line``, each with those of its patterns that are.

        Args:
            texts: What the line may hold, by ``texts_in``.
            line: The line.
        """
        if texts <= self._silent and not self._always:
            return ()
        text = lowered(line)
        held = [literal for literal in texts if literal in text]
        if not held and not self._always:
            return ()
        text = texts_and_words(line)
        chosen: dict[int, set[Pattern]] = {}
        for number, pattern in self._always:
            chosen.setdefault(number, set()).add(pattern)
        for literal in held:
            for number, pattern in self._patterns_by_text.get(literal, ()):
                if pattern.can_match(text):
                    chosen.setdefault(number, set()).add(pattern)
        if not chosen:
            return ()
        # In the order of the catalogue: of the patterns of a rule the first that matches counts.
        return tuple(
            Rule(rule.entry, tuple(p for p in rule.patterns if p in chosen[number]), rule.unless)
            for number in sorted(chosen)
            for rule in (self._rules[number],)
        )

    def _texts_of_all(self, words: Iterable[bytes]) -> frozenset[str]:
        """Return the literals of which a line of ``words`` may hold some, and remember them."""
        speaking = [(word, texts) for word in words if (texts := self._texts_of(word))]
        if not speaking:
            return _NOTHING
        if len(speaking) > _MAX_TOGETHER:
            return _NOTHING.union(*(texts for _, texts in speaking))
        key = frozenset(word for word, _ in speaking)
        found = self._texts_by_words.get(key)
        if found is None:
            found = _NOTHING.union(*(texts for _, texts in speaking))
            if len(self._texts_by_words) >= _MAX_WORDS:
                self._texts_by_words.clear()
            self._texts_by_words[key] = found
        return found

    def _texts_of(self, word: bytes) -> frozenset[str]:
        """Return the literals that ``word`` may be a part of; none if nothing cares for it."""
        texts = self._texts_by_word.get(word)
        return self._learn(word) if texts is None else texts

    def _learn(self, word: bytes) -> frozenset[str]:
        letters = word.decode("ascii")
        texts = _NOTHING.union(
            self._texts_by_whole.get(letters, ()),
            *(self._texts_by_part[part] for part in self._parts_of(letters)),
        )
        if len(word) > _MAX_WORD or (len(word) > _MAX_HEX and not word.strip(_HEX)):
            return texts  # There is no end to such words.
        if len(self._idle) + len(self._texts_by_word) >= _MAX_WORDS:
            self._idle.clear()
            self._texts_by_word.clear()
        if texts:
            self._texts_by_word[word] = texts
        else:
            self._idle.add(word)
        return texts

    def _parts_of(self, word: str) -> list[str]:
        """Return the parts that ``word`` holds; some may come twice."""
        length = self._beginning
        return [
            part
            for start in range(len(word) - length + 1)
            for part in self._parts_by_beginning.get(word[start : start + length], ())
            if word.startswith(part, start)
        ]


def lowered(line: bytes) -> str:
    """Return ``line`` in lower case and without its numbers."""
    return line.translate(_LOWER, _NO_TEXT).decode("ascii")


def texts_and_words(line: bytes) -> str:
    """Return ``line`` in lower case without numbers, and again with spaces for all but letters."""
    words = line.translate(_LETTERS, _DIGITS).decode("ascii")
    return f"{lowered(line)}\n {words} "
