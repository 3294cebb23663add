"""The journal: every event, one line each (``controller.store.journal_lines``), in segments.

``journal.jsonl`` is written; when it is long enough, it becomes a file of ``journal.d``, and a new
one begins. ``controller.store.compaction`` makes a snapshot of the state at the end of each closed
segment and compresses the segment. A controller begins with the newest snapshot and the events
after it.

``append`` writes, and ``commit`` waits until the disk has what was written. Nothing that follows
from an event leaves the controller before its commit. So if a crash, or a loss of power, cut the
file off, nothing has followed from the events that are missing (``controller.store.line_files``).
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from controller.core.events import Event
from controller.store.journal_lines import LineReader, encode_event, encode_header, reason_of
from controller.store.line_files import open_lines, read_lines, sync_directory
from controller.store.segments import JournalSegment, SegmentError, closed_segments, segments_of

_LOG: Final = logging.getLogger(__name__)
SEGMENT_EVENTS: Final = 20_000
"""A controller replays no more than about this many events when it begins: some two seconds."""


class JournalError(Exception):
    """The journal can't be read. The text names the file and the line."""


class DamagedLineError(JournalError):
    """A line can't be read.

    Attributes:
        path: The segment.
        line: Its number in the file, from 1.
        begin: Where it begins, bytes from the file's begin.
    """

    def __init__(self, text: str, path: Path, line: int, begin: int) -> None:
        super().__init__(text)
        self.path, self.line, self.begin = path, line, begin


class Journal:
    """Appends events to a file of mode 0600, and commits them to the disk.

    Args:
        path: The file. One that is there is continued.
        num_events: Events of the run so far. They are in this file, in closed segments, or only in
            a snapshot.
        segment_events: How many events a segment has.

    Raises:
        OSError: The file can't be opened or written.
    """

    def __init__(
        self, path: Path, num_events: int = 0, segment_events: int = SEGMENT_EVENTS
    ) -> None:
        self._path, self._segment_events = path, segment_events
        self._num_events = num_events
        _finish_closing(path)
        self._file = open_lines(path)
        if os.fstat(self._file.fileno()).st_size:
            self._first = _first_of(path)
        else:
            self._first = num_events + 1
            self._file.write(encode_header(self._first))
            self._file.flush()
            os.fsync(self._file.fileno())
            sync_directory(path.parent)  # else a loss of power may take the new file's name
        self.num_written = 0
        """Bytes that this controller has appended."""
        self._closed_bytes = 0
        self.measure()
        self._own_bytes = os.fstat(self._file.fileno()).st_size
        _LOG.info("journal opened: path=%s bytes=%d", path, self._own_bytes)
        self._leave_other_version()

    def _leave_other_version(self) -> None:
        """Begin a segment of our own if another version's is open: its first line names its fields.

        Raises:
            OSError: The disk is full, or broken.
        """
        with self._path.open("rb") as file:
            if file.readline() == encode_header(self._first):
                return
        if self._num_events >= self._first:
            self.begin_segment()
            return
        # It has no events yet. A crash between these steps leaves an empty file, which is begun.
        self._file.truncate(0)
        self._file.write(encode_header(self._first))
        self.commit_at_once()
        self._own_bytes = os.fstat(self._file.fileno()).st_size

    @property
    def num_bytes(self) -> int:
        """Size of all segments, with what is not on the disk yet."""
        return self._closed_bytes + self._own_bytes

    def append(self, event: Event) -> None:
        """Write ``event``. It survives a kill of this process, or a loss of power, once committed.

        Raises:
            OSError: The disk is full, or broken.
        """
        line = encode_event(event)
        self._file.write(line)
        self._own_bytes += len(line)
        self.num_written += len(line)
        self._num_events = event.number

    async def commit(self) -> None:
        """Return once the disk has all events that were appended.

        Raises:
            OSError: The disk is full, or broken.
        """
        self._file.flush()
        await asyncio.to_thread(os.fdatasync, self._file.fileno())

    def commit_at_once(self) -> None:
        """Commit without giving way to the loop. A commit under way does no harm.

        Raises:
            OSError: The disk is full, or broken.
        """
        self._file.flush()
        os.fdatasync(self._file.fileno())

    @property
    def is_long(self) -> bool:
        """Whether the segment has as many events as it should."""
        return self._num_events - self._first + 1 >= self._segment_events

    def begin_segment(self) -> Path:
        """Close the segment and begin the next; return the closed one. All events are committed.

        The journal is whole at every moment of this: first the segment gets its second name, then
        the next one takes its first name.

        Raises:
            OSError: The disk is full, or broken.
        """
        closed = JournalSegment.place(self._path, self._first, self._num_events)
        if not closed.parent.is_dir():
            closed.parent.mkdir(mode=0o700)
            sync_directory(self._path.parent)  # before the next segment takes this one's name
        following = self._path.with_name(f"{self._path.name}.next")
        following.unlink(missing_ok=True)
        with contextlib.ExitStack() as on_error:
            file = on_error.enter_context(open_lines(following))
            file.write(encode_header(self._num_events + 1))
            file.flush()
            os.fsync(file.fileno())
            os.link(self._path, closed)
            sync_directory(closed.parent)
            following.replace(self._path)
            on_error.pop_all()
        self._file.close()
        self._file, self._first = file, self._num_events + 1
        sync_directory(self._path.parent)
        self._closed_bytes += self._own_bytes
        self._own_bytes = os.fstat(file.fileno()).st_size
        _LOG.info("journal segment closed: path=%s events=%d", closed, self._num_events)
        return closed

    def measure(self) -> None:
        """Look at the size of the closed segments: they were compressed, or deleted."""
        self._closed_bytes = sum(each.num_bytes for each in closed_segments(self._path))

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._file.close()


