"""A disk after a loss of power: all that was synced, and as little of the rest as possible.

A file has the content of its last ``fsync``, or ``fdatasync``. A directory has the names of its
last ``fsync``, each for the file that it meant then. That is what POSIX grants. Later changes may
have reached the disk too, in any order.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class SyncedDisk:
    """Follows each sync under ``root`` while a test runs.

    Args:
        root: The directory that is on this disk. It is there already, and empty.
        patch: Replaces ``os.fsync`` and ``os.fdatasync`` for the test.
    """

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self._root = root.resolve()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {self._root.stat().st_ino: {}}
        self._held: dict[int, int] = {}
        self._copied: dict[int, Path] = {}
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, self._following(getattr(os, name)))

    def _following(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(descriptor: int) -> None:
            real(descriptor)
            self._note(descriptor)

        return sync

    def _note(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}")
        if not place.resolve().is_relative_to(self._root):
            return
        if status.st_ino not in self._held:  # so that no other file gets its number
            self._held[status.st_ino] = os.open(place, os.O_RDONLY)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = _names_in(place)
        else:
            self._contents[status.st_ino] = place.read_bytes()

    def survivors(self, directory: Path) -> Iterator[Path]:
        """Yield copies of what a loss of power may leave now.

        The first has nothing that was not synced, the last all of it. Between them, each name that
        was given or taken since the last sync has reached the disk alone, with half of the lines
        that files have got.
        """
        changes = sorted(self._changes(self._root))
        kept = [set[Path](), *({change} for change in changes), set(changes)]
        for number, names in enumerate(kept):
            share = (0.0 if number == 0 else 0.5) if number < len(kept) - 1 else 1.0
            yield self._copy_to(directory / f"after-{number}", names, share)

    def _changes(self, place: Path) -> Iterator[Path]:
        names, now = self._names.get(place.stat().st_ino, {}), _names_in(place)
        for name in names.keys() | now.keys():
            if names.get(name) != now.get(name):
                yield place / name
            if (place / name).is_dir():
                yield from self._changes(place / name)

    def _copy_to(self, target: Path, changes: set[Path], share: float) -> Path:
        shutil.rmtree(target, ignore_errors=True)
        self._copied.clear()
        self._copy(self._root, self._root.stat().st_ino, target, changes, share)
        return target

    def _copy(
        self, place: Path, inode: int, target: Path, changes: set[Path], share: float
    ) -> None:
        """Copy a directory: ``place`` is its path now, or was it when it was synced."""
        target.mkdir()
        names = dict(self._names.get(inode, {}))
        now = _names_in(place) if place.is_dir() else {}
        for name in names.keys() | now.keys():
            if place / name in changes:
                names.pop(name, None)
                names |= {name: now[name]} if name in now else {}
        for name, meant in names.items():
            if meant in self._copied:
                os.link(self._copied[meant], target / name)
            elif meant in self._names or (now.get(name) == meant and (place / name).is_dir()):
                self._copy(place / name, meant, target / name, changes, share)
            else:
                file = place / name if now.get(name) == meant else None
                (target / name).write_bytes(self._content(meant, file, share))
                self._copied[meant] = target / name

    def _content(self, inode: int, file: Path | None, share: float) -> bytes:
        synced = self._contents.get(inode, b"")
        now = synced if file is None else file.read_bytes()
        return now[: len(synced) + round(share * (len(now) - len(synced)))]

    def close(self) -> None:
        """Let go of the files."""
        while self._held:
            os.close(self._held.popitem()[1])


def _names_in(directory: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_ino for entry in directory.iterdir()}
