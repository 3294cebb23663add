"""The directory of a task's checkpoints: names, and the few operations that change it.

Every change is one rename, so that whatever is interrupted leaves either the old or the new state.
A name says what a directory is: ``iter_0000010`` was complete once, ``.g3.tmp`` is being written by
generation 3 or was left by it, ``.bad-<why>`` is quarantined. Nothing quarantined is ever deleted.
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

logger = logging.getLogger(__name__)

_COMPLETE: Final = re.compile(r"iter_(\d+)")
_TEMPORARY: Final = re.compile(r"iter_(\d+)\.g(\d+)\.(tmp|old)")
_REASON: Final = "why_quarantined.txt"


def name_of(iteration: int) -> str:
    """Return the name of the complete checkpoint of ``iteration``."""
    return f"iter_{iteration:07d}"


@dataclass(frozen=True, slots=True)
class CheckpointDirectory:
    """The checkpoints of one task on disk, as generation ``generation`` sees them."""

    path: Path
    generation: Generation

    def temporary(self, iteration: int) -> Path:
        """Return where this generation writes the checkpoint of ``iteration``."""
        return self.path / f"{name_of(iteration)}.g{self.generation}.tmp"

    def complete(self) -> list[tuple[int, Path]]:
        """Return iteration and path of everything named like a checkpoint, newest first.

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
        """Return the manifests of what looks complete, newest first; quarantine what is torn.

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
                logger.warning("passed over: %s", error)
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
            OSError: Something can't be written; ``temporary`` is as useless as before.
        """
        content = manifest.model_dump_json().encode()
        write_durably(temporary / MANIFEST, content)
        write_durably(temporary / CHECKSUM, f"{zlib.crc32(content):08x}\n".encode())
        sync_directory(temporary)

    def publish(self, temporary: Path, iteration: int) -> None:
        """Give the completed ``temporary`` its final name; from then on it can be loaded."""
        final = self.path / name_of(iteration)
        if final.exists():
            # Whoever loaded would have quarantined or continued it; nobody has looked at it yet.
            self.quarantine(final, "replaced", "its iteration was run and saved again")
        temporary.rename(final)
        sync_directory(self.path)

    def prune(self, num_kept: int) -> int:
        """Delete all complete ones but the newest; return the iteration of the oldest kept."""
        complete = self.complete()
        for _, path in complete[num_kept:]:
            # Renamed first: a deletion that is interrupted must not leave half a checkpoint.
            doomed = path.with_name(f"{path.name}.g{self.generation}.old")
            with contextlib.suppress(OSError):
                path.rename(doomed)
            shutil.rmtree(doomed, ignore_errors=True)
        return min((iteration for iteration, _ in complete[:num_kept]), default=0)

    def remove_stale(self, before_iteration: int | None = None) -> None:
        """Delete what older generations left half-written.

        Args:
            before_iteration: Delete this generation's own ones of older iterations too.
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
        """Rename a checkpoint so that it is never loaded again, and keep it for a person.

        Args:
            path: The checkpoint.
            why: One word, for the name.
            reason: A sentence, for the log and for a file inside.

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
        logger.warning("quarantined %s as %s: %s", path.name, target.name, reason)


def _checked(path: Path, iteration: int) -> Manifest:
    manifest = read_manifest(path)
    if manifest.iteration != iteration:
        raise DamagedError(f"it is of iteration {manifest.iteration}")
    check_files(path, manifest.files)
    return manifest


def write_durably(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step; it is on disk when this returns."""
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
