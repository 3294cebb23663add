"""The journal: every event, written before it is handled, one JSON object per line.

The core is deterministic, so a replay through a new machine rebuilds the state. If a crash cut a
line off, the event of that line was not handled either (``controller.store.line_files``).
"""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final, get_args

from pydantic import JsonValue, TypeAdapter, ValidationError

from controller.core.events import Event, EventBody
from controller.store.line_files import open_lines, read_lines

_LOG: Final = logging.getLogger(__name__)
_BODIES: Final = {body.__name__: TypeAdapter[EventBody](body) for body in get_args(EventBody)}
_NUMBER: Final = TypeAdapter(int)
_TIME: Final = TypeAdapter(float)
_LINE: Final = TypeAdapter(dict[str, JsonValue])


class JournalError(Exception):
    """The journal can't be read. The text names the file and the line."""


def encode_event(event: Event) -> bytes:
    """Return ``event`` as one line, newline included."""
    name = type(event.body).__name__
    body = _BODIES[name].dump_python(event.body, mode="json")
    line = {"n": event.number, "at": event.at, "type": name, "body": body}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decode_event(line: bytes) -> Event:
    """Return the event in ``line``.

    Raises:
        ValueError: The line is not an event of this version. The text says why.
    """
    fields = _LINE.validate_json(line)
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
    """Appends events to a file of mode 0600. Each line is handed to the system at once."""

    def __init__(self, path: Path) -> None:
        self._file = open_lines(path)
        _LOG.info("journal opened: path=%s bytes=%d", path, path.stat().st_size)

    def append(self, event: Event) -> None:
        """Write ``event``. When this returns, the event survives a kill of this process."""
        self._file.write(encode_event(event))
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_journal(path: Path) -> Iterator[Event]:
    """Yield the events in ``path``. An incomplete last line is dropped.

    Raises:
        JournalError: A complete line is damaged, or of another version.
    """
    for number, line in enumerate(read_lines(path), start=1):
        try:
            event = decode_event(line)
        except ValueError as error:  # ValidationError is one
            reason = _reason(error)
            _LOG.error("journal line is damaged: path=%s line=%d reason=%s", path, number, reason)
            raise JournalError(f"{path}, line {number}: {reason}") from error
        yield event


def _reason(error: ValueError) -> str:
    """Return the reason in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
