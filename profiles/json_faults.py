"""Where a JSON text has what Python's parser takes or refuses without a place.

These are keys that are given twice in one object, NaN and the infinities, and numbers of more
digits than Python converts. The text is read once more for this, token by token, and only after
something was refused.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CONSTANTS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_MAX_SHOWN: Final = 80


@dataclass(slots=True)
class _Level:
    """An object or a list that is open, and where in it the reader is."""

    is_object: bool
    awaits_key: bool
    at: str | int = 0
    keys: set[str] = field(default_factory=set)


def first_fault(text: str) -> str | None:
    """Return line, place and kind of the first such fault, or None.

    The line is left out where there is only one.

    Args:
        text: JSON, well-formed up to the fault at least.
    """
    for position, place, words in _faults(text):
        line = text.count("\n", 0, position) + 1
        parts = [f"line {line}"] if "\n" in text.strip() else []
        parts += [f"{place:.{_MAX_SHOWN}}"] if place else []
        return ": ".join([*parts, words])
    return None


def digits_fault(text: str) -> str | None:
    """Return the line of the first number of more digits than Python converts, or None."""
    limit = sys.get_int_max_str_digits()
    found = re.search(rf"[0-9_]{{{limit + 1},}}", text) if limit else None
    if found is None:
        return None
    return f"line {text.count(chr(10), 0, found.start()) + 1}: {_too_long(found.group())}"


def _faults(text: str) -> Iterator[tuple[int, str, str]]:
    opened: list[_Level] = []
    for token in _TOKEN.finditer(text):
        word = token.group()
        level = opened[-1] if opened else None
        if word in "{[":
            opened.append(_Level(is_object=word == "{", awaits_key=word == "{"))
        elif level is not None and word in "}]":
            opened.pop()
        elif level is not None and word == ",":
            _go_on(level)
        elif level is not None and level.awaits_key:
            key = str(json.loads(word, strict=False))
            if key in level.keys:
                words = f"key {key!r:.{_MAX_SHOWN}} is given twice in one object"
                yield token.start(), _path(opened[:-1]), words
            level.keys.add(key)
            level.at, level.awaits_key = key, False
        elif words := _fault_of(word):
            yield token.start(), _path(opened), words


def _go_on(level: _Level) -> None:
    if isinstance(level.at, int):
        level.at += 1
    level.awaits_key = level.is_object


def _path(opened: list[_Level]) -> str:
    return ".".join(str(level.at) for level in opened)


def _fault_of(word: str) -> str:
    if word in _CONSTANTS:
        return f"{word} is no number: give a finite one"
    limit = sys.get_int_max_str_digits()
    digits = word.removeprefix("-")
    return _too_long(digits) if limit and digits.isdecimal() and len(digits) > limit else ""


def _too_long(digits: str) -> str:
    return f"a number of {len(digits)} digits is too large"
