"""Cutting the bytes of a log into lines, however they arrive, in bounded memory.

A line that is longer than ``MAX_LINE_BYTES`` loses its end: what names a fault stands at its
beginning, and a log may hold anything, also no line feed at all.
"""

from typing import Final

MAX_LINE_BYTES: Final = 8192


class LineCutter:
    """Takes chunks of any size and returns the lines that are complete."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that ``chunk`` completes, without line ends."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[:MAX_LINE_BYTES]
        return [line[:MAX_LINE_BYTES].rstrip(b"\r") for line in lines]

    def flush(self) -> list[bytes]:
        """End the log: return its last line, if that has no line feed."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
