"""The checkpoints of one task on one rank: save, load, compare losses, quarantine."""

import json
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.agent_link.exception_report import first_line
from nodeagent.rank.checkpoint.checkpoint_directory import CheckpointDirectory, name_of
from nodeagent.rank.checkpoint.loading import Loaded, Loader, value_of_rank_0
from nodeagent.rank.checkpoint.manifest import CheckpointError, Manifest, settings_digest
from nodeagent.rank.checkpoint.recorded_losses import NUM_COMPARED, RecordedLosses
from nodeagent.rank.checkpoint.saving import MissedCheckpoint, SavedCheckpoint, SaveOrder, Saver
from nodeagent.rank.checkpoint.shared_directory import SharedDirectory, WatchedStore
from nodeagent.rank.checkpoint.snapshot import HostMemory
from nodeagent.rank.checkpoint.whole_model import WholeState, whole_state
from nodeagent.rank.groups.rank_place import Place

_LOG = logging.getLogger(__name__)

GIVE_UP_S: Final = 600.0
_LOSSES_KEY: Final = "checkpoint/losses"
_CLOCK: Final = SystemNodeClock()

Model: TypeAlias = DistributedDataParallel | Sequence[DistributedDataParallel]
"""Megatron's wrapper around the model; several with virtual pipeline stages."""


