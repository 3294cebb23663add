"""Turns counts of present nodes, one per tick, into nodes that leave and return.

Public data on spot instances often has this form. Which node leaves is not in it: one is drawn of
those that are present, always the same for the same counts, and the node that left first returns
first.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from profiles.records import RecordError

_MAX_DIGITS: Final = 14
_MAX_NODES: Final = 100_000
_MAX_GAP_S: Final = 1e7
_SECONDS: Final = {"milliseconds": 0.001, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0}
"""Units that a heading may name; without a heading times are in milliseconds."""


@dataclass(frozen=True, slots=True)
class CountChange:
    """One node leaves or returns at a tick."""

    tick: int
    node: str
    is_away: bool


def node_names(counts: Sequence[int]) -> tuple[str, ...]:
    """Return a name for each node of the largest count; those present at the start come first."""
    most = max(counts)
    return tuple(f"node{number:0{len(str(most))}d}" for number in range(most))


def changes_of(counts: Sequence[int]) -> list[CountChange]:
    """Return the changes that give the counts; nodes beyond the first count leave at tick 0."""
    names = node_names(counts)
    present, away = list(names), deque[str]()
    rng = random.Random(0)  # noqa: S311 - not for secrets
    found: list[CountChange] = []
    for tick, count in enumerate(counts):
        while len(present) > count:
            # The first count decides who is absent from the start: the last names.
            number = rng.randrange(len(present)) if tick else len(present) - 1
            away.append(present.pop(number))
            found.append(CountChange(tick, away[-1], is_away=True))
        while len(present) < count:
            present.append(away.popleft())
            found.append(CountChange(tick, present[-1], is_away=False))
    return found


def counts_of_lines(rows: Sequence[tuple[list[str], str]]) -> tuple[list[float], list[int]]:
    """Return the seconds since the first line, and the counts, of lines ``time,count``.

    A time is a whole number of milliseconds, or a date and time as ``2026-11-25T08:10:00Z``. A
    heading may be the first line. If its first cell is a unit (seconds, minutes, hours), times are
    numbers of that unit.

    Args:
        rows: The cells of each line, and its place.

    Raises:
        RecordError: A line has another format, or is not later than the line before.
    """
    heading, first_place = rows[0]
    unit_s = _SECONDS["milliseconds"]
    if not any(cell[:1].isdigit() for cell in heading):
        unit_s = _SECONDS.get(heading[0].lower(), unit_s)
        rows = rows[1:]
        if not rows:
            raise RecordError(f"{first_place}: has a heading only")
    times_s, counts = list[float](), list[int]()
    for row, place in rows:
        at_s = _time_s(row[0], unit_s)
        if len(row) != 2 or at_s is None or not is_whole_number(row[1]):
            raise RecordError(
                f"{place}: {','.join(row)!r:.80} must be milliseconds, or a date and time, and a count"
                " of nodes"
            )
        if times_s and at_s <= times_s[-1]:
            raise RecordError(f"{place}: is not later than the line before; sort by time")
        times_s.append(at_s)
        counts.append(_count(int(row[1]), place))
    return [at_s - times_s[0] for at_s in times_s], counts


def _time_s(text: str, unit_s: float) -> float | None:
    whole, _, rest = text.partition(".")
    if is_whole_number(whole) and (not rest or is_whole_number(rest)):
        return float(text) * unit_s
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def counts_of_object(document: dict[str, Any], place: str) -> tuple[list[float], list[int]]:
    """Return the times in seconds, with the end, and the counts of ``gap_seconds`` and ``data``.

    Raises:
        RecordError: One of the two is missing or has another format.
    """
    metadata = document.get("metadata")
    gap_s = document.get(
        "gap_seconds", metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    )
    counts = document.get("data")
    if isinstance(gap_s, bool) or not isinstance(gap_s, int | float) or not 0 < gap_s < _MAX_GAP_S:
        raise RecordError(f"{place}: gap_seconds: must be the seconds between two counts, above 0")
    if not isinstance(counts, list) or not counts:
        raise RecordError(f"{place}: data: must be a list of counts of nodes, one or more")
    return (
        [number * float(gap_s) for number in range(len(counts) + 1)],
        [_count(each, f"{place}: data.{number}") for number, each in enumerate(counts)],
    )


def _count(value: Any, place: str) -> int:  # noqa: ANN401 - of a file
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_NODES:
        raise RecordError(f"{place}: {value!r:.80} must be a count of nodes, 0 to {_MAX_NODES}")
    return value


def is_whole_number(text: str) -> bool:
    """Return whether the text is a whole number of a usual length, in ASCII digits."""
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
