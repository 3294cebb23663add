"""A directory of data indices that many processes share, and that one process builds.

The first process that takes the file lock builds into a directory of its own, renames the files
into place, and then writes a done-mark, also by a rename. All other processes wait for the mark.
The kernel frees the lock of a process that is killed, and the next process builds. Files without
a mark may be half-written, so they are built again.

The lock is ``flock``. Linux passes it on to NFS servers, so it holds between nodes too.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)

_LOOK_S: Final = 0.05
_LOCK: Final = "unicron-index.lock"
_STAGING: Final = ".unicron-building"


class IndexDirectoryError(Exception):
    """The indices can't be built or were not built in time. The text is one line with the mend."""


class IndexDirectory:
    """The indices of one data set in a shared directory.

    Args:
        path: The directory; it is made if it is missing.
        key: Distinguishes data sets that share the directory; part of the name of the mark.
        limit_s: How long to wait for another process that builds.
        monotonic_s: The clock of the wait.
    """

    def __init__(
        self, path: Path, key: str, limit_s: float, monotonic_s: Callable[[], float]
    ) -> None:
        self._path = path
        self._limit_s = limit_s
        self._monotonic_s = monotonic_s
        self._mark = path / f"unicron-{key}.done"
        self._staging = path / _STAGING

    def ensure(self, build: Callable[[Path], None]) -> None:
        """Return once the indices are whole; ``build`` writes them if no other process does.

        Args:
            build: Writes the files into the directory that it gets.

        Raises:
            IndexDirectoryError: Another process built for too long, or the directory can't be
                written.
            Exception: ``build`` raised it. The next process may try.
        """
        # Readers of whole indices need no lock, so a directory may be read-only.
        if self.is_done():
            return
        give_up_at = self._monotonic_s() + self._limit_s
        while not self._built(build):
            if self._monotonic_s() >= give_up_at:
                raise IndexDirectoryError(self._complaint())
            time.sleep(_LOOK_S)

    def is_done(self) -> bool:
        """Return whether the mark is there, and every file that it lists has its size."""
        try:
            sizes = json.loads(self._mark.read_text())["files"]
            return all((self._path / name).stat().st_size == size for name, size in sizes.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    def _built(self, build: Callable[[Path], None]) -> bool:
        """Return whether the indices are whole, after building them if the lock is free."""
        with self._lock() as has_lock:
            if has_lock and not self.is_done():
                self._build(build)
            return has_lock or self.is_done()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        with self._writing():
            self._path.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with self._writing():
                has_lock = _has_locked(file)
            yield has_lock
        finally:
            os.close(file)  # which frees the lock

    def _build(self, build: Callable[[Path], None]) -> None:
        began = self._monotonic_s()
        with self._writing():
            # Left by a process that was killed: only the holder of the lock writes there.
            shutil.rmtree(self._staging, ignore_errors=True)
            self._staging.mkdir()
        try:
            build(self._staging)
            with self._writing():
                num_files = self._publish()
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        _LOG.info(
            "indices are built: directory=%s files=%d duration_s=%.1f",
            self._path,
            num_files,
            self._monotonic_s() - began,
        )

    def _publish(self) -> int:
        """Move the files into place, and only then the mark that says they are whole."""
        sizes = {path.name: path.stat().st_size for path in self._staging.iterdir()}
        self._mark.unlink(missing_ok=True)
        for name in sizes:
            _sync(self._staging / name)
            (self._staging / name).replace(self._path / name)
        mark = self._staging / self._mark.name
        mark.write_text(json.dumps({"files": sizes, **_self()}))
        _sync(mark)
        mark.replace(self._mark)
        return len(sizes)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise IndexDirectoryError(
                f"{self._path}: the indices can't be written: {error.strerror or error}; make the"
                " directory writable, or set path_to_cache of the data set to another one"
            ) from error

    def _complaint(self) -> str:
        try:
            holder = json.loads((self._path / _LOCK).read_text())
            name = f"process {holder['pid']} on {holder['host']}"
        except (OSError, ValueError, KeyError, TypeError):
            name = "a process that has not named itself"
        return (
            f"{self._path}: the indices were not whole after {self._limit_s:g} s; {name} holds the"
            f" lock {_LOCK}; if it still builds, raise index_limit_s of the program, else kill it:"
            " the next process then builds"
        )


def _has_locked(file: int) -> bool:
    """Take the lock and write who holds it; return False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    os.ftruncate(file, 0)
    os.write(file, json.dumps(_self()).encode())
    return True


def _self() -> dict[str, object]:
    return {"pid": os.getpid(), "host": socket.gethostname()}


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
