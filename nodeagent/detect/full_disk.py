"""When a disk counts as full: so little is free that the next checkpoint will not fit.

Both a share and an amount must be short: 5 % of a large file system is room enough, and a small
tmpfs is full only when little of it is left. File names run out too. A full disk is
reported as over only when half as much again is free: one file that comes and goes makes no storm.
A path that can't be read is reported as such, and a disk that was full there still counts as full.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.protocol.findings import NodeFinding

MIN_FREE_SHARE: Final = 0.05
MIN_FREE_BYTES: Final = 4 * 2**30
MIN_FREE_FILES_SHARE: Final = 0.01
_MARGIN: Final = 1.5


@dataclass(frozen=True, slots=True)
class DiskReading:
    """What ``statvfs`` says about the file system of one path.

    Attributes:
        path: Where was looked.
        total_bytes: Its size.
        free_bytes: What a process without privileges may still write.
        num_files: Most files it can hold; 0 where there is no limit.
        num_free_files: Files that can still be made.
    """

    path: str
    total_bytes: int
    free_bytes: int
    num_files: int = 0
    num_free_files: int = 0


@dataclass(frozen=True, slots=True)
class DiskLook:
    """One look at all watched paths.

    Attributes:
        readings: Of each file system that answered.
        reason_by_path: Why the other paths can't be looked at, in words.
    """

    readings: Sequence[DiskReading]
    reason_by_path: Mapping[str, str] = field(default_factory=dict)


class DiskDetector:
    """Takes one look after another."""

    def __init__(self) -> None:
        self._standing = LastingConditions()

    def take(self, look: DiskLook) -> list[NodeFinding]:
        """Return the disks that became full or unreadable, and the disks that recovered."""
        judged = [self._judge(reading) for reading in look.readings]
        found = [finding for finding in judged if finding is not None]
        found += [_unreadable(path, reason) for path, reason in look.reason_by_path.items()]
        return self._standing.update(found, unread=look.reason_by_path)

    def _judge(self, reading: DiskReading) -> NodeFinding | None:
        margin = _MARGIN if self._standing.holds("disk_full", reading.path) else 1.0
        limit = margin * min(MIN_FREE_BYTES, MIN_FREE_SHARE * reading.total_bytes)
        if reading.total_bytes and reading.free_bytes < limit:
            mebibytes = reading.free_bytes / 2**20
            return NodeFinding(
                probe="disk",
                sign="disk_full",
                subject=reading.path,
                text=f"{reading.path}: {mebibytes:.0f} MiB of {reading.total_bytes / 2**20:.0f} MiB free",
                value=reading.free_bytes,
                limit=limit,
            )
        few_files = margin * MIN_FREE_FILES_SHARE * reading.num_files
        if reading.num_files and reading.num_free_files < few_files:
            return NodeFinding(
                probe="disk",
                sign="disk_full",
                subject=reading.path,
                text=f"{reading.path}: {reading.num_free_files} of {reading.num_files} files (inodes) free",
                value=reading.num_free_files,
                limit=few_files,
            )
        return None


def _unreadable(path: str, reason: str) -> NodeFinding:
    return NodeFinding(
        probe="disk",
        sign="unreadable",
        subject=path,
        text=f"{path} can't be read: {reason}",
    )
