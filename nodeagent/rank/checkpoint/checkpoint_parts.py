"""The parts of a checkpoint: files in its directory by which ranks report that they have written.

A rank that has written its blocks adds ``part_<rank>.json``. If it could not write them, or was
busy with the last checkpoint, it adds ``part_<rank>.missing``, and global rank 0 gives the
checkpoint up. The names contain a word of the run, so that parts of another run are not mistaken
for its own.
"""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from nodeagent.rank.checkpoint.checkpoint_directory import sync_directory, write_durably
from nodeagent.rank.checkpoint.manifest import CheckpointPart

_LOG = logging.getLogger(__name__)


class GivenUpError(Exception):
    """A rank has no part in this checkpoint."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one checkpoint.

    Attributes:
        directory: The directory of the unfinished checkpoint.
        run: A word of this run and generation.
    """

    directory: Path
    run: str

    def add(self, global_rank: int, part: CheckpointPart) -> None:
        """Add the part of a rank, after its files are on disk.

        Raises:
            OSError: It can't be written.
        """
        sync_directory(self.directory)
        write_durably(self._path(global_rank), part.model_dump_json().encode())

    def has(self, global_rank: int) -> bool:
        """Whether the part of a rank is there."""
        return self._path(global_rank).exists()

    def read(self, global_rank: int) -> CheckpointPart:
        """Return the part of a rank, which must exist.

        Raises:
            OSError: It can't be read.
            ValueError: The file is invalid.
        """
        return CheckpointPart.model_validate_json(self._path(global_rank).read_bytes())

    def miss(self, global_rank: int, reason: str) -> None:
        """Record that a rank has no part. If that fails too, rank 0 waits until its time limit."""
        path = self._path(global_rank).with_suffix(".missing")
        draft = path.with_suffix(".draft")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # Created empty first: a full disk usually still has room for a name.
            draft.touch()
            with contextlib.suppress(OSError):
                draft.write_text(reason)
            # Renamed last: rank 0 may read the file as soon as it has this name.
            draft.replace(path)
        except OSError as error:
            _LOG.warning(
                "cannot record that a rank has no part: checkpoint=%s rank=%d reason=%s",
                self.directory.name,
                global_rank,
                error,
            )

    def check_missing(self) -> None:
        """Check that no rank has given up its part.

        Raises:
            GivenUpError: A rank has no part. The text names the rank and the reason.
        """
        missing = sorted(self.directory.glob(f"part_*{self._suffix}.missing"))
        if missing:
            ranks = " ".join(path.name.removeprefix("part_").partition(".")[0] for path in missing)
            reason = missing[0].read_text() or "see the logs there"
            raise GivenUpError(f"not saved by rank {ranks}: {reason}")

    def clear(self) -> None:
        """Remove all parts, also those of other runs: the manifest replaces them."""
        for path in self.directory.glob("part_*"):
            path.unlink()

    @property
    def _suffix(self) -> str:
        return f".{self.run}" if self.run else ""

    def _path(self, global_rank: int) -> Path:
        return self.directory / f"part_{global_rank}{self._suffix}.json"
