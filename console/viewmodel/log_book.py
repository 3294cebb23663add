"""What ranks and controller have written, as one list in the order of time.

A line of a rank that begins with a time has that time. Any other line belongs to the one before it,
as the lines of a traceback do, and has its time. Times without a zone are taken as UTC.
"""

import re
from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from console.viewmodel.console_state import State
from console.viewmodel.details.detail import DetailSubject
from controller.api.views import LogLine
from controller.api.wire import LogPosition

MOST_ENTRIES: Final = 20_000
CONTROLLER: Final = "events"
"""The source of lines of the event stream."""
_TIME: Final = re.compile(
    r"\[?(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?\d*(Z|[+-]\d\d:?\d\d)?"
)
_MOST_PARTIAL: Final = 100_000


class LogEntry(NamedTuple):
    """One line. Entries are ordered by time, and those of one time by arrival.

    Attributes:
        at: Seconds since the epoch.
        number: Lines before it in the order of arrival.
        source: ``events``, or the rank's number.
        node: Where it was written; empty for the controller.
        text: The line.
    """

    at: float
    number: int
    source: str
    node: str
    text: str


@dataclass(slots=True)
class LogBook:
    """The newest lines of some sources, and how far each was read.

    Attributes:
        entries: In the order of time; at most ``MOST_ENTRIES``.
        num_dropped: Older lines that had to go.
        after: By rank, how far its output was read.
        errors: By rank, why its output can't be read.
    """

    entries: list[LogEntry] = field(default_factory=list)
    num_dropped: int = 0
    after: dict[int, LogPosition] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    _partial: dict[int, str] = field(default_factory=dict)
    _last_at: dict[int, float] = field(default_factory=dict)
    _num_added: int = 0
    _newest_seq: int = 0

    def add_part(self, part: dict[str, Any], now: float) -> None:
        """Add a part of a rank's output, as the reply to ``ReadLogs`` has it.

        Args:
            part: An object of the reply.
            now: When it came, seconds since the epoch: the time of lines without one.
        """
        rank, node = int(part["rank"]), str(part.get("node", ""))
        if error := str(part.get("error", "")):
            self.errors[rank] = error
            return
        self.errors.pop(rank, None)
        position = LogPosition(name=part["name"], end=part["end"])
        known = self.after.get(rank)
        if known is not None and known.name != position.name:
            self._partial.pop(rank, None)  # the rank has a new process, with a file of its own
        is_first, self.after[rank] = known is None, position
        *lines, rest = (self._partial.pop(rank, "") + str(part["text"])).split("\n")
        if is_first and int(part.get("begin", 0)) > 0 and lines:
            lines = lines[1:]  # only the end of the file was read: it begins within a line
        self._partial[rank] = rest[-_MOST_PARTIAL:]
        for line in lines:
            at = moment_in(line)
            if at is None:
                at = self._last_at.get(rank, now)
            self._last_at[rank] = at
            self._add(at, str(rank), node, line)

    def add_events(self, lines: Sequence[LogLine], started_wall_s: float) -> None:
        """Add what is new in the event stream."""
        for line in lines:
            if line.seq > self._newest_seq:
                self._newest_seq = line.seq
                text = f"{line.source}: {line.text}"
                self._add(started_wall_s + line.at, CONTROLLER, "", text)

    def _add(self, at: float, source: str, node: str, text: str) -> None:
        entry = LogEntry(at, self._num_added, source, node, text)
        self._num_added += 1
        if not self.entries or entry > self.entries[-1]:
            self.entries.append(entry)
        else:
            insort(self.entries, entry)
        if len(self.entries) > MOST_ENTRIES + MOST_ENTRIES // 10:
            self.num_dropped += len(self.entries) - MOST_ENTRIES
            del self.entries[:-MOST_ENTRIES]


def moment_in(line: str) -> float | None:
    """Return the time that a line begins with, seconds since the epoch; None if it has none."""
    found = _TIME.match(line)
    if found is None:
        return None
    *fields, fraction, zone = found.groups()
    text = "{}-{}-{}T{}:{}:{}".format(*fields) + f".{(fraction or '').ljust(6, '0')}"
    try:
        moment = datetime.fromisoformat(text + (zone or "Z"))
    except ValueError:
        return None
    return moment.astimezone(UTC).timestamp()


def without_time(line: str) -> str:
    """Return a line without the time that it begins with."""
    found = _TIME.match(line)
    return line[found.end() :].lstrip(" ]") if found else line


def by_source(entries: Iterable[LogEntry]) -> dict[str, list[LogEntry]]:
    """Return the lines of each rank; those of the controller are left out."""
    found: dict[str, list[LogEntry]] = {}
    for entry in entries:
        if entry.source != CONTROLLER:
            found.setdefault(entry.source, []).append(entry)
    return found


def task_of(state: State, subject: DetailSubject | None) -> tuple[str, str] | None:
    """Return the task whose logs belong to a subject, and its node if only that is wanted.

    Without a subject that is the first task; None if there is none.
    """
    view = state.view
    if view is None:
        return None
    if subject is None:
        return (view.tasks[0].name, "") if view.tasks else None
    match subject.kind:
        case "task":
            return subject.name, ""
        case "node":
            slots = (
                slot for node in view.nodes if node.node == subject.name for slot in node.workers
            )
            task = next((slot.task for slot in slots if slot.task), None)
            return (task, subject.name) if task else None
        case "incident":
            found = (each.task for each in view.incidents if each.id == subject.name)
            task = next(found, None)
            return (task, "") if task else None
        case "plan":
            return None


def instant_of(state: State, subject: DetailSubject | None) -> float | None:
    """Return when the fault of an incident was, seconds since the epoch; None of anything else."""
    if state.view is None or subject is None or subject.kind != "incident":
        return None
    found = (each.fault_at for each in state.view.incidents if each.id == subject.name)
    fault_at = next(found, None)
    return None if fault_at is None else state.view.started_wall_s + fault_at


def ranks_on(state: State, task: str, node: str) -> list[int]:
    """Return the ranks of a task in their order; those on one node, unless that is empty."""
    nodes = state.view.nodes if state.view else []
    return sorted(
        slot.global_rank
        for each in nodes
        if not node or each.node == node
        for slot in each.workers
        if slot.task == task and slot.global_rank is not None
    )
