"""The catalogue: every entry, read from the data files and checked as a whole.

A mistake in a file is one ``CatalogueError`` that names the file, the entry and what is allowed.
Reading is done once; what comes out holds no file and can be used by agents and the core alike.
"""

import functools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from profiles.faults.entry import Combination, Entry
from profiles.faults.matching.rules import Rule, rule_of
from profiles.faults.matching.screen import LiteralScreen
from profiles.faults.series import ODD_WORDS, SERIES_WORDS
from profiles.faults.status import Severity, Status, StatusInfo
from profiles.faults.xid import XID_WORD, XidCode, XidTable

_DATA: Final = "data"
_Row = TypeVar("_Row", bound=BaseModel)


class CatalogueError(Exception):
    """The catalogue can't be used. The text is one line and names file, entry and mend."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that is known about what clusters print.

    Attributes:
        statuses: What each status means, in the order of the table.
        entries: All entries but those of Xid codes, by id.
        families: Name of the data file of each entry.
        combinations: Signs that mean something else together.
        xids: NVIDIA's Xid codes.
        screen: Finds the entries that are worth trying on a line.
        vetoes: Entries that take back what others say about the same line.
    """

    statuses: Mapping[Status, StatusInfo]
    entries: Mapping[str, Entry]
    families: Mapping[str, str]
    combinations: tuple[Combination, ...]
    xids: XidTable
    screen: LiteralScreen
    vetoes: tuple[Rule, ...]

    def severity(self, status: Status) -> Severity:
        """Return how ``status`` is handled."""
        return self.statuses[status].severity

    def response(self, entry: Entry | Combination, status: Status) -> str:
        """Return what an operator does first."""
        return entry.response or self.statuses[status].response


@functools.cache
def default_catalogue() -> Catalogue:
    """Return the catalogue that ships with the package; read once per process."""
    return load_catalogue(resources.files("profiles.faults").joinpath(_DATA))


def load_catalogue(folder: Traversable) -> Catalogue:
    """Read the catalogue in ``folder``.

    Raises:
        CatalogueError: A file is missing or not TOML, an entry is wrong, or an id comes twice.
    """
    entries: dict[str, Entry] = {}
    families: dict[str, str] = {}
    for file in sorted(folder.joinpath("entries").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        for entry in _tables(file, "entry", Entry):
            if entry.id in entries:
                raise CatalogueError(
                    f"{file.name}: entry {entry.id!r} is already in {families[entry.id]}.toml;"
                    " every entry needs an id of its own"
                )
            entries[entry.id] = entry
            families[entry.id] = file.name.removesuffix(".toml")
    xids = XidTable(list(_tables(folder.joinpath("xid.toml"), "xid", XidCode)))
    combinations = tuple(_tables(folder.joinpath("combinations.toml"), "combination", Combination))
    known = entries.keys() | {entry.id for entry in xids.entries}
    for combination in combinations:
        _check_combination(combination, known)
    statuses = _statuses(folder.joinpath("statuses.toml"))
    rules = [_rule(entry, families) for entry in entries.values() if entry.patterns]
    return Catalogue(
        statuses=statuses,
        entries=entries,
        families=families,
        combinations=combinations,
        xids=xids,
        screen=LiteralScreen(
            [rule for rule in rules if not rule.entry.is_veto],
            watchwords=(*SERIES_WORDS, *ODD_WORDS, XID_WORD),
        ),
        vetoes=tuple(rule for rule in rules if rule.entry.is_veto),
    )


def _rule(entry: Entry, families: Mapping[str, str]) -> Rule:
    try:
        return rule_of(entry)
    except ValueError as error:
        raise CatalogueError(f"{families[entry.id]}.toml: entry {entry.id!r}: {error}") from error


def _check_combination(combination: Combination, known: set[str]) -> None:
    named = {name for need in combination.needs for name in need.split("|")}
    if unknown := sorted((named | set(combination.drops)) - known):
        raise CatalogueError(
            f"combinations.toml: {combination.id!r}: there is no entry {unknown[0]!r}"
        )


def _statuses(file: Traversable) -> dict[Status, StatusInfo]:
    document = _document(file)
    if missing := [status.value for status in Status if status not in document]:
        raise CatalogueError(f"{file.name}: status {missing[0]!r} is missing")
    try:
        return {
            Status(name): StatusInfo(
                Status(name), Severity(row["severity"]), row["meaning"], row["response"]
            )
            for name, row in document.items()
        }
    except (KeyError, ValueError) as error:
        raise CatalogueError(
            f"{file.name}: {error}; a status has a severity, a meaning and a response"
        ) from error


def _tables(file: Traversable, key: str, row: type[_Row]) -> Iterator[_Row]:
    for number, table in enumerate(_document(file).get(key, []), start=1):
        try:
            yield row.model_validate(table)
        except ValidationError as error:
            name = table.get("id", number) if isinstance(table, dict) else number
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            message = first["msg"].removeprefix("Value error, ")
            raise CatalogueError(
                f"{file.name}: {key} {name!r}: {place}{': ' if place else ''}{message}"
            ) from error


def _document(file: Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CatalogueError(f"{file.name}: {(error.strerror or 'unreadable').lower()}") from error
    except ValueError as error:
        raise CatalogueError(f"{file.name}: not valid TOML: {error}") from error