class Checkpoints:
    """Saves and loads the checkpoints of a task on one rank.

    Args:
        launch: The rank in its generation.
        place: Its place in the layout.
        is_halted: Whether the generation was halted.
        give_up_s: Seconds that global rank 0 waits for the parts of the other ranks.
        monotonic_s: The clock.
    """

    def __init__(
        self,
        launch: RankLaunch,
        place: Place,
        is_halted: Callable[[], bool],
        *,
        give_up_s: float = GIVE_UP_S,
        monotonic_s: Callable[[], float] = _CLOCK.monotonic_s,
    ) -> None:
        self._is_halted = is_halted
        self._give_up_s = give_up_s
        self._monotonic_s = monotonic_s
        self._memory = HostMemory()
        self._loaded: Loaded | None = None
        self._recalled: tuple[int, dict[int, float]] | None = None
        """Iteration of the restored copies, and the losses that were recorded after it."""
        self._missed: list[MissedCheckpoint] = []
        self._has_told = False
        """Whether it was said that nodes do not share the directory. Generations may repeat it."""
        self._enter(launch, place)

    def rejoin(self, launch: RankLaunch, place: Place) -> None:
        """Join another generation. An unfinished checkpoint of the old one is abandoned."""
        self._retire_saver()
        self._enter(launch, place)

    def _enter(self, launch: RankLaunch, place: Place) -> None:
        training = launch.settings
        path = Path(training.checkpoint_dir)
        self._launch = launch
        self._place = place
        self._directory = CheckpointDirectory(path, launch.generation)
        self._losses = RecordedLosses(path, settings_digest(training))
        self._loader = Loader(self._directory, place, training, self._losses, self._is_halted)
        self._expected: dict[int, float] = {}
        self._can_note = bool(training.checkpoint_dir)
        self._saver = self._new_saver()
        self._store: WatchedStore | None = None
        self._shared: SharedDirectory | None = None

    def _new_saver(self) -> Saver:
        return Saver(
            self._directory,
            place=self._place,
            num_kept=self._launch.settings.checkpoints_kept,
            give_up_s=self._give_up_s,
            monotonic_s=self._monotonic_s,
            on_complete=self._losses.forget_until,
        )

    def _retire_saver(self) -> None:
        self._missed += self._saver.take_missed()
        if not self._saver.abandon():
            # The old thread hangs in a system call and may still read its memory.
            self._memory = HostMemory()

    # --- save --------------------------------------------------------------------------------

    def save(self, iteration: int, loss: float, model: Model, optimizer: MegatronOptimizer) -> None:
        """Begin to save the state after ``iteration``, whose loss was ``loss``.

        All ranks call it at the same iteration boundary. It returns when the state is copied. The
        rest happens in the background, where errors are logged and reported, not raised. While an
        older checkpoint is still being written, this one is skipped.
        """
        if self._gives_up_for_good(iteration):
            return
        began_s = self._monotonic_s()
        pending = self._saver.pending
        if pending is not None:
            _LOG.warning(
                "checkpoint skipped, the last one is still being written: iteration=%d pending=%d",
                iteration,
                pending,
            )
            self._saver.skip(
                iteration, f"the checkpoint of iteration {pending} is still being written"
            )
            return
        try:
            state = whole_state(_chunks(model), optimizer, is_loading=False)
            manifest = self._manifest(iteration, loss, state)
        except CheckpointError as error:
            _LOG.error("checkpoint was not saved: iteration=%d reason=%s", iteration, error)
            self._saver.skip(iteration, str(error))
            return
        try:
            snapshot = self._memory.take(state.blocks)
        except (RuntimeError, MemoryError) as error:
            # Training continues without the checkpoint.
            reason = f"no host memory for the copy: {first_line(error)}"
            _LOG.error("checkpoint was not saved: iteration=%d reason=%s", iteration, reason)
            self._saver.skip(iteration, reason)
            return
        blocked_s = self._monotonic_s() - began_s
        self._saver.begin(SaveOrder(manifest, snapshot, began_s, blocked_s))

    def _gives_up_for_good(self, iteration: int) -> bool:
        """Return whether no checkpoint can be completed, since nodes do not share the directory."""
        reason = self._shared.why_not() if self._shared is not None else ""
        if not reason:
            return False
        if not self._has_told:
            self._has_told = True
            _LOG.error("no checkpoints on disk: iteration=%d reason=%s", iteration, reason)
            self._renew_saver()
            if self._place.global_rank == 0:
                self._saver.skip(iteration, reason)
        elif self._saver.pending is not None:
            self._renew_saver()
        return True

    def _renew_saver(self) -> None:
        run = self._saver.run
        self._retire_saver()
        self._saver = self._new_saver()
        self._saver.run = run

    def _manifest(self, iteration: int, loss: float, state: WholeState) -> Manifest:
        training = self._launch.settings
        return Manifest(
            iteration=iteration,
            generation=self._launch.generation,
            layout=self._place.layout,
            model=training.model,
            seed=training.seed,
            settings=self._losses.settings,
            loss=loss,
            # Only rank 0 writes the manifest, and shared values are equal on all ranks.
            optimizer=state.shared if self._place.global_rank == 0 else None,
            files=(),
            blocks=(),
        )

    def finished(self) -> list[SavedCheckpoint]:
        """Return the checkpoints completed since the last call. Only global rank 0 has any."""
        completed = self._saver.take_completed()
        if self._shared is not None and completed:
            self._shared.confirm()
        elif self._shared is not None and self._saver.pending is not None:
            self._shared.why_not()  # the answer comes later, and is there at the next save
        return completed

    def missed(self) -> list[MissedCheckpoint]:
        """Return the checkpoints given up since the last call. Only global rank 0 has any."""
        missed, self._missed = self._missed, []
        return [*missed, *self._saver.take_missed()]

    def wait(self, timeout_s: float) -> bool:
        """Wait for the checkpoint that is being written, and return whether it was saved.

        On global rank 0 the whole checkpoint must be on disk, on other ranks their part.
        """
        if (pending := self._saver.pending) is not None or self._is_open:
            self._gives_up_for_good(pending or 0)
        is_done = self._saver.wait(timeout_s)
        if is_done and self._is_open:
            threading.Event().wait(timeout_s)
            return False
        return is_done

    @property
    def _is_open(self) -> bool:
        """Whether this rank still has to find out if all ranks see the same directory."""
        return self._shared is not None and not self._shared.is_known

    @property
    def is_writing(self) -> bool:
        """Whether a checkpoint is being written, or it is open whether one can be completed."""
        return self._saver.pending is not None or self._is_open

    def abandon(self) -> None:
        """Stop writing, because the generation has ended."""
        self._saver.abandon()

    # --- load --------------------------------------------------------------------------------

    def load(self, model: Model, optimizer: MegatronOptimizer, store: WatchedStore) -> int:
        """Load the newest usable checkpoint and return its iteration; 0 if there is none.

        All ranks call it, and load the same checkpoint. If it returns 0 the model is unchanged.

        Raises:
            CheckpointError: A person must act: the newest checkpoint has another model, seed or
                format, or the directory can't be read. All ranks raise it.
            HaltedError: The generation was halted.
            RuntimeError: A peer was lost.
        """
        self._loaded = self._loader.load(_chunks(model), optimizer, store)
        self._expected = self._loaded.losses if self._loaded is not None else {}
        self._recalled = None
        self._agree_on_run(store)
        return self._loaded.iteration if self._loaded is not None else 0

    def forget_load(self) -> None:
        """Forget the load: the state of this process will come from somewhere else."""
        self._loaded = self._recalled = None
        self._expected = {}

    def recall(self, iteration: int, store: WatchedStore, *, is_from_copies: bool) -> None:
        """Set the losses that are expected after ``iteration``, for state from other ranks.

        All ranks call it. For state from in-memory checkpoints the recorded losses are expected, as
        after a load. For state from peers, the remaining losses of the newest load are expected. A
        new rank 0 knows of no load, and then no loss is expected.
        """
        if is_from_copies:
            # A wrong loss would now be evidence against the copies, not against an older load.
            self._loaded, self._recalled = None, (iteration, self._losses.after(iteration))
        if self._loaded is not None and iteration >= self._loaded.iteration + NUM_COMPARED:
            self._loaded = None
        if self._recalled is not None and iteration >= self._recalled[0] + NUM_COMPARED:
            self._recalled = None
        losses = self._recalled[1] if self._recalled is not None else {}
        if self._loaded is not None:
            losses = self._loaded.losses
        recorded = value_of_rank_0(self._place, store, _LOSSES_KEY, json.dumps(losses))
        self._expected = {int(number): loss for number, loss in json.loads(recorded).items()}
        self._agree_on_run(store)

    def _agree_on_run(self, store: WatchedStore) -> None:
        """Agree on a random word that marks the parts of this generation's ranks."""
        self._store = store
        path = self._directory.path if self._launch.settings.checkpoint_dir else None
        self._shared = SharedDirectory(path, self._place, store, self._monotonic_s)
        self._saver.run = self._shared.run

    def note_loss(self, iteration: int, loss: float) -> None:
        """Record the loss of a committed iteration. Only global rank 0 does so."""
        if self._place.global_rank == 0 and self._can_note:
            self._saver.call(lambda: self._append_loss(iteration, loss))

    def _append_loss(self, iteration: int, loss: float) -> None:
        try:
            self._losses.append(iteration, loss)
        except OSError as error:
            self._can_note = False
            _LOG.warning(
                "losses are not recorded any more: path=%s reason=%s", self._directory.path, error
            )

    def expected_loss(self, iteration: int) -> float | None:
        """Return the recorded loss of ``iteration``, soon after a load; None if there is none.

        All ranks get the same result.
        """
        return self._expected.get(iteration)

    def distrust(self, iteration: int, reason: str) -> None:
        """Quarantine the loaded checkpoint and all newer ones. All ranks call it.

        This happens only if ``iteration``, whose loss is wrong, comes soon after the load. The next
        ``load`` then finds an older checkpoint.

        Raises:
            CheckpointError: The checkpoint stays, so it would be loaded again. Either it can't be
                quarantined, or there is no older one: a person must decide to begin from the seed.
                All ranks raise it.
            StoreError: Rank 0 did not publish its result.
        """
        assert self._store is not None, "load() or recall() comes first"
        loaded, self._loaded, self._expected = self._loaded, None, {}
        self._recalled = None
        if loaded is not None and iteration > loaded.iteration + NUM_COMPARED:
            loaded = None
        self._renew_saver()
        problem = ""
        if loaded is not None and self._place.global_rank == 0:
            _LOG.warning(
                "loaded checkpoint is not trusted: checkpoint=%s reason=%s",
                name_of(loaded.iteration),
                reason,
            )
            try:
                problem = self._quarantine_from(loaded.iteration, reason)
            except CheckpointError as error:
                problem = f"{error}; {reason}"
        self._loader.refuse_alike(problem, self._store)

    def _quarantine_from(self, iteration: int, reason: str) -> str:
        """Quarantine a checkpoint and all newer ones, but never the last; return why it stays."""
        is_any_older = any(one.iteration < iteration for one in self._directory.candidates())
        complete = sorted(self._directory.complete())
        bad = [(saved, path) for saved, path in complete if saved >= iteration]
        for _, path in reversed(bad if is_any_older else bad[1:]):
            self._directory.quarantine(path, "distrusted", reason)
        if is_any_older or not bad:
            return ""
        return f"{bad[0][1]} is not to be trusted, and there is no older one: {reason}; remove it to begin from the seed"


def _chunks(model: Model) -> Sequence[DistributedDataParallel]:
    return [model] if isinstance(model, DistributedDataParallel) else model
