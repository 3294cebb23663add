"""The history of a run, for people: iterations, incidents, plans, lines and requests, in SQLite.

It is beside the journal and no part of it: a controller decides the same without it, and it may be
deleted at any time. A row has the number of the event that it follows from, so what a crash kept
from being written is written when the next controller replays the event, and no row is there twice.

Most rows are iterations: 20 tasks at an iteration a second make 1.7 million a day, of some 75 bytes
each.
"""

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple

from controller.core.events import Event, OperatorRequest
from controller.core.instructions import Announce, AnswerRequest, Instruction

HISTORY_NAME: Final = "history.sqlite"
_VERSION: Final = 1
_SCHEMA: Final = """
create table if not exists iterations (
    task text, event integer, ordinal integer, at real, iteration integer, generation integer,
    loss real, duration_s real, is_rerun integer, primary key (task, event, ordinal)
) without rowid;
create index if not exists iterations_by_time on iterations (at);
create table if not exists lines (
    event integer, ordinal integer, at real, level text, kind text, source text, text text,
    facts text, primary key (event, ordinal)
) without rowid;
create table if not exists incidents (id text primary key, at real, view text) without rowid;
create table if not exists plans (
    id text, revision integer, at real, view text, primary key (id, revision)
) without rowid;
create table if not exists audit (
    event integer primary key, at real, actor text, verb text, subject text, asked text, code text,
    outcome text
);
"""
_PRUNED_SHARE: Final = 0.1
_ORDERED: Final = {
    "iterations": "at, event, ordinal", "lines": "event, ordinal", "incidents": "at, id",
    "plans": "at, id, revision",
    "audit": "event",
}  # fmt: skip
_PRUNED: Final = tuple(table for table in _ORDERED if table != "audit")
"""What grows by itself. Requests are few, and who asked for what is wanted years later, too."""
_NAME: Final = {
    "iterations": "task", "lines": "source", "incidents": "id", "plans": "id", "audit": "subject",
}  # fmt: skip
_OF_EVERY_REQUEST: Final = frozenset(field.name for field in fields(OperatorRequest))


class HistoryError(Exception):
    """The history can't be read or written. The text names the file and the reason."""


class HistoryLine(NamedTuple):
    """An announcement.

    Attributes:
        event: Number of the event that it follows from.
        ordinal: Its place among the instructions of that event.
        at: Seconds since the start of the run.
        line: The announcement.
    """

    event: int
    ordinal: int
    at: float
    line: Announce


class HistoryView(NamedTuple):
    """An incident, or a revision of a plan, as the API shows it.

    Attributes:
        name: Its name.
        revision: Of a plan; 0 of an incident.
        at: When it began, seconds since the start of the run.
        view: The view as JSON.
    """

    name: str
    revision: int
    at: float
    view: str


class AuditLine(NamedTuple):
    """A request of an operator, and what became of it.

    Attributes:
        event: Number of the request among the events.
        at: Seconds since the start of the run.
        actor: Who asked.
        verb: What for, in the word of the command line.
        subject: The plan, node, task or measurement.
        asked: The other fields of the request, as JSON.
        code: The answer in one word; ``ok`` if it was done.
        outcome: The answer in a sentence.
    """

    event: int
    at: float
    actor: str
    verb: str
    subject: str
    asked: str
    code: str
    outcome: str


HistoryEntry = HistoryLine | AuditLine


class History:
    """The history of one run, to be written by one process.

    Raises:
        HistoryError: The file can't be opened, as for every method.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = _opened(path, is_read_only=False)

    def write(
        self,
        entries: Sequence[HistoryEntry],
        incidents: Sequence[HistoryView] = (),
        plans: Sequence[HistoryView] = (),
    ) -> None:
        """Write announcements and requests, and incidents and plans as they are now."""
        lines = [each for each in entries if isinstance(each, HistoryLine)]
        with _explained(self._path), self._database:
            self._database.executemany(
                "insert or ignore into iterations values (?,?,?,?,?,?,?,?,?)",
                (_iteration(each) for each in lines if each.line.kind == "iteration"),
            )
            self._database.executemany(
                "insert or ignore into lines values (?,?,?,?,?,?,?,?)",
                (_line(each) for each in lines if each.line.level != "trace"),
            )
            self._database.executemany(
                "insert or replace into incidents values (?,?,?)",
                ((each.name, each.at, each.view) for each in incidents),
            )
            self._database.executemany("insert or replace into plans values (?,?,?,?)", plans)
            self._database.executemany(
                "insert or ignore into audit values (?,?,?,?,?,?,?,?)",
                (each for each in entries if isinstance(each, AuditLine)),
            )

    def prune(self, now: float, keep_s: float, keep_bytes: int) -> None:
        """Delete rows that are older than ``keep_s``, and the oldest while the file is too large.

        Args:
            now: Seconds since the start of the run.
            keep_s: How old a row may be.
            keep_bytes: How large the file may be.
        """
        with _explained(self._path):
            self._delete_before(now - keep_s)
            while self._num_bytes() > keep_bytes and (oldest := self._oldest()) is not None:
                self._delete_before(oldest + max(1.0, _PRUNED_SHARE * (now - oldest)))
            self._database.executescript("pragma incremental_vacuum")
            self._database.execute("pragma wal_checkpoint(truncate)")

    def _delete_before(self, at: float) -> None:
        with self._database:
            for table in _PRUNED:
                self._database.execute(f"delete from {table} where at < ?", (at,))  # noqa: S608

    def _oldest(self) -> float | None:
        times = [
            self._database.execute(f"select min(at) from {table}").fetchone()[0]  # noqa: S608
            for table in _PRUNED
        ]
        return min((each for each in times if each is not None), default=None)

    def _num_bytes(self) -> int:
        """Return the size of what is in use: pages that were freed are used again."""
        pages, free, size = (
            self._database.execute(f"pragma {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _iteration(each: HistoryLine) -> tuple[Any, ...]:
    facts = dict(each.line.facts)
    names = ("iteration", "generation", "loss", "duration_s", "is_rerun")
    return (each.line.source, *each[:3], *(facts.get(name) for name in names))


def _line(each: HistoryLine) -> tuple[Any, ...]:
    line = each.line
    facts = json.dumps(dict(line.facts), separators=(",", ":"))
    return (*each[:3], line.level, line.kind, line.source, line.text, facts)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one that names the file."""
    try:
        yield
    except (sqlite3.Error, OverflowError) as error:  # of numbers that have no place in a column
        raise HistoryError(f"{path}: {error}") from error