def _finish_closing(path: Path) -> None:
    """Undo what a crash has left of ``begin_segment``: the segment is still the one in use."""
    path.with_name(f"{path.name}.next").unlink(missing_ok=True)
    for segment in closed_segments(path):
        if segment.is_same_file(path):
            segment.path.unlink()


def _first_of(path: Path) -> int:
    return LineReader.of(read_lines(path)[0]).first


class JournalRecord(NamedTuple):
    """A line of the journal that holds an event.

    Attributes:
        path: Its segment.
        line: Its number in the file, from 1.
        num_bytes: Its length, newline included.
        event: The event.
    """

    path: Path
    line: int
    num_bytes: int
    event: Event


def read_journal(path: Path, after: int = 0) -> Iterator[Event]:
    """Yield the events of the journal whose newest segment is ``path``.

    An incomplete last line is dropped.

    Args:
        path: The segment in use.
        after: Events up to this number are not needed, and need not be there.

    Raises:
        JournalError: A complete line is damaged, or of another version; or events are missing.
        OSError: A file can't be read.
    """
    return (record.event for record in read_records(path, after))


def read_records(path: Path, after: int = 0) -> Iterator[JournalRecord]:
    """Yield the records of the journal whose newest segment is ``path``; see ``read_journal``.

    Raises:
        DamagedLineError: A complete line is damaged, of another version, or follows a gap.
        OSError: A file can't be read.
    """
    num_events = after
    for segment in segments_of(path):
        if segment.last is not None and segment.last <= after:
            continue
        for record in _read_segment(segment, num_events):
            if record.event.number > after:
                num_events = record.event.number
                yield record


def _read_segment(segment: JournalSegment, num_events: int) -> Iterator[JournalRecord]:
    """Yield the records of one segment, whose first event follows ``num_events`` or is older."""
    path, begin, known = segment.path, 0, num_events
    try:
        lines = segment.lines()
    except SegmentError as error:
        raise DamagedLineError(f"{path}: {error}", path, 1, 0) from error
    reader: LineReader | None = None
    for number, line in enumerate(lines, start=1):
        try:
            if reader is None:
                reader = LineReader.of(line)
                _check_follows(reader.first, min(known, reader.first - 1), "its first event")
                known, event = reader.first - 1, None
            else:
                event = reader.decode(line)
                _check_follows(event.number, known, "event")
                known = event.number
        except ValueError as error:  # ValidationError is one
            reason = reason_of(error)
            _LOG.error("journal line is damaged: path=%s line=%d reason=%s", path, number, reason)
            text = f"{path}, line {number}: {reason}"
            raise DamagedLineError(text, path, number, begin) from error
        begin += len(line) + 1
        if event is not None:
            yield JournalRecord(path, number, len(line) + 1, event)


def _check_follows(number: int, known: int, what: str) -> None:
    """Check that no event is missing.

    Raises:
        ValueError: Some are.
    """
    if number != known + 1:
        raise ValueError(f"{what} {number} follows event {known}: some are missing")


class CutOff(NamedTuple):
    """What was cut off a journal: from where on, how many bytes, and where they are now."""

    path: Path
    line: int
    num_bytes: int
    kept: Path


def cut_journal(path: Path, after: int = 0) -> CutOff | None:
    """Cut off the first damaged line and all after it, into files beside the journal.

    Hold the lock of the run. None if every line after event ``after`` is whole.

    Raises:
        OSError: A file can't be read or written. The journal is then as it was.
    """
    try:
        for _ in read_records(path, after):
            pass
    except DamagedLineError as damaged:
        return _cut_at(path, damaged)
    return None


def _cut_at(path: Path, damaged: DamagedLineError) -> CutOff:
    segments = segments_of(path)
    place = next(n for n, each in enumerate(segments) if each.path == damaged.path)
    hurt, later = segments[place], segments[place + 1 :]
    whole = hurt.content()
    kept = path.with_name(f"{path.name}.from-line-{damaged.line}")
    with kept.open("xb") as file:
        kept.chmod(0o600)
        file.write(whole[damaged.begin :])
        for segment in later:
            file.write(segment.content())
        file.flush()
        os.fsync(file.fileno())
    remains = path.with_name(f"{path.name}.next")
    with remains.open("wb") as file:
        remains.chmod(0o600)
        file.write(whole[: damaged.begin])
        file.flush()
        os.fsync(file.fileno())
    for segment in (hurt, *later):
        if segment.path != path:
            segment.path.unlink()
    remains.replace(path)
    sync_directory(path.parent)
    _LOG.warning("journal cut off: path=%s line=%d kept=%s", hurt.path, damaged.line, kept)
    return CutOff(hurt.path, damaged.line, kept.stat().st_size, kept)
