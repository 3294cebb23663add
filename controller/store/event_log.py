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
_RECORD: Final = TypeAdapter(dict[str, Fact], config=ConfigDict(ser_json_inf_nan="strings"))


class EventLog:
    """Writes announcements to a new file of mode 0600. An older file of this name is replaced."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        self._file: BufferedWriter = path.open("ab")
        _LOG.info("event log opened: path=%s", path)

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

    def close(self) -> None:
        """Close the file."""
        self._file.close()
