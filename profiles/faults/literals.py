"""Literals of a regular expression: what every line that it matches is sure to hold.

Lines are screened by them before a pattern is tried. They are derived and not written down beside
the patterns, because a pattern whose literal somebody forgot would never match, and nobody would
notice.
"""

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

# The standard library's own parser of patterns. It has no public name, yet it is the only thing
# that reads patterns exactly as ``re`` does; the tests compare screened matches with plain ones.
_PARSER: Final[Any] = importlib.import_module("re._parser")

_COMMON: Final = frozenset(
    {
        "rank", "step", "loss", "error", "iter", "iteration", "node", "time", "state", "level",
        "line", "file", "info", "process", "worker", "host", "torch", "grad", "norm",
    }
)  # fmt: skip
"""Words that stand in so many lines that they screen nothing."""

_NO_ROOM: Final = frozenset({"AT", "ASSERT", "ASSERT_NOT"})
"""Items that match nothing of their own, so that the literal around them goes on."""

_DIGITS: Final = re.compile(r"\d+")
_Literals = frozenset[str]
_Argument = Any
"""What an operator of a parsed pattern holds: a number, a list or a tuple, as the parser likes."""


def literals_of(pattern: str) -> frozenset[str]:
    """Return lower-case literals of which every match of ``pattern`` holds at least one.

    They hold no digits: a literal with digits inside counts with them left out, as the lines do
    that are screened. Empty if there is no such literal, so that nothing can be screened out.
    """
    return _best(_candidates(_PARSER.parse(pattern)))


def _candidates(items: Iterable[Any]) -> list[_Literals]:
    """Return sets of literals, one literal of each of which a match holds."""
    found: list[_Literals] = []
    run = ""
    for name, argument in _flat(items):
        if letter := _letter(name, argument):
            run += letter
            continue
        if name in _NO_ROOM:
            continue
        if name == "BRANCH":
            # The parser pulls common beginnings out of branches; "time(out|d out)" is put together.
            ends = [_beginning(branch) for branch in argument[1]]
            found += [frozenset(_word(run + end) for end in ends)] if run else []
        found += [frozenset({_word(run)})]
        found += _inside(name, argument)
        run = ""
    found.append(frozenset({_word(run)}))
    return [literals for literals in found if all(word.strip() for word in literals)]


def _flat(items: Iterable[Any]) -> Iterator[tuple[str, _Argument]]:
    """Yield items by name, those of groups in their place: a group is only a part of a sequence."""
    for operator, argument in items:
        if str(operator) == "SUBPATTERN":
            yield from _flat(argument[3])
        else:
            yield str(operator), argument


def _beginning(items: Iterable[Any]) -> str:
    """Return the literal that a sequence begins with."""
    run = ""
    for name, argument in _flat(items):
        letter = _letter(name, argument)
        if not letter and name not in _NO_ROOM:
            break
        run += letter
    return run


def _letter(name: str, argument: _Argument) -> str:
    """Return the letter that an item stands for, or nothing if it is not a single one."""
    if name == "LITERAL":
        return chr(argument).lower()
    if name == "IN" and all(str(kind) == "LITERAL" for kind, _ in argument):
        letters = {chr(code).lower() for _, code in argument}
        return letters.pop() if len(letters) == 1 else ""
    return ""


def _inside(name: str, argument: _Argument) -> list[_Literals]:
    if name in {"MAX_REPEAT", "MIN_REPEAT"} and argument[0] >= 1:
        return _candidates(argument[2])
    if name == "BRANCH":
        branches = [_best(_candidates(branch)) for branch in argument[1]]
        return [frozenset().union(*branches)] if all(branches) else []
    return []


def _word(run: str) -> str:
    return _DIGITS.sub("", run)


def _best(candidates: list[_Literals]) -> _Literals:
    return max(candidates, key=_worth, default=frozenset())


def _worth(literals: _Literals) -> int:
    return min(1 if word.strip(" =:_") in _COMMON else len(word) for word in literals)
