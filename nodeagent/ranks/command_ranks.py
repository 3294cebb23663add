"""What the agent does for ranks that are commands, which send no reports themselves.

A command knows nothing of its agent. Its iterations are read from its log (``profiles.progress``).
Its exit with 0 means that it has finished. A stop is a SIGTERM. If its generation is halted, the
agent reports for it that it has no state to continue with. The next generation then begins with new
processes, which ends this one.

Lines are taken once, also where agents are replaced: how far a log was read is stored with the
report of the last line in it. A program that has attached to the agent reports its iterations
itself, and no line of its log is taken from then on. It leaves a file that says so before it
continues, since its first lines may be read before its first message arrives.
"""

import asyncio
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import Mark, MarkScope
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.process_tools.process_files import ExitRecord
from nodeagent.protocol.observations import (
    IterationCommitted,
    ProgressUnread,
    RankDone,
    RankHalted,
)
from nodeagent.protocol.regroup import Position
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_process import RankProcess
from profiles.iteration_line import IterationLine
from profiles.progress.progress_reader import ProgressReader

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""Time between two looks at a log, seconds."""
READ_BYTES: Final = 1024 * 1024
"""Most that is read at one look; the rest is read at the next."""
MAX_LINE_BYTES: Final = 64 * 1024
"""A longer line is none: what came so far is skipped."""
_HINT: Final = re.compile(rb"(?i)iter|step|epoch|batch|loss|update|\d/\d+ \[")
"""In every line that a known pattern reads. Nearly all lines are others: they are not decoded."""
_LINE_END: Final = re.compile(rb"[\r\n]+")
"""Blank lines say nothing: a run of them is one end."""
_HOLD_S: Final = 0.02
"""How long one look may hold the agent's loop; what is left is taken at the next one."""
_NUM_LINES: Final = 32
"""Lines that are taken between two looks at the clock."""


@dataclass(slots=True)
class _Reading:
    """How far the log of one process is read."""

    offset: int
    stored_offset: int
    last_at: float
    reader: ProgressReader
    reads_all: bool
    """Its task has a pattern of its own."""
    last_iteration: int = 0
    has_told_unread: bool = False


