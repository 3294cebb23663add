"""Events as lines of a journal: a JSON array each, whose fields the segment's first line names.

A task at an iteration a second writes 86,400 lines a day, so names of fields are written once a
segment, in its first line:

    {"format":"unicron-journal","version":4,"first":1,"events":[["Observed","node","seq",...],...],
     "observations":[["iteration_committed","task",...],...],"crc":"3f1c9a02"}
    [17,4.283112,6,"n1",9,4.281,[3,"gpt-a",1,0,5,5.41,0.98,24576.0,1.72],"8d0b77e1"]

A line has the event's number, its time, which event of the first line it is, and that event's
fields in that order. An observation is an array of its own. So a reader with other fields, in
another order, reads what both know. Each line ends with the CRC-32 of what is before it: a changed
digit is found, not replayed.
"""

import json
import zlib
from dataclasses import dataclass, fields
from typing import Any, Final, get_args

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from controller.core.events import Event, EventBody, Observed
from nodeagent.protocol.observations import AnyObservation

FORMAT: Final = "unicron-journal"
VERSION: Final = 4
_CRC: Final = ',"%08x"]'
_CRC_LENGTH: Final = len(_CRC % 0)
_OBSERVATION: Final = "observation"

_EVENTS: Final = {body.__name__: TypeAdapter[EventBody](body) for body in get_args(EventBody)}
_EVENT_FIELDS: Final = {
    body.__name__: [each.name for each in fields(body)] for body in get_args(EventBody)
}
_EVENT_PLACES: Final = {name: place for place, name in enumerate(_EVENT_FIELDS)}
_KINDS: Final[list[type[BaseModel]]] = list(get_args(get_args(AnyObservation)[0]))
_OBSERVATION_FIELDS: Final = {
    kind.model_fields["kind"].default: [name for name in kind.model_fields if name != "kind"]
    for kind in _KINDS
}
_OBSERVATION_PLACES: Final = {name: place for place, name in enumerate(_OBSERVATION_FIELDS)}
_NUMBER: Final = TypeAdapter(int)
_TIME: Final = TypeAdapter(float)
_HEADER: Final = TypeAdapter(dict[str, JsonValue])
_ROW: Final = TypeAdapter(list[Any])


def encode_header(first: int) -> bytes:
    """Return the first line of a segment whose first event has this number, newline included."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "first": first,
        "events": [[name, *names] for name, names in _EVENT_FIELDS.items()],
        "observations": [[name, *names] for name, names in _OBSERVATION_FIELDS.items()],
    }
    text = json.dumps(header, separators=(",", ":"))[:-1]
    return f'{text},"crc":"{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def encode_event(event: Event) -> bytes:
    """Return an event as one line, newline included."""
    name = type(event.body).__name__
    values = _EVENTS[name].dump_python(event.body, mode="json")
    if isinstance(event.body, Observed):
        report = values[_OBSERVATION]
        kind = report.pop("kind")
        values[_OBSERVATION] = [_OBSERVATION_PLACES[kind], *report.values()]
    row = [event.number, event.at, _EVENT_PLACES[name], *values.values()]
    text = json.dumps(row, separators=(",", ":"))[:-1].encode()
    return text + (_CRC % zlib.crc32(text)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class LineReader:
    """Reads the lines of one segment.

    Attributes:
        first: Number of its first event.
        events: By their place in the first line, the events' names and fields.
        observations: The same of observations.
    """

    first: int
    events: list[tuple[str, list[str]]]
    observations: list[tuple[str, list[str]]]

    @classmethod
    def of(cls, header: bytes) -> "LineReader":
        """Return the reader for a segment with this first line.

        Raises:
            ValueError: It is no first line of this version. The text says what to do.
        """
        found = _HEADER.validate_json(header)
        if found.get("format") != FORMAT:
            raise ValueError(
                "this is no journal of a controller: it does not begin with its format"
            )
        if found.get("version") != VERSION:
            raise ValueError(
                f"the journal has format version {found.get('version')}, and this controller reads"
                f" version {VERSION}: use the version of Unicron that wrote it"
            )
        text, _, crc = header.rpartition(b',"crc":"')
        if crc.rstrip(b"\n") != b'%08x"}' % zlib.crc32(text):
            raise ValueError(_CHANGED)
        events, observations = _names(found["events"]), _names(found["observations"])
        return cls(_NUMBER.validate_python(found["first"]), events, observations)

    def decode(self, line: bytes) -> Event:
        """Return the event in a line.

        Raises:
            ValueError: The line is damaged, or its event is unknown here. The text says why.
        """
        row = _checked(line)
        if len(row) < 3:
            raise ValueError("an event has a number, a time and a type")
        number, at, place, *values = row
        name, names = _at(self.events, place, "event")
        adapter = _EVENTS.get(name)
        if adapter is None:
            raise ValueError(f"unknown event {name!r}")
        body = dict(zip(names, values, strict=False))
        if name == Observed.__name__ and isinstance(body.get(_OBSERVATION), list):
            body[_OBSERVATION] = self._observation(body[_OBSERVATION])
        return Event(
            number=_NUMBER.validate_python(number),
            at=_TIME.validate_python(at),
            body=adapter.validate_python(body),
        )

    def _observation(self, row: list[Any]) -> dict[str, Any]:
        kind, names = _at(self.observations, row[0] if row else None, "observation")
        return {"kind": kind, **dict(zip(names, row[1:], strict=False))}


_CHANGED: Final = "the checksum is wrong: the line was changed after it was written"


def _names(rows: JsonValue) -> list[tuple[str, list[str]]]:
    return [(name, names) for name, *names in TypeAdapter(list[list[str]]).validate_python(rows)]


def _at(known: list[tuple[str, list[str]]], place: object, what: str) -> tuple[str, list[str]]:
    if not isinstance(place, int) or not 0 <= place < len(known):
        raise ValueError(f"unknown {what} {place!r}")
    return known[place]


def _checked(line: bytes) -> list[Any]:
    """Return the fields of a line, the checksum left out.

    Raises:
        ValueError: It is no JSON array, or its checksum is another.
    """
    line = line.rstrip(b"\n")
    row = _ROW.validate_json(line)
    text = line[:-_CRC_LENGTH]
    if line[-_CRC_LENGTH:] != (_CRC % zlib.crc32(text)).encode():
        raise ValueError(_CHANGED)
    return row[:-1]


def encode_readable(event: Event) -> bytes:
    """Return an event as a line of JSON with the names of all fields, for people and scripts."""
    name = type(event.body).__name__
    body = _EVENTS[name].dump_python(event.body, mode="json")
    record = {"n": event.number, "at": event.at, "type": name, "body": body}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def reason_of(error: ValueError) -> str:
    """Return the reason why a line can't be read, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
