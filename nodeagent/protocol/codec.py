"""Messages to bytes and back: one JSON object per line, UTF-8, at most ``MAX_LINE_BYTES``.

``LineSplitter`` turns a stream that arrives in arbitrary pieces into lines; ``Codec`` turns lines
into validated messages of one union; ``MessageReader`` does both for one connection. None of them
does I/O. Nothing is ever unpickled.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

MAX_LINE_BYTES: Final = 4 * 1024 * 1024
"""Longest line that is accepted: bounds the memory that a broken peer can claim."""

MessageT = TypeVar("MessageT")


class ProtocolError(Exception):
    """The peer sent something that is not a message of this protocol. The stream is unusable."""


class LineSplitter:
    """Collects bytes and returns complete lines, without their newline."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._buffer = bytearray()
        self._max_line_bytes = max_line_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes, in order; empty lines are dropped.

        Raises:
            ProtocolError: A line is longer than allowed.
        """
        self._buffer += data
        *complete, rest = self._buffer.split(b"\n")
        lines = [bytes(line) for line in complete if line]
        self._buffer = rest
        longest = max((len(line) for line in (*lines, rest)), default=0)
        if longest > self._max_line_bytes:
            raise ProtocolError(
                f"line of {longest} bytes; at most {self._max_line_bytes} are allowed"
            )
        return lines


class Codec(Generic[MessageT]):
    """Encodes any message and decodes lines into the members of one discriminated union."""

    def __init__(self, adapter: TypeAdapter[MessageT]) -> None:
        self._adapter = adapter

    def decode(self, line: bytes) -> MessageT:
        """Return the message in ``line``. Unknown fields are ignored, unknown kinds are not.

        Raises:
            ProtocolError: Not JSON, an unknown kind, or a field missing or of the wrong type. Its
                text names the field but repeats no more than 80 bytes of the line.
        """
        try:
            return self._adapter.validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "message"
            head = line[:80].decode("utf-8", "replace")
            raise ProtocolError(f"{place}: {first['msg']} (in {head!r})") from error


class MessageReader(Generic[MessageT]):
    """Turns the bytes of one connection into messages. A new connection needs a new reader."""

    def __init__(self, codec: Codec[MessageT]) -> None:
        self._codec = codec
        self._splitter = LineSplitter()

    def feed(self, data: bytes) -> Iterator[MessageT]:
        """Yield the messages that ``data`` completes, in order.

        The messages before an invalid line are yielded before the error is raised.

        Raises:
            ProtocolError: See ``LineSplitter.feed`` and ``Codec.decode``.
        """
        for line in self._splitter.feed(data):
            yield self._codec.decode(line)


def encode(message: BaseModel) -> bytes:
    """Return ``message`` as one line, newline included."""
    return message.model_dump_json().encode() + b"\n"
