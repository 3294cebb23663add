"""Reads one section of a document into its class, and names sections in mistakes."""

import json
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from controller.clusterfile.cluster_keys import Section
from controller.clusterfile.file_mistakes import Mistakes
from controller.clusterfile.toml_document import TomlDocument
from profiles.key_mistakes import Location, key_mistakes

LISTS: Final = frozenset({"approval", "nodes", "notify", "task"})
"""Sections that are written in double brackets, once for each entry."""

_S = TypeVar("_S", bound=Section)


def read_section(
    document: TomlDocument, location: Location, values: object, kind: type[_S], mistakes: Mistakes
) -> _S | None:
    """Return a section; None if it has mistakes, which are added to ``mistakes``."""
    try:
        # By way of JSON, because pydantic is strict about types there (no "4" or true for 4).
        return kind.model_validate_json(json.dumps(values, default=str), strict=True)
    except ValidationError as error:
        known = {"": list(kind.model_fields), "labels": []}
        found = key_mistakes(error, known)
        mistakes.add_all(document, location, found, subject_of(location))
        return None


def tables_of(document: TomlDocument, key: str) -> list[Any]:
    """Return the tables ``[[key]]`` of a document. What is no list is reported elsewhere."""
    tables = document.values.get(key, [])
    return tables if isinstance(tables, list) else []


def items_of(document: TomlDocument, key: str) -> dict[str, Any]:
    """Return the section ``[key]`` of a document. What is no table is reported elsewhere."""
    section = document.values.get(key, {})
    return section if isinstance(section, dict) else {}


def subject_of(location: Location) -> str:
    """Return how a mistake names a section: ``ssh``, or ``nodes 2``."""
    name, *number = location
    return f"{name} {int(number[0]) + 1}" if number else str(name)