class CommandRanks:
    """The commands among the ranks of the node."""

    def __init__(self, files: RankFiles, outbox: OutboxFile, clock: NodeClock) -> None:
        self._files = files
        self._outbox = outbox
        self._clock = clock
        self._readings: dict[int, _Reading] = {}

    async def follow(self, rank: RankProcess) -> None:
        """Take iterations from the rank's log until it has ended, or reports itself."""
        while not (rank.exited.is_set() or rank.is_attached):
            has_more = self._look_or_warn(rank)
            await asyncio.sleep(0 if has_more else LOOK_S)

    def look(self, rank: RankProcess, *, is_last: bool = False) -> bool:
        """Take the lines that are new in the rank's log; return whether there may be more.

        Raises:
            OSError: They can't be read, or stored: then they are taken at the next look.
        """
        if rank.is_attached or rank.is_foreign:
            return False
        reading = self._reading(rank)
        data = _read(self._files.log(rank.first_key), reading.offset)
        if self._files.is_attached(
            rank.first_key
        ):  # after the reading: that may hold lines from since
            rank.is_attached = True
            return False
        has_more = len(data) == READ_BYTES
        begin, until_s = 0, self._clock.monotonic_s() + _HOLD_S
        for number, match in enumerate(_LINE_END.finditer(data), start=1):
            self._take(rank, reading, data[begin : match.start()], reading.offset + match.end())
            begin = match.end()
            if number % _NUM_LINES == 0 and self._clock.monotonic_s() > until_s:
                has_more = True
                break
        if is_last and not has_more and begin < len(data):
            self._take(rank, reading, data[begin:], reading.offset + len(data))
            begin = len(data)
        if begin == 0 and len(data) >= MAX_LINE_BYTES:
            begin = len(data)
        reading.offset += begin
        if reading.offset - reading.stored_offset >= READ_BYTES:
            self._outbox.advance(MarkScope.LOG, rank.name, reading.offset)
            reading.stored_offset = reading.offset
        return has_more

    async def take_end(self, rank: RankProcess, ended: ExitRecord | None) -> None:
        """Take the last lines of a process that is gone, and that it has finished if it has.

        Raises:
            OSError: What it says can't be stored.
        """
        while self.look(rank, is_last=True):  # noqa: ASYNC110 - it works each time
            await asyncio.sleep(0)
        self._readings.pop(rank.pid, None)
        if ended is None or ended.exit_code != 0:
            return
        key, marks = rank.key, self._outbox.outbox
        is_stopped = key.generation <= marks.mark(MarkScope.STOP, key.task)
        done = RankDone(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            iteration=rank.iteration,
            reason="stopped" if is_stopped else "finished",
        )
        self._outbox.store(done, self._clock.wall_s(), Mark(scope=MarkScope.DONE, name=rank.name))

    def halt(self, rank: RankProcess) -> None:
        """Say for the rank that it has parked with nothing to continue with.

        Raises:
            OSError: That can't be stored.
        """
        key = rank.key
        position = Position(committed=rank.iteration, has_state=False)
        halted = RankHalted(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            position=position,
        )
        self._outbox.store(halted, self._clock.wall_s())

    def _look_or_warn(self, rank: RankProcess) -> bool:
        try:
            return self.look(rank)
        except OSError as error:
            _LOG.warning(
                "cannot read iterations from a rank's log: rank=%s reason=%s", rank.name, error
            )
            return False

    def _reading(self, rank: RankProcess) -> _Reading:
        reading = self._readings.get(rank.pid)
        if reading is None:
            offset = self._outbox.outbox.mark(MarkScope.LOG, rank.name)
            place = rank.record.launch.command
            own = place.command.progress if place is not None else ""
            now_s = self._clock.monotonic_s()
            reading = _Reading(offset, offset, now_s, ProgressReader(own), bool(own))
            self._readings[rank.pid] = reading
        return reading

    def _take(self, rank: RankProcess, reading: _Reading, data: bytes, end: int) -> None:
        if not reading.reads_all and _HINT.search(data) is None:
            return
        line = reading.reader.take(data.decode("utf-8", "replace"))
        if line is None:
            self._tell_unread(rank, reading)
            return
        now = self._clock.monotonic_s()
        num_iterations = max(1, line.iteration - reading.last_iteration)
        measured_s = (now - reading.last_at) / num_iterations
        reading.last_at, reading.last_iteration = now, line.iteration
        committed = _committed(rank, line, measured_s)
        mark = Mark(scope=MarkScope.LOG, name=rank.name, value=end)
        self._outbox.store(committed, self._clock.wall_s(), mark)
        reading.stored_offset = end
        rank.iteration, rank.duration_s = committed.iteration, committed.duration_s

    def _tell_unread(self, rank: RankProcess, reading: _Reading) -> None:
        """Report once that lines look like iterations and are not read."""
        unread, key = reading.reader.unread, rank.key
        if unread is None or reading.has_told_unread:
            return
        told = ProgressUnread(
            task=key.task,
            generation=key.generation,
            global_rank=key.global_rank,
            line=unread.line,
            pattern=unread.pattern,
        )
        self._outbox.store(told, self._clock.wall_s())
        reading.has_told_unread = True


def _committed(rank: RankProcess, line: IterationLine, measured_s: float) -> IterationCommitted:
    key = rank.key
    return IterationCommitted(
        task=key.task,
        generation=key.generation,
        global_rank=key.global_rank,
        iteration=line.iteration,
        loss=line.loss,
        duration_s=measured_s if line.duration_s is None else line.duration_s,
        num_tokens=0,
        grad_norm=line.grad_norm,
    )


def _read(log: Path, offset: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(offset)
            return file.read(READ_BYTES)
    except FileNotFoundError:
        return b""
