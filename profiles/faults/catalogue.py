"""The catalogue: every entry, read from the data files and checked as a whole.

A mistake in a file is one ``CatalogueError`` that names the file, the entry and the mend. The files
are read once; the catalogue holds no file, and agents and the core use it alike.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, get_args

from profiles.faults.entry import Combination, Entry
from profiles.faults.matching.rules import Rule, rule_of
from profiles.faults.matching.screen import LiteralScreen
from profiles.faults.series import ODD_WORDS, SERIES_WORDS, SeriesEvent
from profiles.faults.status import Status
from profiles.faults.status_table import find_status, load_statuses
from profiles.faults.table_rows import CatalogueError, rows_of, unknown
from profiles.faults.xid import XID_WORD, XidCode, XidTable

_DATA: Final = "data"


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All statuses and all wordings.

    Attributes:
        statuses: Every status by its name, in the order of the table.
        entries: All entries but those of Xid codes, by id.
        families: Name of the data file of each entry.
        combinations: Signs that have another meaning together.
        xids: NVIDIA's Xid codes.
        screen: Finds the entries that are worth trying on a line.
        vetoes: Entries that take back other entries of the same line.
    """

    statuses: Mapping[str, Status]
    entries: Mapping[str, Entry]
    families: Mapping[str, str]
    combinations: tuple[Combination, ...]
    xids: XidTable
    screen: LiteralScreen
    vetoes: tuple[Rule, ...]


@functools.cache
def default_catalogue() -> Catalogue:
    """Return the catalogue that ships with the package; read once per process."""
    return load_catalogue(resources.files("profiles.faults").joinpath(_DATA))


def load_catalogue(folder: Traversable) -> Catalogue:
    """Read the catalogue in ``folder``.

    Raises:
        CatalogueError: A file is missing or not TOML, an entry is wrong, or an id comes twice.
    """
    statuses = load_statuses(folder.joinpath("statuses.toml"))
    find = functools.partial(find_status, statuses)
    entries: dict[str, Entry] = {}
    families: dict[str, str] = {}
    for file in sorted(folder.joinpath("entries").iterdir(), key=lambda file: file.name):
        if not file.name.endswith(".toml"):
            continue
        for entry in rows_of(file, "entry", Entry, find):
            if entry.id in entries:
                raise CatalogueError(
                    f"{file.name}: entry {entry.id!r} is already in {families[entry.id]}.toml;"
                    " every entry needs an id of its own"
                )
            entries[entry.id] = entry
            families[entry.id] = file.name.removesuffix(".toml")
    _check_series(entries)
    xids = XidTable(list(rows_of(folder.joinpath("xid.toml"), "xid", XidCode, find)), statuses)
    combinations = tuple(
        rows_of(folder.joinpath("combinations.toml"), "combination", Combination, find)
    )
    known = [*entries, *(entry.id for entry in xids.entries)]
    for combination in combinations:
        _check_combination(combination, known)
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


def _check_series(entries: Mapping[str, Entry]) -> None:
    for event in get_args(SeriesEvent):
        if event not in entries:
            raise CatalogueError(
                f"entries: entry {event!r} is missing: training numbers lead to it"
            )


def _check_combination(combination: Combination, known: list[str]) -> None:
    named = [name for need in combination.needs for name in need.split("|")]
    for name in (*named, *combination.drops):
        if name not in known:
            raise CatalogueError(
                f"combinations.toml: combination {combination.id!r}: {unknown('entry', name, known)}"
            )