def _opened(path: Path, *, is_read_only: bool) -> sqlite3.Connection:
    with _explained(path):
        if is_read_only:
            return sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            path.touch(mode=0o600)
        except OSError as error:
            raise HistoryError(f"{path}: {error.strerror or error}") from error
        # One thread at a time uses it, but not always the same one.
        database = sqlite3.connect(path, check_same_thread=False)
        database.execute("pragma auto_vacuum = incremental")
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        version = database.execute("pragma user_version").fetchone()[0]
        if version not in {0, _VERSION}:
            database.close()
            raise HistoryError(f"{path}: version {version}, and this is version {_VERSION}")
        database.executescript(_SCHEMA)
        database.execute(f"pragma user_version = {_VERSION}")
        return database


def read_rows(
    path: Path,
    table: str,
    *,
    since: float = 0.0,
    until: float | None = None,
    name: str | None = None,
    limit: int = 100,
) -> Iterator[dict[str, Any]]:
    """Yield the newest rows of a table, oldest first.

    Args:
        path: The history.
        table: ``iterations``, ``lines``, ``incidents``, ``plans`` or ``audit``.
        since: Rows before this time are left out, seconds since the start of the run.
        until: Rows after this time are left out; None for none.
        name: Whose rows are wanted: of which task, from which source, about what, or of which name.
        limit: How many at most.

    Raises:
        HistoryError: It can't be read.
    """
    order = _ORDERED[table]
    newest = ", ".join(f"{name} desc" for name in order.split(", "))
    latest = math.inf if until is None else until
    values: list[object] = [since, latest, *([name] if name is not None else []), limit]
    of_name = f" and {_NAME[table]} = ?" if name is not None else ""
    query = (
        f"select * from (select * from {table} where at >= ? and at <= ?{of_name}"  # noqa: S608
        f" order by {newest} limit ?) order by {order}"
    )
    with _explained(path), closing(_opened(path, is_read_only=True)) as database:
        there = "select 1 from sqlite_master where type = 'table' and name = ?"
        if database.execute(there, (table,)).fetchone() is None:
            return  # it has just been made, or by a version without this table
        found = database.execute(query, values)
        names = [column[0] for column in found.description]
        for row in found:
            yield _readable(dict(zip(names, row, strict=True)))


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its JSON unpacked."""
    row.pop("ordinal", None)
    if "view" in row:
        return dict(json.loads(row["view"]))
    for key in ("facts", "asked"):
        if key in row:
            row[key] = json.loads(row[key])
    if "is_rerun" in row:
        row["is_rerun"] = bool(row["is_rerun"])
    return row


def entries_of(event: Event, instructions: Iterable[Instruction]) -> Iterator[HistoryEntry]:
    """Yield what an event leaves in the history."""
    for ordinal, each in enumerate(instructions):
        if isinstance(each, Announce):
            yield HistoryLine(event.number, ordinal, event.at, each)
        elif isinstance(each, AnswerRequest) and isinstance(event.body, OperatorRequest):
            yield _audited(event, event.body, each)


def _audited(event: Event, request: OperatorRequest, answer: AnswerRequest) -> AuditLine:
    asked = {
        field.name: getattr(request, field.name)
        for field in fields(request)
        if field.name not in _OF_EVERY_REQUEST
    }
    return AuditLine(
        event.number, event.at, request.actor, request.verb, request.subject,
        json.dumps(asked, separators=(",", ":"), default=str), answer.code, answer.message,
    )  # fmt: skip
