"""Free space of the file systems that training writes to. May block on a dead network file system."""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from nodeagent.detect.disk import DiskReading

_LOG = logging.getLogger(__name__)


def read_disks(paths: Iterable[Path]) -> list[DiskReading]:
    """Return a reading for each file system under ``paths``, named by the first path on it.

    A path that does not exist yet is looked at where it will be made; one that can't be looked at
    is left out.
    """
    readings: dict[int, DiskReading] = {}
    for path in paths:
        try:
            there = _existing(path)
            device = there.stat().st_dev
            if device not in readings:
                readings[device] = _reading(path, os.statvfs(there))
        except OSError as error:
            _LOG.debug("%s: %s", path, error)
    return list(readings.values())


def _existing(path: Path) -> Path:
    """Return ``path`` or the nearest directory above it that exists."""
    return next((place for place in (path, *path.parents) if place.exists()), path)


def _reading(path: Path, there: os.statvfs_result) -> DiskReading:
    return DiskReading(
        path=str(path),
        total_bytes=there.f_blocks * there.f_frsize,
        free_bytes=there.f_bavail * there.f_frsize,
        num_files=there.f_files,
        num_free_files=there.f_favail,
    )
