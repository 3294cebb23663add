"""Literals of a regular expression: what every line that it matches is sure to hold.

Lines are screened by them before a pattern is tried. They are derived and not written down beside
the patterns, because a pattern whose literal somebody forgot would never match, and nobody would
notice.
"""

import functools
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

# The standard library's own parser of patterns. It has no public name, yet it is the only thing
# that reads patterns exactly as ``re`` does; the tests compare screened matches with plain ones.
_PARSER: Final[Any] = importlib.import_module("re._parser")

_COMMON: Final = frozenset(
    {
        "no", "of", "is", "to", "in", "on", "at", "or", "as", "by", "be", "we", "it", "an", "if", "off",
        "rank", "step", "loss", "error", "iter", "iteration", "iterations", "node", "nodes",
        "time", "timed", "state", "status", "level", "line", "file", "info", "process", "worker",
        "host", "torch", "grad", "norm", "code", "exit", "return", "out", "open", "get", "set",
        "use", "used", "user", "reg", "map", "log", "device", "kernel", "while", "back", "port",
        "train", "training", "tensor", "config", "default", "output", "input", "none", "group",
        "value", "number", "total", "count", "size", "data", "read", "write", "start", "started",
        "stop", "end", "new", "old", "first", "last", "next", "from", "with", "have", "been",
        "that", "this", "will", "not", "and", "for", "are", "was", "the", "its", "call",
        "called", "type", "name", "path", "memory", "model", "batch", "global", "local", "world",
        "load", "loaded", "save", "saved", "check", "failed", "fail", "warning", "message",
        "connection", "client", "server", "service", "thread", "task", "job", "run", "running",
        "done", "true", "false", "import", "module", "collective", "distributed", "backend",
        "init", "version", "key", "index", "shape", "list", "max", "min", "low", "high",
    }
)  # fmt: skip
"""Words that stand in so many lines that they screen nothing, nor do their beginnings."""
_COMMON_TEXT: Final = " ".join(sorted(_COMMON))
_EDGE: Final = "\b"
"""Stands in a literal where the pattern asks for the edge of a word."""

_NO_ROOM: Final = frozenset({"AT", "ASSERT", "ASSERT_NOT"})
"""Items that match nothing of their own, so that the literal around them continues."""

_DIGITS: Final = re.compile(r"\d+")
_LETTERS: Final = re.compile(r"[a-z]+")
_OPEN_CATEGORIES: Final = frozenset({"CATEGORY_SPACE", "CATEGORY_NOT_WORD"})
_Marked = frozenset[str]
"""Literals in which the edges of words are marked."""
RegexTree = Any
"""A pattern that is parsed; what it is made of is the standard library's own affair."""
_Argument = Any
"""What an operator of a parsed pattern holds: a number, a list or a tuple, as the parser likes."""
_END: Final[tuple[str, _Argument]] = ("", None)
"""Stands behind the last item of a sequence."""


@dataclass(frozen=True, slots=True)
class PatternPart:
    """The rarest word of a literal.

    Attributes:
        letters: The word, or the piece of one.
        is_whole: Whether it is a word of its own wherever the literal stands.
        worth: How much it screens; the more the rarer.
    """

    letters: str
    is_whole: bool
    worth: int


@dataclass(frozen=True, slots=True)
class Literal:
    """What a pattern needs, in lower case.

    Digits are left out, as they are of the lines that are screened.

    Attributes:
        text: The literal.
        part: Its rarest word.
        sought: The same, with a space where a word begins or ends if it is made of letters alone.
    """

    text: str
    part: PatternPart
    sought: str


def parsed(pattern: str) -> RegexTree:
    """Return ``pattern`` as the standard library reads it.

    Raises:
        re.error: It is no regular expression.
    """
    return _PARSER.parse(pattern)


def needs_of(tree: RegexTree) -> tuple[frozenset[Literal], ...]:
    """Return every set of literals of which a match holds at least one, the rarest set first."""
    found = {
        frozenset(_literal(marked) for marked in candidates)
        for candidates in _candidates(tree)
        if all(_part(marked).worth for marked in candidates)
    }
    return tuple(sorted(found, key=_order))


def needs_digit(tree: RegexTree) -> bool:
    """Return whether every match holds a digit."""
    return any(_holds_digit(name, argument) for name, argument in _flat(tree))


def _holds_digit(name: str, argument: _Argument) -> bool:
    if name == "LITERAL":
        return chr(argument).isdigit()
    if name == "IN":
        return all(_is_digits(kind.name, value) for kind, value in argument)
    if name in {"MAX_REPEAT", "MIN_REPEAT"}:
        return argument[0] >= 1 and needs_digit(argument[2])
    return name == "BRANCH" and all(needs_digit(branch) for branch in argument[1])


def _is_digits(kind: str, value: _Argument) -> bool:
    if kind == "RANGE":
        return chr(value[0]).isdigit() and chr(value[1]).isdigit()
    return (kind == "LITERAL" and chr(value).isdigit()) or str(value) == "CATEGORY_DIGIT"


