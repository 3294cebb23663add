"""What users write, read strictly: JSON and paths.

Every mistake is one line that names file, place and mend.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from profiles.json_faults import first_fault
from profiles.key_mistakes import words_of

_MAX_SHOWN: Final = 80
_MAX_PLACE: Final = 200


class RecordError(Exception):
    """A file or a name can't be used. The text is one line and names place and mend."""

    def __init__(self, text: str) -> None:
        super().__init__(on_one_line(text))


def on_one_line(text: str) -> str:
    """Return a text whose unprintable characters, such as line ends, are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


class Record(BaseModel):
    """Base of what is read: no unknown key, and no text for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


_R = TypeVar("_R", bound=Record)


def user_path(text: str) -> Path:
    """Return a path as a user writes it, with ``~`` resolved; that of an unknown user stays."""
    return Path(os.path.expanduser(text))  # noqa: PTH111 - that of pathlib raises


def is_file(path: Path) -> bool:
    """Whether a path of a user leads to a file; one that can't be looked at does not."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_there(path: Path) -> bool:
    """Whether a path of a user leads to something; an impossible path does not."""
    try:
        return path.exists()
    except OSError:
        return False


def read_text(path: Path) -> str:
    """Return what a user's file says.

    Raises:
        RecordError: It can't be read, or is no UTF-8.
    """
    if "\0" in str(path):
        raise RecordError(f"{str(path)!r:.{_MAX_SHOWN}}: no file's name has a NUL in it")
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
    is_key = first["type"] == "extra_forbidden"
    parts, records = _walk(kind, first["loc"][:-1] if is_key else first["loc"])
    if is_key:
        parts.append(str(first["loc"][-1]))
    context = first.get("ctx", {})
    if first["type"].startswith("union_tag"):
        parts.append(context["discriminator"].strip("'"))
    place, words = ".".join(parts)[:_MAX_PLACE], _words(first, records)
    if first["type"] in {"extra_forbidden", "missing", "union_tag_not_found"}:
        return f"{place}: {words}"
    value = context["tag"] if first["type"] == "union_tag_invalid" else first["input"]
    return f"{place}: {_shown(value)} {words}" if place else words


def _walk(
    kind: type[Record], location: Sequence[int | str]
) -> tuple[list[str], list[type[Record]]]:
    """Return the keys on the way to a place as the user wrote them, and the records allowed there.

    Pydantic names on the way also which one of several records was meant.
    """
    parts: list[str] = []
    records = [kind]
    for part in location:
        if len(records) > 1 and (meant := [each for each in records if part in _tags(each)]):
            records = meant
            continue
        if part != "[key]":
            parts.append(str(part))
        if isinstance(part, int):
            continue
        fields = [each.model_fields[part] for each in records if part in each.model_fields]
        if fields:
            records = [found for field in fields for found in _records_in(field.annotation)]
    return parts, records


def _tags(kind: type[Record]) -> set[str]:
    kinds = [field.annotation for field in kind.model_fields.values()]
    return {tag for each in kinds if get_origin(each) is Literal for tag in get_args(each)}


def _records_in(annotation: Any) -> list[type[Record]]:  # noqa: ANN401 - any type
    if isinstance(annotation, type) and issubclass(annotation, Record):
        return [annotation]
    return [found for part in get_args(annotation) for found in _records_in(part)]


def _words(mistake: ErrorDetails, records: list[type[Record]]) -> str:
    context = mistake.get("ctx", {})
    known = ", ".join(dict.fromkeys(key for each in records for key in each.model_fields))
    match mistake["type"]:
        case "extra_forbidden":
            return f"unknown key; known: {known}"
        case "missing":
            return "is missing"
        case "union_tag_not_found":
            key = context["discriminator"].strip("'")
            tags = [tag for each in records for tag in get_args(each.model_fields[key].annotation)]
            return f"is missing; known: {', '.join(tags)}"
        case "union_tag_invalid":
            return f"must be one of {context['expected_tags']}"
        case "model_type" | "model_attributes_type" if known:
            return f"must have keys of its own; known: {known}"
        case _:
            return words_of(mistake)


def _shown(value: object) -> str:
    try:
        return f"{value!r:.{_MAX_SHOWN}}"
    except ValueError:  # Python writes no number of thousands of digits
        return "so large a number"
