"""A place where the lines of a log come from: a device, a program's output, or a file."""

from typing import Protocol

from nodeagent.detect.lost_lines import Lost


class LogSource(Protocol):
    """Where lines come from."""

    @property
    def name(self) -> str:
        """The source in an operator's words."""

    def read(self) -> list[bytes]:
        """Return new lines. Raises ``OSError`` if that can't be done now."""

    def take_lost(self) -> Lost:
        """Return what was lost since the last call."""

    def close(self) -> None:
        """Close the source. May be called again."""