def _literal(marked: str) -> Literal:
    text = marked.replace(_EDGE, "")
    sought = text
    if text.isascii() and text.isalpha():
        sought = " " * marked.startswith(_EDGE) + text + " " * marked.endswith(_EDGE)
    return Literal(text, _part(marked), sought)


def _order(literals: frozenset[Literal]) -> tuple[int, int, int, list[str], list[str]]:
    """Return what the rarest set is the least by; of equals the longest words, then the fewest.

    Of the same words those that ask for an edge come first: a space stands before all letters.
    """
    parts = [literal.part for literal in literals]
    worth, length = min(part.worth for part in parts), min(len(part.letters) for part in parts)
    sought = sorted(literal.sought for literal in literals)
    return -worth, -length, len(literals), sorted(literal.text for literal in literals), sought


@functools.cache
def _part(marked: str) -> PatternPart:
    """Return the rarest word of a literal, the first of equals."""
    parts = (
        _rated(marked[found.start() : found.end()], _has_edges(marked, found))
        for found in _LETTERS.finditer(marked)
    )
    return max(parts, key=lambda part: part.worth, default=PatternPart("", is_whole=False, worth=0))


def _has_edges(marked: str, found: re.Match[str]) -> bool:
    return found.start() > 0 and found.end() < len(marked)


def _rated(letters: str, is_whole: bool) -> PatternPart:
    is_common = letters in _COMMON or (not is_whole and letters in _COMMON_TEXT)
    worth = min(1, len(letters) - 1) if is_common else len(letters) - 1 + 2 * is_whole
    return PatternPart(letters, is_whole, worth)


def _candidates(items: Iterable[Any]) -> list[_Marked]:
    """Return sets of literals with their edges marked, one of each of which a match holds."""
    found: list[_Marked] = []
    run = ""
    sequence = [*_flat(items), _END]
    for (name, argument), follower in pairwise(sequence):
        if letter := _letter(name, argument):
            run += letter
            continue
        if name in _NO_ROOM:
            continue
        edge = _EDGE if _is_open(name, argument) else ""
        run += edge
        if name == "BRANCH":
            # The parser pulls common beginnings out of branches; "time(out|d out)" is put together.
            closing = _EDGE if _letter(*follower) == _EDGE or _is_open(*follower) else ""
            ends = [_beginning(branch, closing) for branch in argument[1]]
            found += [frozenset({_word(run + end) for end in ends})] if run else []
        found += [frozenset({_word(run)})]
        found += _inside(name, argument)
        run = edge
    found.append(frozenset({_word(run)}))
    return [literals for literals in found if all(literals)]


def _flat(items: Iterable[Any]) -> Iterator[tuple[str, _Argument]]:
    """Yield items by name, those of groups in their place: a group is only a part of a sequence."""
    for operator, argument in items:
        if operator.name == "SUBPATTERN":
            yield from _flat(argument[3])
        else:
            yield operator.name, argument


def _beginning(items: Iterable[Any], closing: str) -> str:
    """Return the first literal of a sequence, with ``closing`` if the sequence has no more."""
    run = ""
    for name, argument in _flat(items):
        letter = _letter(name, argument)
        if not letter and name not in _NO_ROOM:
            return run
        run += letter
    return run + closing


def _letter(name: str, argument: _Argument) -> str:
    """Return the letter or edge that an item stands for, or nothing if it is not a single one."""
    if name == "AT" and str(argument) == "AT_BOUNDARY":
        return _EDGE
    if name == "LITERAL":
        return chr(argument).lower()
    if name == "IN" and all(str(kind) == "LITERAL" for kind, _ in argument):
        letters = {chr(code).lower() for _, code in argument}
        return letters.pop() if len(letters) == 1 else ""
    return ""


def _is_open(name: str, argument: _Argument) -> bool:
    """Return whether an item matches something, and nothing that belongs to a word."""
    if name in {"MAX_REPEAT", "MIN_REPEAT"} and argument[0] >= 1 and len(argument[2]) == 1:
        inner, argument = argument[2][0]
        name = str(inner)
    return name == "IN" and all(
        str(argument) in _OPEN_CATEGORIES
        if str(kind) == "CATEGORY"
        else str(kind) == "LITERAL" and not chr(argument).isalnum()
        for kind, argument in argument
    )


def _inside(name: str, argument: _Argument) -> list[_Marked]:
    if name in {"MAX_REPEAT", "MIN_REPEAT"} and argument[0] >= 1:
        return _candidates(argument[2])
    if name == "BRANCH":
        branches = [_best(_candidates(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []


def _word(run: str) -> str:
    return _DIGITS.sub("", run)


def _best(candidates: list[_Marked]) -> _Marked:
    usable = [literals for literals in candidates if all(_part(m).worth for m in literals)]
    return max(usable, key=_rarity, default=frozenset())


def _rarity(literals: _Marked) -> tuple[int, int]:
    parts = [_part(marked) for marked in literals]
    return min(part.worth for part in parts), min(len(part.letters) for part in parts)
