"""The event log: every announcement as one JSON object per line, for people and for checkers.

Iterations that were run again after a restore carry ``is_rerun`` and their deviation, so whoever
reads the log can count that each iteration was reported once.
"""

import json
from io import TextIOWrapper
from pathlib import Path

from controller.core.instructions import Announce


class EventLog:
    """Writes announcements to a new file of mode 0600; an older one of this name is replaced."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        self._file: TextIOWrapper = path.open("a", encoding="utf-8")

    def append(self, at: float, line: Announce) -> None:
        """Write ``line``, announced ``at`` seconds after the controller's start."""
        record = {
            "at": round(at, 6),
            "event": line.cause,
            "level": line.level,
            "kind": line.kind,
            "source": line.source,
            "text": line.text,
            **dict(line.facts),
        }
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
