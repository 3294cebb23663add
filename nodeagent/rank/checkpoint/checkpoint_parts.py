"""What ranks tell each other of a checkpoint that they write: through its directory, and in no other way.

A rank that has written its blocks adds ``part_<rank>.json``; one that could not, or was still busy with
the checkpoint before, adds ``part_<rank>.missing``, and global rank 0 gives the checkpoint up. Names bear a
word of the run, so that what another one has left there is not taken for a part.
"""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from nodeagent.rank.checkpoint.checkpoint_directory import sync_directory, write_durably
from nodeagent.rank.checkpoint.manifest import CheckpointPart

logger = logging.getLogger(__name__)


class GivenUpError(Exception):
    """A rank has no part in this checkpoint."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of one checkpoint.

    Attributes:
        directory: Where it is written.
        run: A word of this run and generation.
    """

    directory: Path
    run: str

    def add(self, global_rank: int, part: CheckpointPart) -> None:
        """Say what a rank has written, once that is on disk.

        Raises:
            OSError: It can't be written.
        """
        sync_directory(self.directory)
        write_durably(self._path(global_rank), part.model_dump_json().encode())

    def has(self, global_rank: int) -> bool:
        """Whether the part of a rank is there."""
        return self._path(global_rank).exists()

    def read(self, global_rank: int) -> CheckpointPart:
        """Return the part of a rank, which is there.

        Raises:
            OSError: It can't be read.
            ValueError: It is no part.
        """
        return CheckpointPart.model_validate_json(self._path(global_rank).read_bytes())

    def miss(self, global_rank: int, reason: str) -> None:
        """Say that a rank has no part, and why. Where that fails too, rank 0 waits for it in vain."""
        path = self._path(global_rank).with_suffix(".missing")
        draft = path.with_suffix(".draft")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            # An empty file: a full disk has room for its name, as a rule.
            draft.touch()
            with contextlib.suppress(OSError):
                draft.write_text(reason)
            # Rank 0 may look at any time, and gives up then.
            draft.replace(path)
        except OSError as error:
            logger.warning("rank 0 can't be told to give up %s: %s", self.directory.name, error)

    def check_missing(self) -> None:
        """Look whether some rank has no part.

        Raises:
            GivenUpError: So it is; the text says which, and why.
        """
        missing = sorted(self.directory.glob(f"part_*{self._suffix}.missing"))
        if missing:
            ranks = " ".join(path.name.removeprefix("part_").partition(".")[0] for path in missing)
            reason = missing[0].read_text() or "see the logs there"
            raise GivenUpError(f"not saved by rank {ranks}: {reason}")

    def clear(self) -> None:
        """Remove them all, those of other runs too: the manifest says it now."""
        for path in self.directory.glob("part_*"):
            path.unlink()

    @property
    def _suffix(self) -> str:
        return f".{self.run}" if self.run else ""

    def _path(self, global_rank: int) -> Path:
        return self.directory / f"part_{global_rank}{self._suffix}.json"
