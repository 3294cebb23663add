"""JSON read strictly: every mistake is one line that names file, place and mend."""

import json
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

_MAX_SHOWN: Final = 80


class RecordError(Exception):
    """A file or a name can't be used. The text is one line and names place and mend."""


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
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place}: {error}") from error


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
    place = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "extra_forbidden":
        return f"{place}: unknown key; known: {', '.join(kind.model_fields)}"
    if first["type"] == "missing":
        return f"{place}: is missing"
    words = first["msg"].lower().removeprefix("value error, ").replace("input should be", "must be")
    if not place:
        return words
    return f"{place}: {first['input']!r:.{_MAX_SHOWN}} {words}"
