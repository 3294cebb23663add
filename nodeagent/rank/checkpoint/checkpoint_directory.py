"""The directory of a task's checkpoints: names, and the few operations that change it.

Every change is one rename, so an interruption leaves either the old or the new state. The name says
what a directory is: ``iter_0000010`` is complete, ``.g3.tmp`` is being written by generation 3 or
was left by it, ``.bad-<why>`` is quarantined. A quarantined directory is never deleted.
"""

import contextlib
import logging
import os
import re
import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.protocol.ids import Generation
from nodeagent.rank.checkpoint.manifest import (
    CHECKSUM,
    MANIFEST,
    CheckpointError,
    DamagedError,
    Manifest,
    check_files,
    read_manifest,
)

_LOG = logging.getLogger(__name__)

_COMPLETE: Final = re.compile(r"iter_(\d+)")
_TEMPORARY: Final = re.compile(r"iter_(\d+)\.g(\d+)\.(tmp|old)")
_REASON: Final = "why_quarantined.txt"


def name_of(iteration: int) -> str:
    """Return the name of the complete checkpoint of ``iteration``."""
    return f"iter_{iteration:07d}"


@dataclass(frozen=True, slots=True)
class CheckpointDirectory:
    """The checkpoints of one task on disk, for the ranks of ``generation``."""

    path: Path
    generation: Generation

    def temporary(self, iteration: int) -> Path:
        """Return where this generation writes the checkpoint of ``iteration``."""
        return self.path / f"{name_of(iteration)}.g{self.generation}.tmp"

    def complete(self) -> list[tuple[int, Path]]:
        """Return iteration and path of all complete checkpoints by name, newest first.

        Raises:
            CheckpointError: The directory can't be read.
        """
        try:
            paths = list(self.path.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(
                f"{self.path} can't be read: {error.strerror}; make it readable for this user, or"
                " set another checkpoint_dir"
            ) from error
        matches = ((_COMPLETE.fullmatch(path.name), path) for path in paths)
        return sorted(((int(match[1]), path) for match, path in matches if match), reverse=True)

    def candidates(self) -> list[Manifest]:
        """Return the manifests of complete checkpoints, newest first; quarantine damaged ones.

        Raises:
            CheckpointError: The directory can't be read, or holds a checkpoint of another format
                that is newer than all others.
        """
        found: list[Manifest] = []
        for iteration, path in self.complete():
            try:
                manifest = _checked(path, iteration)
            except DamagedError as error:
                self.quarantine(path, "torn", str(error))
            except CheckpointError as error:
                if not found:
                    raise
                _LOG.warning("checkpoint is passed over: path=%s reason=%s", path, error)
            except OSError as error:
                raise CheckpointError(
                    f"{path} can't be read: {error.strerror}; make it readable for this user, or"
                    " move it away"
                ) from error
            else:
                found.append(manifest)
        return found

    def seal(self, temporary: Path, manifest: Manifest) -> None:
        """Complete ``temporary`` with its manifest.

        Raises:
            OSError: A file can't be written. ``temporary`` stays incomplete.
        """
        content = manifest.model_dump_json().encode()
        write_durably(temporary / MANIFEST, content)
        write_durably(temporary / CHECKSUM, f"{zlib.crc32(content):08x}\n".encode())
        sync_directory(temporary)

    def publish(self, temporary: Path, iteration: int) -> None:
        """Give the completed ``temporary`` its final name. Afterwards it can be loaded."""
        final = self.path / name_of(iteration)
        if final.exists():
            # A load would have quarantined it or continued from it, so no load has seen it.
            self.quarantine(final, "replaced", "its iteration was run and saved again")
        temporary.rename(final)
        sync_directory(self.path)

    def prune(self, num_kept: int) -> int:
        """Delete all but the newest complete checkpoints; return the oldest kept iteration."""
        complete = self.complete()
        for _, path in complete[num_kept:]:
            # Renamed first: an interrupted deletion must not leave half a checkpoint.
            doomed = path.with_name(f"{path.name}.g{self.generation}.old")
            with contextlib.suppress(OSError):
                path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        return min((iteration for iteration, _ in complete[:num_kept]), default=0)

    def remove_stale(self, before_iteration: int | None = None) -> None:
        """Delete half-written checkpoints of older generations.

        Args:
            before_iteration: Also delete this generation's own of older iterations.
        """
        with contextlib.suppress(OSError):
            for path in list(self.path.iterdir()):
                match = _TEMPORARY.fullmatch(path.name)
                if match is not None and self._is_stale(match, before_iteration):
                    shutil.rmtree(path, ignore_errors=True)

    def _is_stale(self, match: re.Match[str], before_iteration: int | None) -> bool:
        iteration, generation = int(match[1]), int(match[2])
        if generation != self.generation:
            return generation < self.generation
        return before_iteration is not None and iteration < before_iteration

    def quarantine(self, path: Path, why: str, reason: str) -> None:
        """Rename a checkpoint so that it is never loaded again. A person can still look at it.

        Args:
            path: The checkpoint.
            why: One word, for the name.
            reason: A sentence, for the log and for a file in the directory.

        Raises:
            CheckpointError: It can't be renamed.
        """
        target = path.with_name(f"{path.name}.bad-{why}")
        number = 1
        try:
            while target.exists():
                number += 1
                target = path.with_name(f"{path.name}.bad-{why}-{number}")
            path.rename(target)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CheckpointError(
                f"{path} is bad ({reason}) and can't be renamed: {error.strerror}; move it away"
            ) from error
        with contextlib.suppress(OSError):
            (target / _REASON).write_text(f"{reason}\n")
            sync_directory(self.path)
        _LOG.warning(
            "quarantined a checkpoint: checkpoint=%s new_name=%s reason=%s",
            path.name,
            target.name,
            reason,
        )


def _checked(path: Path, iteration: int) -> Manifest:
    manifest = read_manifest(path)
    if manifest.iteration != iteration:
        raise DamagedError(f"it is of iteration {manifest.iteration}")
    check_files(path, manifest.files)
    return manifest


def write_durably(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step, and wait until it is on disk."""
    scratch = path.with_name(f"{path.name}.new")
    with scratch.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)


def sync_directory(path: Path) -> None:
    """Make the names in ``path`` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
