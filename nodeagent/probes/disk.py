"""Free space of the file systems that training writes to.

A dead network file system blocks its caller without end. So each path is read in a thread of its
own: a path that gives no answer hides no other, and is not read again before it has answered.
"""

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from nodeagent.detect.full_disk import DiskLook, DiskReading
from nodeagent.process_tools.node_clock import NodeClock

ANSWER_LIMIT_S: Final = 10.0
"""How long all paths together are waited for, seconds."""


class FileSystem(NamedTuple):
    """What the kernel says about the file system of a path."""

    device: int
    space: os.statvfs_result


Ask = Callable[[Path], FileSystem]


class Disks:
    """The watched file systems. May block for ``limit_s``: for a thread of its own."""

    def __init__(
        self, clock: NodeClock, limit_s: float = ANSWER_LIMIT_S, ask: Ask | None = None
    ) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._ask = ask or file_system_of
        self._asked: dict[Path, _Question] = {}

    def read(self, paths: Iterable[Path]) -> DiskLook:
        """Return a reading for each file system under ``paths``, named by the first path on it.

        A path that does not exist yet is looked at where it will be made.
        """
        wanted = list(dict.fromkeys(paths))
        for path in wanted:
            if path not in self._asked:
                self._asked[path] = _Question(path, self._ask)
        deadline = self._clock.monotonic_s() + self._limit_s
        reading_by_device: dict[int, DiskReading] = {}
        reasons: dict[str, str] = {}
        for path in wanted:
            answer = self._asked[path].wait(max(0.0, deadline - self._clock.monotonic_s()))
            match answer:
                case None:
                    reasons[str(path)] = f"no answer after {self._limit_s:g} s"
                case OSError():
                    reasons[str(path)] = answer.strerror or str(answer)
                case FileSystem():
                    reading_by_device.setdefault(answer.device, _reading(path, answer.space))
        self._asked = {path: asked for path, asked in self._asked.items() if asked.is_open}
        return DiskLook(list(reading_by_device.values()), reasons)


class _Question:
    """One path, asked in a thread that may never come back."""

    def __init__(self, path: Path, ask: Ask) -> None:
        self._answer: FileSystem | OSError | None = None
        self._thread = threading.Thread(
            target=self._run, args=(path, ask), name=f"disk probe of {path}", daemon=True
        )
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether there is no answer yet."""
        return self._thread.is_alive()

    def wait(self, limit_s: float) -> FileSystem | OSError | None:
        """Return the answer; None if there is none within ``limit_s``."""
        self._thread.join(limit_s)
        return self._answer

    def _run(self, path: Path, ask: Ask) -> None:
        try:
            self._answer = ask(path)
        except OSError as error:
            self._answer = error


def file_system_of(path: Path) -> FileSystem:
    """Return the file system that ``path`` is on, or will be once it is made.

    Raises:
        OSError: It can't be looked at.
    """
    there = next((place for place in (path, *path.parents) if place.exists()), path)
    return FileSystem(there.stat().st_dev, os.statvfs(there))


def _reading(path: Path, there: os.statvfs_result) -> DiskReading:
    return DiskReading(
        path=str(path),
        total_bytes=there.f_blocks * there.f_frsize,
        free_bytes=there.f_bavail * there.f_frsize,
        num_files=there.f_files,
        num_free_files=there.f_favail,
    )
