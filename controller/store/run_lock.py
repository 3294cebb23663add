"""The lock of a run's directory: one controller writes there, readers take no lock.

A lock of the kernel on ``DIRECTORY/lock``. It ends with the process, however that ends, so no lock
is ever left over. The file's text says who holds it.
"""

import fcntl
import logging
import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

_LOG: Final = logging.getLogger(__name__)
_NAME: Final = "lock"
_MOST_BYTES: Final = 4096


class RunLockedError(Exception):
    """Another process holds the lock. The text is one line and names it."""


class LockHolder(BaseModel):
    """Who holds the lock.

    Attributes:
        host: Its host name.
        pid: Its process on that host.
        instance: A name for this one life of it.
        since: When it took the lock, in UTC, ISO 8601.
    """

    host: str
    pid: int
    instance: str
    since: str


class RunLock:
    """Holds the lock from its construction until ``close``.

    Args:
        directory: The run's directory.
        wall_s: The wall clock, seconds since the epoch.

    Raises:
        RunLockedError: Another process holds it.
        OSError: The file can't be written.
    """

    def __init__(self, directory: Path, wall_s: float) -> None:
        path = directory / _NAME
        # Not truncated when it is opened: it holds the name of the present holder.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self.holder = LockHolder(
            host=socket.gethostname(),
            pid=os.getpid(),
            instance=secrets.token_hex(8),
            since=datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="seconds"),
        )
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file.truncate(0)
            self._file.write(self.holder.model_dump_json().encode() + b"\n")
        except BlockingIOError as error:
            text = self._file.read(_MOST_BYTES)
            self.close()
            raise RunLockedError(f"{directory}: {_sentence(text)}") from error
        except OSError:
            self.close()
            raise
        _LOG.info("run locked: directory=%s instance=%s", directory, self.holder.instance)

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def _sentence(text: bytes) -> str:
    """Return who holds the lock, and what to do."""
    try:
        holder = LockHolder.model_validate_json(text)
    except ValidationError:  # it has just been taken
        return "another controller acts on this run; stop it first"
    return (
        f"a controller acts on this run already: process {holder.pid} on {holder.host}, instance"
        f" {holder.instance}, since {holder.since}; stop it first, or give another directory"
    )
