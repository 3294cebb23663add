"""Rows of the catalogue's TOML files. Every mistake is one line: file, row, and the mend."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from profiles.key_mistakes import words_of

_Row = TypeVar("_Row", bound=BaseModel)
_QUOTED: Final = re.compile(r"'([^']+)'")


class CatalogueError(Exception):
    """The catalogue can't be used. The text is one line and names file, entry and mend."""


def document_of(file: Traversable) -> dict[str, Any]:
    """Return the TOML document in ``file``.

    Raises:
        CatalogueError: The file can't be read, or is not TOML.
    """
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"{file.name}: {(error.strerror or 'unreadable').lower()}") from error
    except ValueError as error:
        raise CatalogueError(f"{file.name}: not valid TOML: {error}") from error


def rows_of(
    file: Traversable,
    key: str,
    kind: type[_Row],
    find_status: Callable[[str], object] | None = None,
    *,
    title: str = "",
) -> Iterator[_Row]:
    """Yield the ``[[key]]`` tables of ``file``.

    Args:
        file: A TOML file that holds nothing else.
        key: Name of the array of tables.
        kind: Model of a row.
        find_status: Returns the status of a name, or raises ``ValueError``.
        title: The column that names a row in errors; by default ``id`` or ``name``.

    Raises:
        CatalogueError: The file can't be read, or a row is wrong.
    """
    document = document_of(file)
    for other in document.keys() - {key}:
        raise CatalogueError(f"{file.name}: {unknown('table', other, [key])}")
    for number, table in enumerate(document.get(key, []), start=1):
        columns = (title,) if title else ("id", "name")
        names = (
            (table[each] for each in columns if each in table) if isinstance(table, dict) else ()
        )
        yield row_of(f"{file.name}: {key} {next(iter(names), number)!r}", table, kind, find_status)


def row_of(
    place: str,
    table: object,
    kind: type[_Row],
    find_status: Callable[[str], object] | None = None,
) -> _Row:
    """Return the row that ``table`` stands for.

    Raises:
        CatalogueError: A column is missing, unknown, or has a value that is not allowed.
    """
    try:
        return kind.model_validate(table, context=find_status)
    except ValidationError as error:
        mistakes = error.errors(include_url=False)
        # A misspelt column is also a missing one: the misspelling says more.
        first = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
        raise CatalogueError(f"{place}: {_mistake(first, kind)}") from error


def unknown(what: str, name: str, known: Collection[str]) -> str:
    """Return that there is no ``name``, with the nearest known one, or all if none is near."""
    nearest = get_close_matches(name, known, n=1)
    mend = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
    return f"there is no {what} {name!r}; {mend}"


def _mistake(error: ErrorDetails, kind: type[BaseModel]) -> str:
    column = ".".join(map(str, error["loc"]))
    value = error["input"]
    if error["type"] == "missing":
        return f"column {column!r} is missing"
    if error["type"] == "extra_forbidden":
        return unknown("column", column, kind.model_fields)
    context: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] in {"enum", "literal_error"} and isinstance(value, str):
        return f"{column}: {unknown('value', value, _QUOTED.findall(context['expected']))}"
    return f"{column}: {words_of(error)}" if column else words_of(error)
