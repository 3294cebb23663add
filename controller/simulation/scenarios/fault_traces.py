"""Reads traces of faults and of spot instances, shipped or a user's own.

The shipped traces are third-party data in ``data/``, with their licences: ``stepfun``, 584 faults
of 400 servers over 348 days, and ``p3-spot`` and ``g4dn-spot``, instances that leave and return.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, TypeGuard

from controller.simulation.scenarios.count_traces import (
    changes_of,
    counts_of_lines,
    counts_of_object,
    is_whole_number,
    node_names,
)
from profiles.records import RecordError, parse_json, read_text

_DAY_S: Final = 86400.0
_MAX_DAYS: Final = 1e6
_KEYS: Final = {"node_id", "event_time", "event_type", "fault_type"}
_FILES: Final = {
    "stepfun": "infinitehbd-fault-trace.json",
    "p3-spot": "p3-trace.csv",
    "g4dn-spot": "g4dn-trace.csv",
}


@dataclass(frozen=True, slots=True)
class Absence:
    """A node that is away for a while.

    Attributes:
        node: The node's name in the trace.
        begin_s: When it leaves, in seconds since the start of the trace.
        end_s: When it returns; None if it does not.
    """

    node: str
    begin_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """The absences of all nodes.

    Attributes:
        nodes: All nodes that the trace names; nodes that are present at the start come first.
        absences: In the order of their begin. The absences of one node never overlap.
        end_s: The time of the last change.
    """

    nodes: tuple[str, ...]
    absences: tuple[Absence, ...]
    end_s: float


def load_trace(name: str, directory: Path) -> Trace:
    """Return a shipped trace, or a file's: ``.json`` has faults, ``.csv`` spot instances.

    Args:
        name: The name of a shipped trace, or a path.
        directory: The directory for a relative path.

    Raises:
        RecordError: The file can't be read, or an entry in it is wrong.
    """
    if name in _FILES:
        return _shipped(name)
    path = directory / name
    if path.suffix == ".json":
        return parse_faults(read_text(path), str(path))
    if path.suffix == ".csv":
        return parse_spot(read_text(path), str(path))
    raise RecordError(f"{name!r:.80} must end in .json or .csv, or be one of {', '.join(_FILES)}")


@cache
def _shipped(name: str) -> Trace:
    file = resources.files("controller.simulation").joinpath("data", _FILES[name])
    text = file.read_text("utf-8")
    parse = parse_faults if file.name.endswith(".json") else parse_spot
    return parse(text, file.name)


@cache
def repair_times_s(name: str) -> tuple[float, ...]:
    """Return the durations of a shipped trace's faults, in seconds; some are 0."""
    return tuple(
        absence.end_s - absence.begin_s
        for absence in _shipped(name).absences
        if absence.end_s is not None
    )


def parse_faults(text: str, place: str) -> Trace:
    """Return the trace of a JSON list of ``fault_start`` and ``fault_end``, times in days.

    An object with ``gap_seconds`` (also in ``metadata``) and ``data`` has counts of nodes instead.

    The order of the file counts, since a fault may begin and end at the same time. A node is away
    from the begin of its first open fault to the end of its last.

    Raises:
        RecordError: The text is not such a list, or a fault ends before it begins.
    """
    rows = parse_json(text, place)
    if isinstance(rows, dict) and rows.keys() & {"gap_seconds", "metadata", "data"}:
        return _counted(place, *counts_of_object(rows, place))
    if not isinstance(rows, list) or not rows:
        raise RecordError(
            f"{place}: must be a JSON list of faults, one or more, or an object with gap_seconds and"
            " data, a list of counts of nodes"
        )
    changes = [_fault_change(row, f"{place}: {number}") for number, row in enumerate(rows)]
    nodes = tuple(dict.fromkeys(change.node for change in changes))
    return Trace(nodes, _absences(changes), max(change.at_s for change in changes))


def parse_spot(text: str, place: str) -> Trace:
    """Return the trace of lines ``milliseconds,add|remove,node``: a node is away until it is added.

    Lines of two cells, a time and a count, give the number of present nodes instead; see
    ``count_traces.counts_of_lines``.

    A node whose first line is ``remove`` is present at the start.

    Raises:
        RecordError: A line has another format, adds a present node, or removes an absent one.
    """
    rows = [(row, line) for row, line in _rows(text, place) if row]
    if rows and len(rows[0][0]) == 2:
        return _counted(place, *counts_of_lines(rows))
    changes = [_spot_change(row, line) for row, line in rows]
    if not changes:
        raise RecordError(f"{place}: is empty")
    first: dict[str, float] = {}
    for change in changes:
        first.setdefault(change.node, -1.0 if change.is_away else change.at_s)
    nodes = tuple(sorted(first, key=lambda node: first[node]))
    # A node whose first line is "add" is away from the start.
    absent = [_Change(-1.0, node, True, place) for node in nodes if first[node] >= 0.0]
    _refuse_repeated(changes)
    absences = _absences([*absent, *changes])
    return Trace(
        nodes,
        tuple(each for each in absences if each.begin_s >= 0.0 or each.end_s != 0.0),
        max(change.at_s for change in changes),
    )


