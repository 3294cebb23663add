"""The journal: every event, one JSON object per line. The first line names the format's version.

The core is deterministic, so a replay through a new machine rebuilds the state. Each line ends with
the CRC-32 of what is before it: a changed digit is found, not replayed.

``append`` writes, and ``commit`` waits until the disk has what was written. Nothing that follows
from an event leaves the controller before its commit. So if a crash, or a loss of power, cut the
file off, nothing has followed from the events that are missing (``controller.store.line_files``).
"""

import asyncio
import json
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from controller.core.events import Event, EventBody
from controller.store.line_files import open_lines, read_lines

_LOG: Final = logging.getLogger(__name__)
_BODIES: Final = {body.__name__: TypeAdapter[EventBody](body) for body in get_args(EventBody)}
_NUMBER: Final = TypeAdapter(int)
_TIME: Final = TypeAdapter(float)
_LINE: Final = TypeAdapter(dict[str, JsonValue])
_FORMAT: Final = "unicron-journal"
_VERSION: Final = 3
_CRC: Final = b',"crc":"%08x"}'
_CRC_LENGTH: Final = len(_CRC % 0)


class JournalError(Exception):
    """The journal can't be read. The text names the file and the line."""


class DamagedLineError(JournalError):
    """A line can't be read.

    Attributes:
        line: Its number in the file, from 1.
        begin: Where it begins, bytes from the file's begin.
    """

    def __init__(self, text: str, line: int, begin: int) -> None:
        super().__init__(text)
        self.line, self.begin = line, begin


def encode_event(event: Event) -> bytes:
    """Return ``event`` as one line, newline included."""
    name = type(event.body).__name__
    body = _BODIES[name].dump_python(event.body, mode="json")
    return _with_crc({"n": event.number, "at": event.at, "type": name, "body": body})


def _with_crc(fields: dict[str, JsonValue]) -> bytes:
    text = json.dumps(fields, separators=(",", ":")).encode()[:-1]
    return text + _CRC % zlib.crc32(text) + b"\n"


def _checked(line: bytes) -> dict[str, JsonValue]:
    """Return the fields of a line.

    Raises:
        ValueError: It is no JSON object, or its checksum is another.
    """
    fields = _LINE.validate_json(line)
    text = line.rstrip(b"\n")[:-_CRC_LENGTH]
    if line.rstrip(b"\n") != text + _CRC % zlib.crc32(text):
        raise ValueError("the checksum is wrong: the line was changed after it was written")
    return fields


def decode_event(line: bytes) -> Event:
    """Return the event in ``line``.

    Raises:
        ValueError: The line is not an event of this version. The text says why.
    """
    fields = _checked(line)
    missing = {"n", "at", "type", "body"} - fields.keys()
    if missing:
        raise ValueError(f"no {', '.join(sorted(missing))}")
    adapter = _BODIES.get(str(fields["type"]))
    if adapter is None:
        raise ValueError(f"unknown event {fields['type']!r}")
    return Event(
        number=_NUMBER.validate_python(fields["n"]),
        at=_TIME.validate_python(fields["at"]),
        body=adapter.validate_python(fields["body"]),
    )


class Journal:
    """Appends events to a file of mode 0600, and commits them to the disk.

    Raises:
        OSError: The file can't be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_lines(path)
        if not os.fstat(self._file.fileno()).st_size:
            self._file.write(_with_crc({"format": _FORMAT, "version": _VERSION}))
            self._file.flush()
            os.fsync(self._file.fileno())
            _sync_directory(path.parent)  # else a loss of power may take the new file's name
        self.num_bytes = os.fstat(self._file.fileno()).st_size
        """Size of the file, with what is not on the disk yet."""
        _LOG.info("journal opened: path=%s bytes=%d", path, self.num_bytes)

    def append(self, event: Event) -> None:
        """Write ``event``. It survives a kill of this process, or a loss of power, once committed.

        Raises:
            OSError: The disk is full, or broken.
        """
        line = encode_event(event)
        self._file.write(line)
        self.num_bytes += len(line)

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

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._file.close()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class JournalRecord(NamedTuple):
    """A line of the journal that holds an event.

    Attributes:
        line: Its number in the file, from 1.
        end: Where it ends, bytes from the file's begin.
        text: Its bytes, without the newline.
        event: The event.
    """

    line: int
    end: int
    text: bytes
    event: Event

    @property
    def json(self) -> bytes:
        """The event as a line of JSON without the checksum."""
        return self.text[:-_CRC_LENGTH] + b"}\n"


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events in ``path``. An incomplete last line is dropped.

    Raises:
        JournalError: A complete line is damaged, or of another version.
    """
    return (record.event for record in read_records(path))


def read_records(path: Path) -> Iterator[JournalRecord]:
    """Yield the records in ``path``. An incomplete last line is dropped.

    Raises:
        DamagedLineError: A complete line is damaged, of another version, or follows a gap.
    """
    end = num_events = 0
    for number, line in enumerate(read_lines(path), start=1):
        end += len(line) + 1
        try:
            if number == 1:
                _check_header(line)
                continue
            event = _decode_next(line, num_events)
            num_events = event.number
        except ValueError as error:  # ValidationError is one
            reason = _reason(error)
            _LOG.error("journal line is damaged: path=%s line=%d reason=%s", path, number, reason)
            text = f"{path}, line {number}: {reason}"
            raise DamagedLineError(text, number, end - len(line) - 1) from error
        yield JournalRecord(number, end, line, event)


def _decode_next(line: bytes, num_events: int) -> Event:
    """Return the event in a line that follows ``num_events`` events.

    Raises:
        ValueError: The line is damaged, or of another version, or events are missing before it.
    """
    event = decode_event(line)
    if event.number != num_events + 1:
        raise ValueError(f"event {event.number} follows event {num_events}: some are missing")
    return event


class CutOff(NamedTuple):
    """What was cut off a journal: from which line on, how many bytes, and where they are now."""

    line: int
    num_bytes: int
    kept: Path


def cut_journal(path: Path) -> CutOff | None:
    """Cut off the first damaged line and all after it, into a file beside the journal.

    Hold the lock of the run. None if every line is whole.

    Raises:
        OSError: A file can't be read or written. The journal is then as it was.
    """
    try:
        for _ in read_records(path):
            pass
    except DamagedLineError as damaged:
        whole = path.read_bytes()
        kept = path.with_name(f"{path.name}.from-line-{damaged.line}")
        with kept.open("xb") as file:
            kept.chmod(0o600)
            file.write(whole[damaged.begin :])
            file.flush()
            os.fsync(file.fileno())
        with path.open("r+b") as file:
            file.truncate(damaged.begin)
            os.fsync(file.fileno())
        _sync_directory(path.parent)
        _LOG.warning("journal cut off: path=%s line=%d kept=%s", path, damaged.line, kept)
        return CutOff(damaged.line, len(whole) - damaged.begin, kept)
    return None


def _check_header(line: bytes) -> None:
    """Check that a journal's first line is that of this version.

    Raises:
        ValueError: It is not. The text says what to do.
    """
    fields = _LINE.validate_json(line)
    if fields.get("format") != _FORMAT:
        raise ValueError("this is no journal of a controller: it does not begin with its format")
    if fields.get("version") != _VERSION:
        raise ValueError(
            f"the journal has format version {fields.get('version')}, and this controller reads"
            f" version {_VERSION}: use the version of Unicron that wrote it"
        )
    _checked(line)


def _reason(error: ValueError) -> str:
    """Return the reason in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
