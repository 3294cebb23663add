"""The content of the outbox: reports for the controller, each sent exactly once. Pure.

The outbox is a fold over *records* (``outbox_records``). Every change is a record; applying the
same records to an empty outbox gives the same outbox, so the file of records (``outbox_file``) is
all that survives an agent. Two ideas make the delivery exact:

- A *report* has a sequence number and stays until the controller acknowledges it. The controller
  drops numbers it has seen.
- A *mark* is a fact that is stored in the same record as the report it guards, and outlives the
  report: the newest sequence number taken from a rank, that a rank's exit was reported, a
  task's newest generation. A report whose mark is already there is not stored again. So a
  duplicate is impossible at whatever instant the agent dies, also after the acknowledgement.

The outbox also holds the newest halt of each task. A rank that connects later, perhaps to the next
agent, must get the same order.

Rule for "full": beyond ``MAX_REPORTS`` reports or ``MAX_REPORT_BYTES`` the oldest routine reports
(iterations, checkpoints, findings of the node's probes) are dropped; exits, exceptions, starts and
reports that a regroup waits for are never dropped. Sequence numbers then have gaps.

Nothing here reads a clock or a file.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, assert_never

from nodeagent.outbox.outbox_records import (
    Acknowledged,
    Attached,
    Mark,
    Marked,
    MarkScope,
    OutboxHead,
    OutboxRecord,
    Stored,
    StoredHalt,
)
from nodeagent.protocol.codec import encode
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import AnyObservation, CheckpointSaved, IterationCommitted
from nodeagent.protocol.orders import HaltOrder

MAX_REPORTS: Final = 10_000
MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
MAX_PROCESS_MARKS: Final = 2_048
"""Marks about single processes that are kept; the oldest concern processes that ended long ago."""

_OF_RUN: Final = frozenset(
    {MarkScope.START, MarkScope.FENCE, MarkScope.STOP, MarkScope.GRACEFUL_STOP}
)
_OF_TASK: Final = frozenset({MarkScope.FENCE, MarkScope.STOP, MarkScope.GRACEFUL_STOP})
_ROUTINE: Final = (IterationCommitted, CheckpointSaved, NodeFinding)


@dataclass(frozen=True, slots=True)
class HeldReport:
    """A report as it travels. Kept as bytes: thousands of objects would weigh ten times as much."""

    seq: int
    line: bytes
    is_routine: bool


class Outbox:
    """Reports that wait for their acknowledgement, and the marks. Changed by ``apply`` only."""

    def __init__(
        self, max_reports: int = MAX_REPORTS, max_report_bytes: int = MAX_REPORT_BYTES
    ) -> None:
        self.run_id: str | None = None
        self.term = 0
        self.next_seq = 1
        self.num_bytes = 0
        self._reports: dict[int, HeldReport] = {}
        self._marks: dict[tuple[MarkScope, str], int] = {}
        self._halts: dict[TaskId, HaltOrder] = {}
        self._max_reports = max_reports
        self._max_report_bytes = max_report_bytes

    @property
    def first_seq(self) -> int:
        """The oldest sequence number still held; ``next_seq`` if there is none."""
        return next(iter(self._reports), self.next_seq)

    @property
    def num_reports(self) -> int:
        """Reports that wait for their acknowledgement."""
        return len(self._reports)

    def after(self, seq: int) -> Iterator[HeldReport]:
        """Yield the held reports beyond ``seq``, in order."""
        return (report for report in list(self._reports.values()) if report.seq > seq)

    def mark(self, scope: MarkScope, name: str) -> int:
        """Return the value of a mark; 0 if it was never set."""
        return self._marks.get((scope, name), 0)

    def halt(self, task: TaskId) -> HaltOrder | None:
        """Return the newest halt that was asked of the task, if there was one."""
        return self._halts.get(task)

    def store(
        self, observation: AnyObservation, wall_s: float, mark: Mark | None = None
    ) -> Stored | None:
        """Return the record that stores ``observation``, or None if its mark was reached before."""
        if mark is not None and self.mark(mark.scope, mark.name) >= mark.value:
            return None
        report = Report(seq=self.next_seq, wall_s=wall_s, observation=observation)
        return Stored(report=report, mark=mark)

    def advance(self, mark: Mark) -> Marked | None:
        """Return the record that raises ``mark``, or None if it is as high already."""
        return None if self.mark(mark.scope, mark.name) >= mark.value else Marked(mark=mark)

    def request_halt(self, halt: HaltOrder) -> StoredHalt | None:
        """Return the record of ``halt``, or None if it asks for nothing new.

        Halts of one generation add up, in whatever order they come: ranks that are broken stay so,
        and a halt at once is not taken back by one at a boundary.
        """
        known = self._halts.get(halt.task)
        broken, at_boundary = set(halt.broken), halt.at_boundary
        completes_copies = halt.completes_copies
        if known is not None and known.generation > halt.generation:
            return None
        if known is not None and known.generation == halt.generation:
            broken |= set(known.broken)
            at_boundary &= known.at_boundary
            completes_copies |= known.completes_copies
        whole = HaltOrder(
            task=halt.task,
            generation=halt.generation,
            broken=tuple(sorted(broken)),
            at_boundary=at_boundary,
            completes_copies=completes_copies,
        )
        return None if whole == known else StoredHalt(halt=whole)

    def acknowledge(self, seq: int) -> Acknowledged | None:
        """Return the record that drops the reports up to ``seq``, or None if none is held."""
        return Acknowledged(seq=seq) if self._reports and self.first_seq <= seq else None

    def attach(
        self, run_id: str, term: int, last_seq: int, processes: Iterable[str]
    ) -> list[OutboxRecord]:
        """Return the records of a controller that takes over, having seen up to ``last_seq``.

        What it has seen is not dropped before it acknowledges: seen is not yet journalled.
        ``processes`` are the ranks that live now: under another ``run_id`` they become foreign.
        """
        records: list[OutboxRecord] = []
        is_new_run = run_id != self.run_id
        if is_new_run or term != self.term:
            foreign = list(processes) if is_new_run else []
            records.append(Attached(run_id=run_id, term=term, foreign=foreign))
        next_seq = 1 if is_new_run else self.next_seq
        if last_seq >= next_seq:
            records.append(Acknowledged(seq=last_seq))
        return records

    def apply(self, record: OutboxRecord) -> None:
        """Take in one record, new or read back."""
        match record:
            case OutboxHead():
                self.run_id, self.term, self.next_seq = record.run_id, record.term, record.next_seq
                self._clear()
                self._marks = {(mark.scope, mark.name): mark.value for mark in record.marks}
                self._halts = {}
            case Stored():
                self._add(record.report)
                if record.mark is not None:
                    self._raise(record.mark)
            case Marked():
                self._raise(record.mark)
            case StoredHalt():
                self._halts[record.halt.task] = record.halt
            case Acknowledged():
                self._drop(seq for seq in list(self._reports) if seq <= record.seq)
                self.next_seq = max(self.next_seq, record.seq + 1)
            case Attached():
                self._attach(record)
            case _:
                assert_never(record)

    def trim(self) -> int:
        """Drop the oldest routine reports of an overfull outbox; return how many went.

        A tenth more than needed goes, so that a full outbox is not trimmed at every report.
        """
        if not self._is_above(1.0):
            return 0
        num_before = len(self._reports)
        for seq in [held.seq for held in self._reports.values() if held.is_routine]:
            if not self._is_above(0.9):
                break
            self._drop([seq])
        return num_before - len(self._reports)

    def snapshot(self) -> Iterator[bytes]:
        """Yield the lines of a compacted file: folding them gives this outbox again."""
        process_marks = [key for key in self._marks if key[0] not in _OF_TASK]
        for key in process_marks[: max(0, len(process_marks) - MAX_PROCESS_MARKS)]:
            del self._marks[key]
        marks = [Mark(scope=s, name=name, value=value) for (s, name), value in self._marks.items()]
        yield encode(
            OutboxHead(run_id=self.run_id, term=self.term, next_seq=self.next_seq, marks=marks)
        )
        for halt in self._halts.values():
            yield encode(StoredHalt(halt=halt))
        for held in self._reports.values():
            yield encode(Stored(report=Report.model_validate_json(held.line)))

    def _is_above(self, share: float) -> bool:
        return (
            len(self._reports) > share * self._max_reports
            or self.num_bytes > share * self._max_report_bytes
        )

    def _add(self, report: Report) -> None:
        line = encode(report)
        is_routine = isinstance(report.observation, _ROUTINE)
        self._reports[report.seq] = HeldReport(report.seq, line, is_routine)
        self.num_bytes += len(line)
        self.next_seq = max(self.next_seq, report.seq + 1)

    def _drop(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            self.num_bytes -= len(self._reports.pop(seq).line)

    def _clear(self) -> None:
        self._reports.clear()
        self.num_bytes = 0

    def _raise(self, mark: Mark) -> None:
        # Taken out first, so that the newest marks stand last and the oldest are forgotten first.
        value = max(self._marks.pop((mark.scope, mark.name), 0), mark.value)
        self._marks[mark.scope, mark.name] = value

    def _attach(self, record: Attached) -> None:
        if record.run_id != self.run_id:
            self._clear()
            self.next_seq = 1
            self._marks = {
                key: value for key, value in self._marks.items() if key[0] not in _OF_RUN
            }
            self._halts = {}
            for process in record.foreign:
                self._raise(Mark(scope=MarkScope.FOREIGN, name=process))
        self.run_id, self.term = record.run_id, record.term