def _counted(place: str, times_s: list[float], counts: list[int]) -> Trace:
    """Return the trace of counts at these times; it may have one more time, its end."""
    if not max(counts):
        raise RecordError(f"{place}: all counts are 0: there is no node")
    changes = [
        # Who is absent at the first count is absent from the start.
        _Change(times_s[each.tick] if each.tick else -1.0, each.node, each.is_away, place)
        for each in changes_of(counts)
    ]
    return Trace(node_names(counts), _absences(changes), times_s[-1])


@dataclass(frozen=True, slots=True)
class _Change:
    """One line of a trace: a node leaves or returns."""

    at_s: float
    node: str
    is_away: bool
    place: str


def _rows(text: str, place: str) -> Iterator[tuple[list[str], str]]:
    """Yield the cells of each line, and its place."""
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        for row in reader:
            yield [cell.strip() for cell in row], f"{place}:{reader.line_num}"
    except csv.Error as error:
        raise RecordError(f"{place}:{reader.line_num}: not valid CSV: {error}") from error


def _spot_change(row: list[str], place: str) -> _Change:
    if len(row) == 3:
        at_ms, kind, node = row
        if is_whole_number(at_ms) and kind in {"add", "remove"} and _is_name(node):
            return _Change(int(at_ms) / 1000.0, node, kind == "remove", place)
    raise RecordError(f"{place}: {','.join(row)!r:.80} must be milliseconds, add or remove, a node")


def _fault_change(row: Any, place: str) -> _Change:  # noqa: ANN401 - of a file
    if isinstance(row, dict):
        if unknown := sorted(row.keys() - _KEYS):
            raise RecordError(f"{place}: {unknown[0]!r:.80}: unknown key; known: {sorted(_KEYS)}")
        node, day, kind = (row.get(key) for key in ("node_id", "event_time", "event_type"))
        is_kind = isinstance(kind, str) and kind in {"fault_start", "fault_end"}
        if isinstance(node, str) and _is_name(node) and is_kind and _is_day(day):
            return _Change(float(day) * _DAY_S, node, kind == "fault_start", place)
    raise RecordError(
        f"{place}: must have node_id (a name), event_time in days, 0 or more and below {_MAX_DAYS:g}, and"
        " event_type fault_start or fault_end"
    )


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable()


def _is_day(value: Any) -> TypeGuard[int | float]:  # noqa: ANN401 - of a file
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_DAYS


def _refuse_repeated(changes: list[_Change]) -> None:
    is_away: dict[str, bool] = {}
    for change in changes:
        if is_away.get(change.node) is change.is_away:
            state = "removed while it is away" if change.is_away else "added while it is present"
            raise RecordError(f"{change.place}: {change.node!r:.80} is {state}; remove one line")
        is_away[change.node] = change.is_away


def _absences(changes: list[_Change]) -> tuple[Absence, ...]:
    num_open: dict[str, int] = {}
    since: dict[str, float] = {}
    found: list[Absence] = []
    _refuse_disorder(changes)
    for change in changes:
        node = change.node
        if change.is_away:
            num_open[node] = num_open.get(node, 0) + 1
            since.setdefault(node, change.at_s)
            continue
        if node not in since:
            raise RecordError(
                f"{change.place}: {node!r:.80} returns, but it is not away; remove this line"
            )
        num_open[node] -= 1
        if not num_open[node]:
            found.append(Absence(node, since.pop(node), change.at_s))
    found += [Absence(node, begin_s, None) for node, begin_s in since.items()]
    return tuple(sorted(found, key=lambda each: (each.begin_s, each.node)))


def _refuse_disorder(changes: list[_Change]) -> None:
    """Refuse a trace in which the events of one node are not in the order of time."""
    last_s: dict[str, float] = {}
    for change in changes:
        latest_s = last_s.get(change.node, change.at_s)
        if change.at_s < latest_s:
            verb = "leaves" if change.is_away else "returns"
            raise RecordError(
                f"{change.place}: {change.node!r:.80} {verb} before its previous event, at"
                f" {latest_s:.0f} s; sort the node's events by time"
            )
        last_s[change.node] = change.at_s
