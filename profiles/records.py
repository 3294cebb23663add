"""JSON read strictly: every mistake is one line that names file, place and mend."""

import json
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from profiles.json_faults import first_fault

_MAX_SHOWN: Final = 80
_MAX_PLACE: Final = 200


class RecordError(Exception):
    """A file or a name can't be used. The text is one line and names place and mend."""

    def __init__(self, text: str) -> None:
        super().__init__(on_one_line(text))


def on_one_line(text: str) -> str:
    """Return a text with characters that can't be printed, such as ends of lines, written as escapes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class Record(BaseModel):
    """Base of what is read: no unknown key, and no text for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_R = TypeVar("_R", bound=Record)


def read_text(path: Path) -> str:
    """Return what a user's file says.

    Raises:
        RecordError: It can't be read, or is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{path}: {(error.strerror or 'unreadable').lower()}") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from error


def parse_record(kind: type[_R], text: str, place: str) -> _R:
    """Return the record that a JSON object stands for.

    Raises:
        RecordError: The text is no JSON object, or something in it is wrong.
    """
    document = parse_json(text, place)
    if not isinstance(document, dict):
        raise RecordError(f"{place}: must be a JSON object")
    return validated(kind, document, place)


def parse_json(text: str, place: str) -> Any:  # noqa: ANN401 - whatever the text says
    """Return what a JSON text stands for; no key twice in one object, and finite numbers only.

    Raises:
        RecordError: It is not such a text.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_without_repetition, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        reason = "is empty" if not text.strip() else f"not valid JSON: {error}"
        raise RecordError(f"{place}: {reason}") from error
    except RecursionError as error:
        raise RecordError(f"{place}: objects or lists in it are nested too deep") from error
    except ValueError as error:
        raise RecordError(f"{place}: {first_fault(text) or error}") from error


def validated(kind: type[_R], document: dict[str, Any], place: str) -> _R:
    """Return the record that a document stands for, of whatever format it was.

    Raises:
        RecordError: Something in it is wrong.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise RecordError(f"{place}: {_first_mistake(error, kind)}") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key!r} is given twice in one object")
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number: give a finite one")


def _first_mistake(error: ValidationError, kind: type[Record]) -> str:
    # A misspelt key is also missing under its right name: the misspelling is the mistake.
    mistakes = error.errors(include_url=False)
    first = min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")
    place = ".".join(str(part) for part in first["loc"] if part != "[key]")[:_MAX_PLACE]
    if first["type"] == "extra_forbidden":
        return f"{place}: unknown key; known: {', '.join(kind.model_fields)}"
    if first["type"] == "missing":
        return f"{place}: is missing"
    words = _in_plain_words(first)
    if not place:
        return words
    return f"{place}: {first['input']!r:.{_MAX_SHOWN}} {words}"


def _in_plain_words(mistake: ErrorDetails) -> str:
    if mistake["type"] in {"model_type", "dict_type"}:
        return "must be an object, of keys and values"
    if mistake["type"] == "string_unicode":
        return "must be text: half of a surrogate pair is none"
    if mistake["type"] == "too_short":
        return f"must have {mistake['ctx']['min_length']} or more in it"
    words = mistake["msg"].lower().removeprefix("value error, ")
    return words.replace("input should be", "must be")
