"""The mistakes that pydantic finds in a TOML file, each as a place and one line of plain words."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
"""The keys that lead to a place in a document; entries of arrays are counted from 0."""

_UNKNOWN_KEY: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_MISSING_KEY: Final = frozenset({"missing", "missing_argument"})
_MAX_SHOWN: Final = 60
"""Longest value that an error repeats, characters."""


@dataclass(frozen=True, slots=True)
class KeyMistake:
    """One mistake.

    Attributes:
        location: Where it is.
        text: One line: the key, its value, and what is allowed.
    """

    location: Location
    text: str


def key_mistakes(
    error: ValidationError, known_by_parent: Mapping[str, Collection[str]]
) -> list[KeyMistake]:
    """Return all mistakes, unknown keys first.

    A misspelt key is also missing under its right name. Only the misspelling is returned.

    Args:
        error: What pydantic found.
        known_by_parent: The keys that a table may have, by the table's own key; "" is the
            outermost table.
    """
    errors = error.errors(include_url=False)
    unknown = [each for each in errors if each["type"] in _UNKNOWN_KEY]
    meant = {
        (*each["loc"][:-1], *nearest(str(each["loc"][-1]), _known(each["loc"], known_by_parent)))
        for each in unknown
    }
    mistakes = [
        KeyMistake(each["loc"], _unknown_key(each["loc"], known_by_parent)) for each in unknown
    ]
    for each in errors:
        if each["type"] in _MISSING_KEY and each["loc"] not in meant:
            mistakes.append(KeyMistake(each["loc"], f"{place_of(each['loc'])} is missing"))
        elif each["type"] not in _UNKNOWN_KEY | _MISSING_KEY:
            mistakes.append(KeyMistake(each["loc"], _wrong_value(each)))
    return mistakes


def place_of(location: Location) -> str:
    """Write a place as in the file, entries of arrays counted from 1."""
    text = ""
    for part in location:
        text += f" {part + 1}" if isinstance(part, int) else f".{part}" if text else part
    return text


def shorten(text: str) -> str:
    """Return a text that an error may repeat."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known name that is most like ``name``, or none."""
    return get_close_matches(name, list(known), n=1)


def which_is_known(name: str, known: Collection[str]) -> str:
    """Return the words that follow on an unknown name: the nearest known one, or all."""
    found = nearest(name, known)
    return f"did you mean {found[0]!r}?" if found else f"known: {', '.join(sorted(known))}"


def _known(location: Location, known_by_parent: Mapping[str, Collection[str]]) -> Collection[str]:
    parents = [part for part in location[:-1] if isinstance(part, str)]
    return known_by_parent[parents[-1] if parents else ""]


def _unknown_key(location: Location, known_by_parent: Mapping[str, Collection[str]]) -> str:
    words = which_is_known(str(location[-1]), _known(location, known_by_parent))
    return f"unknown key {shorten(place_of(location))}; {words}"


def words_of(mistake: ErrorDetails) -> str:
    """Return what is wrong with a value, in words that follow on the value or its place."""
    match mistake["type"]:
        case "model_type" | "model_attributes_type" | "dict_type":
            return "must be an object, of keys and values"
        case "string_unicode":
            return "must be text: half of a surrogate pair is none"
        case "too_short" | "string_too_short":
            return f"must have {mistake['ctx']['min_length']} or more in it"
        case "value_error":
            return mistake["msg"].removeprefix("Value error, ")
        case _ if isinstance(mistake["input"], float) and not math.isfinite(mistake["input"]):
            return "must be a finite number"
    words = mistake["msg"].replace("Input should", "must", 1)
    return words.replace("Unable to", "unable to", 1)


def _wrong_value(mistake: ErrorDetails) -> str:
    place, value = place_of(mistake["loc"]), mistake["input"]
    words = words_of(mistake)
    if place and isinstance(value, str | int | float):
        place += f" = {shorten(repr(value))}"
    return f"{place}: {words}" if place else words
