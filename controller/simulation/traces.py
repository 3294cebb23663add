"""Real traces of faults and of spot instances, and files of a user's own.

The shipped ones are data of others, with their licences beside them (``data/``): ``stepfun``, 584 faults of
400 servers over 348 days, and ``p3-spot`` and ``g4dn-spot``, instances that come and go.
"""

import csv
import io
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from profiles.records import RecordError, parse_json, read_text

_DAY_S: Final = 86400.0
_MAX_DAYS: Final = 1e6
_MAX_DIGITS: Final = 14
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
        node: As the trace calls it.
        begin_s: Since when, seconds from the beginning of the trace.
        end_s: Until when; None if it does not come back.
    """

    node: str
    begin_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """When which nodes are away; absences in the order in which they begin.

    Attributes:
        nodes: All nodes that it names, those that are there from the beginning first.
        absences: Those of one node never overlap.
        end_s: When the last thing happens.
    """

    nodes: tuple[str, ...]
    absences: tuple[Absence, ...]
    end_s: float


def load_trace(name: str, directory: Path) -> Trace:
    """Return a shipped trace, or that of a file: ``.json`` faults, ``.csv`` nodes that come and go.

    Args:
        name: Of a shipped trace, or a path.
        directory: What a relative path is relative to.

    Raises:
        RecordError: It can't be read, or something in it is wrong.
    """
    if name in _FILES:
        return _shipped(name)
    path = directory / name
    if path.suffix == ".json":
        return parse_faults(read_text(path), str(path))
    if path.suffix == ".csv":
        return parse_spot(read_text(path), str(path))
    raise RecordError(f"{name}: must end in .json or .csv, or be one of {', '.join(_FILES)}")


@cache
def _shipped(name: str) -> Trace:
    file = resources.files("controller.simulation").joinpath("data", _FILES[name])
    text = file.read_text("utf-8")
    parse = parse_faults if file.name.endswith(".json") else parse_spot
    return parse(text, file.name)


@cache
def repair_times_s(name: str) -> tuple[float, ...]:
    """Return how long the faults of a shipped trace last, seconds; some have no length."""
    return tuple(
        absence.end_s - absence.begin_s
        for absence in _shipped(name).absences
        if absence.end_s is not None
    )


def parse_faults(text: str, place: str) -> Trace:
    """Return the trace of a JSON list of ``fault_start`` and ``fault_end``, times in days.

    Events count in the order of the file, since a fault may end at the very time at which it begins. A node
    is away from the first of its open faults to the end of the last.

    Raises:
        RecordError: It is not such a list.
    """
    rows = parse_json(text, place)
    if not isinstance(rows, list) or not rows:
        raise RecordError(f"{place}: must be a JSON list of faults, one or more")
    changes = [_fault_change(row, f"{place}: {number}") for number, row in enumerate(rows)]
    nodes = tuple(dict.fromkeys(node for _, node, _ in changes))
    return Trace(nodes, _absences(changes, place), max(at for at, _, _ in changes))


def parse_spot(text: str, place: str) -> Trace:
    """Return the trace of lines ``milliseconds,add|remove,node``: a node is away until it is added.

    Raises:
        RecordError: Some line is not like that.
    """
    changes: list[tuple[float, str, bool]] = []
    for number, row in enumerate(_rows(text, place), 1):
        if not row:
            continue
        is_time = len(row) == 3 and row[0].isdecimal() and len(row[0]) <= _MAX_DIGITS
        if not is_time or row[1] not in {"add", "remove"}:
            raise RecordError(
                f"{place}:{number}: {','.join(row)!r:.80} must be milliseconds, add or remove, a node"
            )
        changes.append((int(row[0]) / 1000.0, row[2], row[1] == "remove"))
    if not changes:
        raise RecordError(f"{place}: is empty")
    first = {node: at for at, node, is_away in reversed(changes) if not is_away}
    named = dict.fromkeys(node for _, node, _ in changes)
    nodes = sorted(named, key=lambda node: first.get(node, -1.0))
    # Whatever is added later was away from the beginning on.
    absent = [(-1.0, node, True) for node in nodes if first.get(node, 0.0) > 0.0]
    end_s = max(at for at, _, _ in changes)
    return Trace(tuple(nodes), _absences([*absent, *changes], place), end_s)


def _rows(text: str, place: str) -> list[list[str]]:
    try:
        return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(text))]
    except csv.Error as error:
        raise RecordError(f"{place}: {error}") from error


def _fault_change(row: Any, place: str) -> tuple[float, str, bool]:  # noqa: ANN401 - of a file
    if isinstance(row, dict):
        if unknown := sorted(row.keys() - _KEYS):
            raise RecordError(f"{place}: {unknown[0]!r:.80}: unknown key; known: {sorted(_KEYS)}")
        node, day, kind = (row.get(key) for key in ("node_id", "event_time", "event_type"))
        at_day = float(day) if isinstance(day, int | float) and not isinstance(day, bool) else -1.0
        is_kind = isinstance(kind, str) and kind in {"fault_start", "fault_end"}
        if isinstance(node, str) and is_kind and 0 <= at_day < _MAX_DAYS:
            return at_day * _DAY_S, node, kind == "fault_start"
    raise RecordError(
        f"{place}: must have node_id, event_time in days, 0 or more, and event_type fault_start or"
        " fault_end"
    )


def _absences(changes: list[tuple[float, str, bool]], place: str) -> tuple[Absence, ...]:
    num_open: dict[str, int] = {}
    since: dict[str, float] = {}
    found: list[Absence] = []
    for at, node, is_away in changes:
        num_open[node] = num_open.get(node, 0) + (1 if is_away else -1)
        if is_away:
            since.setdefault(node, at)
        elif num_open[node] <= 0:
            num_open[node] = 0
            if node in since:
                begin = since.pop(node)
                if at < begin:
                    raise RecordError(f"{place}: {node!r:.80} comes back before it goes")
                found.append(Absence(node, begin, at))
    found += [Absence(node, begin, None) for node, begin in since.items()]
    return tuple(sorted(found, key=lambda each: (each.begin_s, each.node)))
