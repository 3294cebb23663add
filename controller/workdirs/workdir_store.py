"""Versions of folders in the run directory: ``workdirs/DIGEST.json`` and ``workdirs/files/SHA256``.

Contents that several versions share are kept once.
"""

import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from controller.workdirs.workdir_version import WorkdirVersion

NAME: Final = "workdirs"
"""Its directory in the run directory."""

_KEPT_S: Final = 7 * 86400.0
"""A version that no task uses is kept this long: an older program may be started again."""


class WorkdirStore:
    """The versions below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = directory / "files"

    def keep(self, version: WorkdirVersion) -> None:
        """Keep a version, if it is not there.

        Raises:
            OSError: Something can't be read or written.
        """
        self._files.mkdir(mode=0o700, parents=True, exist_ok=True)
        for content, path in version.paths.items():
            if not (self._files / content).exists():
                self._write(self._files / content, (version.folder / path).read_bytes())
        self._write(self._manifest(version.digest), version.manifest)

    def manifest(self, digest: str) -> bytes:
        """Return the manifest of a version. Raises ``OSError`` if it is not there."""
        return self._manifest(digest).read_bytes()

    def content(self, sha256: str) -> bytes:
        """Return a content. Raises ``OSError`` if it is not there."""
        return (self._files / sha256).read_bytes()

    def remove_old(self, used: Collection[str]) -> None:
        """Remove versions that are not among ``used`` and were written long ago."""
        oldest = time.time() - _KEPT_S  # noqa: TID251 - the age of files
        for path in self._directory.glob("*.json"):
            if path.stem not in used and path.stat().st_mtime < oldest:
                path.unlink()
        kept = {
            content
            for path in self._directory.glob("*.json")
            for _, content, _ in json.loads(path.read_bytes())["files"]
        }
        for path in self._files.glob("*"):
            if path.name not in kept:
                path.unlink()

    def _manifest(self, digest: str) -> Path:
        return self._directory / f"{digest}.json"

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        new = path.with_name(f"{path.name}.{os.getpid()}")
        new.write_bytes(content)
        new.replace(path)
