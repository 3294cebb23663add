"""The background part of a save: a thread per rank writes, and rank 0's thread completes.

The ranks communicate only through the checkpoint's directory (``part_writing``). An error here
is logged and costs one checkpoint. It never ends training.
"""

import logging
import queue
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from nodeagent.rank.agent_link.exception_report import first_line
from nodeagent.rank.checkpoint.checkpoint_directory import CheckpointDirectory, name_of
from nodeagent.rank.checkpoint.manifest import CheckpointError, CheckpointPart, Manifest
from nodeagent.rank.checkpoint.part_writing import (
    AbandonedError,
    GivenUpError,
    Parts,
    write_metadata,
    write_part,
)
from nodeagent.rank.checkpoint.snapshot import HostSnapshot
from nodeagent.rank.groups.device_shim import use_device
from nodeagent.rank.groups.rank_place import Place

_LOG = logging.getLogger(__name__)

_POLL_S: Final = 0.02
_ABANDON_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint that is complete on disk.

    Attributes:
        iteration: The state is that after this iteration.
        num_bytes: Bytes of all its files.
        duration_s: Seconds from the iteration boundary until it was complete.
        blocked_s: Seconds for which the save blocked training on global rank 0.
    """

    iteration: int
    num_bytes: int
    duration_s: float
    blocked_s: float


class MissedCheckpoint(NamedTuple):
    """A checkpoint that was not completed, and why."""

    iteration: int
    reason: str


@dataclass(frozen=True, slots=True)
class SaveOrder:
    """A checkpoint to be written.

    Attributes:
        manifest: The manifest without files and blocks.
        snapshot: This rank's blocks.
        began_s: When the iteration boundary was reached, on the saver's clock.
        blocked_s: Seconds for which the copy blocked training.
    """

    manifest: Manifest
    snapshot: HostSnapshot
    began_s: float
    blocked_s: float


class Saver:
    """Writes checkpoints of one rank in one generation, one at a time.

    Args:
        directory: The task's checkpoints.
        place: The place of this rank in the layout. Global rank 0 completes checkpoints.
        num_kept: Complete checkpoints to keep.
        give_up_s: Seconds that rank 0 waits for the parts of the other ranks.
        monotonic_s: The clock.
        on_complete: Called on rank 0's thread with the iteration of the oldest checkpoint kept.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        *,
        place: Place,
        num_kept: int,
        give_up_s: float,
        monotonic_s: Callable[[], float],
        on_complete: Callable[[int], None],
    ) -> None:
        self._directory = directory
        self._global_rank = place.global_rank
        self._num_ranks = place.layout.num_workers
        self._device = place.device
        self._num_kept = num_kept
        self._give_up_s = give_up_s
        self._monotonic_s = monotonic_s
        self._on_complete = on_complete
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._publishing = threading.Lock()
        self._stop = threading.Event()
        self.run = ""
        """A word of this run and generation. Parts with another word belong to other runs."""
        self._pending: int | None = None
        self._newest_asked = 0
        self._newest_good = 0
        self._completed: list[SavedCheckpoint] = []
        self._missed: list[MissedCheckpoint] = []
        self._thread: threading.Thread | None = None

    # --- called by the training thread -----------------------------------------------------

    @property
    def pending(self) -> int | None:
        """Iteration of the checkpoint that is being written, if any."""
        return self._pending

    def begin(self, order: SaveOrder) -> None:
        """Write a checkpoint. No other may be pending."""
        assert self._pending is None
        self._pending = self._newest_asked = order.manifest.iteration
        self.call(lambda: self._save(order))

    def skip(self, iteration: int, reason: str) -> None:
        """Record for rank 0 that this rank has no part in the checkpoint of ``iteration``."""
        self._newest_asked = iteration
        if self._global_rank == 0:
            self._miss(iteration, reason)
        else:
            self.call(lambda: self._parts_of(iteration).miss(self._global_rank, reason))

    def call(self, job: Callable[[], None]) -> None:
        """Run ``job`` on the thread, after all earlier jobs."""
        if self._stop.is_set():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def take_completed(self) -> list[SavedCheckpoint]:
        """Return the checkpoints completed since the last call. Only rank 0 has any."""
        with self._changed:
            completed, self._completed = self._completed, []
        return completed

    def take_missed(self) -> list[MissedCheckpoint]:
        """Return the checkpoints given up since the last call. Only rank 0 has any."""
        with self._changed:
            missed, self._missed = self._missed, []
        return missed

    def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is pending; return whether this rank saved the newest checkpoint."""
        with self._changed:
            is_idle = self._changed.wait_for(lambda: self._pending is None, timeout_s)
            return is_idle and self._newest_good == self._newest_asked

    def abandon(self) -> bool:
        """Stop. Afterwards no checkpoint is completed any more, unless a file system hangs.

        Returns:
            Whether the thread has ended. If not, it is inside a system call on a file, and the
            memory of its snapshot must not be used again.
        """
        self._stop.set()
        if self._publishing.acquire(timeout=_ABANDON_S):
            self._publishing.release()
        else:
            # Harmless: after a load its losses are compared with the recorded ones.
            _LOG.warning(
                "slow file system: an abandoned checkpoint may still appear: path=%s",
                self._directory.path,
            )
        with self._changed:
            if self._pending is not None:
                _LOG.info(
                    "checkpoint is abandoned with its generation: iteration=%d", self._pending
                )
            self._pending = None
            self._changed.notify_all()
        self._jobs.put(None)
        if self._thread is None:
            return True
        self._thread.join(_ABANDON_S)
        return not self._thread.is_alive()

    # --- on the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        use_device(self._device)
        while (job := self._jobs.get()) is not None and not self._stop.is_set():
            try:
                job()
            except (OSError, MemoryError, CheckpointError) as error:
                _LOG.error(
                    "checkpoint thread failed: path=%s reason=%s",
                    self._directory.path,
                    first_line(error),
                )

    def _save(self, order: SaveOrder) -> None:
        iteration = order.manifest.iteration
        newest_good = self._newest_good
        try:
            self._write(order)
            newest_good = iteration
        except AbandonedError:
            return
        except GivenUpError as error:
            _LOG.warning("checkpoint is given up: iteration=%d reason=%s", iteration, error)
            self._give_up(iteration, str(error))
        except (OSError, MemoryError, RuntimeError, ValueError, CheckpointError) as error:
            reason = first_line(error)
            if isinstance(error, OSError):
                reason += f"; make room in {self._directory.path}, or make it writable"
            _LOG.error(
                "checkpoint was not saved; training continues: iteration=%d reason=%s",
                iteration,
                reason,
            )
            self._give_up(iteration, reason)
        finally:
            with self._changed:
                self._pending = None
                self._newest_good = newest_good
                self._changed.notify_all()

    def _write(self, order: SaveOrder) -> None:
        parts = self._parts_of(order.manifest.iteration)
        temporary = parts.directory
        if self._global_rank == 0:
            self._directory.remove_stale(before_iteration=order.manifest.iteration)
        temporary.mkdir(parents=True, exist_ok=True)
        order.snapshot.wait_until_ready()
        part = write_part(temporary, self._global_rank, order.snapshot.blocks, self._check)
        parts.add(self._global_rank, part)
        if self._global_rank == 0:
            self._complete(order, parts)

    def _complete(self, order: SaveOrder, parts: Parts) -> None:
        temporary = parts.directory
        found = self._wait_for(parts)
        blocks = [block for part in found for block in part.blocks]
        files = [file for part in found for file in part.files]
        files.append(write_metadata(temporary, blocks))
        parts.clear()
        manifest = order.manifest.model_copy(
            update={"files": tuple(files), "blocks": tuple(blocks)}
        )
        self._directory.seal(temporary, manifest)
        with self._publishing:
            self._check()
            self._directory.publish(temporary, manifest.iteration)
        self._announce(order, sum(file.num_bytes for file in files))
        try:
            self._on_complete(self._directory.prune(self._num_kept))
        except (OSError, CheckpointError) as error:
            _LOG.warning(
                "cannot delete older checkpoints: newest=%d reason=%s",
                order.manifest.iteration,
                error,
            )

    def _wait_for(self, parts: Parts) -> list[CheckpointPart]:
        deadline = self._monotonic_s() + self._give_up_s
        for global_rank in range(self._num_ranks):
            while not parts.has(global_rank):
                parts.check_missing()
                if self._monotonic_s() > deadline:
                    raise GivenUpError(f"no part of rank {global_rank} in {self._give_up_s:.0f} s")
                self._stop.wait(_POLL_S)
                self._check()
        return [parts.read(global_rank) for global_rank in range(self._num_ranks)]

    def _announce(self, order: SaveOrder, num_bytes: int) -> None:
        saved = SavedCheckpoint(
            iteration=order.manifest.iteration,
            num_bytes=num_bytes,
            duration_s=self._monotonic_s() - order.began_s,
            blocked_s=order.blocked_s,
        )
        _LOG.info(
            "saved a checkpoint: checkpoint=%s bytes=%d duration_s=%.3f blocked_s=%.4f",
            name_of(saved.iteration),
            num_bytes,
            saved.duration_s,
            saved.blocked_s,
        )
        with self._changed:
            self._completed.append(saved)

    def _give_up(self, iteration: int, reason: str) -> None:
        if self._global_rank == 0:
            shutil.rmtree(self._directory.temporary(iteration), ignore_errors=True)
            self._miss(iteration, reason)
        else:
            self._parts_of(iteration).miss(self._global_rank, reason)

    def _miss(self, iteration: int, reason: str) -> None:
        with self._changed:
            self._missed.append(MissedCheckpoint(iteration, reason))

    def _check(self) -> None:
        if self._stop.is_set():
            raise AbandonedError

    def _parts_of(self, iteration: int) -> Parts:
        return Parts(self._directory.temporary(iteration), self.run)
