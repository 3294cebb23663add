"""A lock on ``agent.lock``, held for life: of one state directory there is one agent."""

import fcntl
import os
from pathlib import Path
from typing import Self


class AgentRunsError(Exception):
    """Another agent holds the state directory."""


class StateLock:
    """The lock that makes an agent the only one of its state directory. A context manager."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / "agent.lock"
        self._file = -1

    def __enter__(self) -> Self:
        """Take the lock. Raises ``AgentRunsError`` if it is held."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise AgentRunsError(f"an agent runs in {self._path.parent} already") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
