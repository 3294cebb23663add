"""The event log: every announcement as one JSON object per line, for people and for checks.

An iteration that was run again after a restore carries ``is_rerun`` and its deviation. So a check
can count that each iteration was reported once. JSON has no NaN: such a loss is written as text.
"""

import logging
from io import BufferedWriter
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter

from controller.core.instructions import Announce, Fact

_LOG: Final = logging.getLogger(__name__)
_MOST_BYTES: Final = 256 * 1024 * 1024
_RECORD: Final = TypeAdapter(dict[str, Fact], config=ConfigDict(ser_json_inf_nan="strings"))


class EventLog:
    """Writes announcements to a file of mode 0600.

    Args:
        path: The file.
        is_appended: Whether an older file of this name is appended to, and renamed to ``NAME.1``
            when it is full. Else it is replaced.

    Raises:
        OSError: The file can't be written.
    """

    def __init__(self, path: Path, *, is_appended: bool = False) -> None:
        self._path = path
        self._most_bytes = _MOST_BYTES if is_appended else None
        if not is_appended:
            path.unlink(missing_ok=True)
        self._file = self._opened()

    def _opened(self) -> BufferedWriter:
        self._path.touch(mode=0o600)
        _LOG.info("event log opened: path=%s", self._path)
        return self._path.open("ab")

    def append(self, at: float, line: Announce) -> None:
        """Write ``line``, announced ``at`` seconds after the controller's start."""
        record: dict[str, Fact] = {
            "at": round(at, 6),
            "event": line.cause,
            "level": line.level,
            "kind": line.kind,
            "source": line.source,
            "text": line.text,
            **dict(line.facts),
        }
        self._file.write(_RECORD.dump_json(record) + b"\n")
        self._file.flush()
        if self._most_bytes is not None and self._file.tell() >= self._most_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._opened()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
