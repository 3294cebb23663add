"""The checkpoints of one rank: on disk, and in the memory of other ranks.

The object belongs to a process and outlives generations. ``training_loop`` decides when a
checkpoint is made. ``checkpoint`` and ``state.memory_checkpoints`` make it.
"""

import logging
from typing import Final, Literal, NamedTuple

from nodeagent.protocol.observations import CheckpointMissed, CheckpointSaved
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.agent_link.dependencies import Dependencies
from nodeagent.rank.agent_link.rendezvous_store import AgentStore, StoreClosedError, StoreError
from nodeagent.rank.checkpoint import Checkpoints, MissedCheckpoint
from nodeagent.rank.groups.halting import HaltedError
from nodeagent.rank.groups.parallel_groups import ParallelGroups
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.loop import Loop
from nodeagent.rank.state.memory_checkpoints import MemoryCheckpoints, MissedCopy
from nodeagent.rank.state.rank_state import TrainingState

_LOG = logging.getLogger(__name__)

_FINISHED_KEY: Final = "finished"
"""Global rank 0 sets this key once the final checkpoint is complete or given up."""

_LOOK_UP_S: Final = 0.05
_COPY_LOOK_UP_S: Final = 0.005


class _Generation(NamedTuple):
    """The generation that the rank is part of."""

    launch: RankLaunch
    place: Place
    groups: ParallelGroups
    store: AgentStore
    checkpoints: Checkpoints


class SavedState:
    """Saves and copies one rank's state, and reports completed and missed checkpoints.

    Attributes:
        memory: The in-memory checkpoints: this rank's own, and those it holds for other ranks.
        final_iteration: The iteration of the final checkpoint in this generation, once it has
            begun.
    """

    def __init__(self, loop: Loop, state: TrainingState, dependencies: Dependencies) -> None:
        self._loop = loop
        self._dependencies = dependencies
        self._generation: _Generation | None = None
        self.memory = MemoryCheckpoints(state)
        self.final_iteration: int | None = None

    @property
    def checkpoints(self) -> Checkpoints:
        """The task's checkpoints on disk."""
        return self._entered.checkpoints

    def enter(
        self, launch: RankLaunch, place: Place, groups: ParallelGroups, store: AgentStore
    ) -> None:
        """Join a generation whose groups are formed."""
        self.memory.enter(launch, place)
        if self._generation is None:
            checkpoints = Checkpoints(launch, place, self._dependencies.halted.is_set)
        else:
            checkpoints = self._generation.checkpoints
            checkpoints.rejoin(launch, place)
        self._generation = _Generation(launch, place, groups, store, checkpoints)
        self.final_iteration = None

    def leave(self) -> None:
        """Give up unfinished checkpoints. The generation's connections have ended."""
        if self._generation is not None:
            self._generation.checkpoints.abandon()
        self.memory.leave()

    def load(self, store: AgentStore) -> int:
        """Load the newest checkpoint into the loop; return its iteration, 0 if there is none."""
        if not self._entered.launch.settings.checkpoint_dir:
            return 0
        return self.checkpoints.load(self._loop.chunks[0], self._loop.optimizer, store)

    def copy(self, iteration: int, *, is_wanted: bool = False) -> None:
        """Begin an in-memory checkpoint, if one is due or wanted.

        All ranks call it, while none of them is still copying.
        """
        interval = self._entered.launch.settings.memory_interval
        if interval and (is_wanted or not iteration % interval):
            self._take_copies(iteration)

    def complete_copies(self, iteration: int, *, are_begun: bool) -> None:
        """Wait until the copies of ``iteration`` are complete, before the ranks park.

        All ranks call it. If a copy broke, they are not complete afterwards: each rank's position
        lists its complete copies.

        Args:
            iteration: The newest iteration.
            are_begun: Whether its copies have begun. If not, older copies may still be in progress.

        Raises:
            HaltedError: The generation was halted meanwhile.
            RuntimeError: A peer was lost meanwhile.
        """
        self._complete_copies(iteration, are_begun=are_begun)
        self._report_missed_copy()

    def _complete_copies(self, iteration: int, *, are_begun: bool) -> None:
        memory = self.memory
        if are_begun:
            self._wait_for_copies()
        elif memory.is_wanted and not self._is_any(memory.is_broken):
            self._wait_for_copies()
            if not self._is_any(memory.is_busy):
                self._take_copies(iteration)
                self._wait_for_copies()

    def _is_any(self, is_so: bool) -> bool:
        is_halted = self._dependencies.halted.is_set
        return any(self._entered.place.sum_over_all([float(is_so)], is_halted))

    def _take_copies(self, iteration: int) -> None:
        if self.memory.needs_group:
            # Connected at the first copy and not while the generation forms: recovery is faster so.
            holders = self._entered.launch.copy_holders
            self.memory.connect(self._entered.groups.form_for_copies(holders))
        if self.memory.is_wanted:
            self.memory.take(iteration)

    def save(self, iteration: int, loss: float, *, is_final: bool) -> None:
        """Begin a checkpoint of ``iteration``, if the task has a directory for checkpoints.

        The final checkpoint waits until an older one is written.

        Raises:
            HaltedError: The generation was halted meanwhile.
        """
        loop = self._loop
        if not self._entered.launch.settings.checkpoint_dir:
            return
        if is_final:
            # While an older checkpoint is being written, a new one would be skipped.
            self._wait_for_checkpoint()
            self.final_iteration = iteration
        self.checkpoints.save(iteration, loss, loop.chunks[0], loop.optimizer)

    def finish(self) -> None:
        """Wait until all ranks have written their checkpoints.

        No rank leaves earlier, because another rank could need its state until then.

        Raises:
            HaltedError: The generation was halted meanwhile.
            StoreClosedError: The generation was halted meanwhile.
        """
        self._wait_for_checkpoint()
        self.report_saved()
        try:
            if self._entered.launch.global_rank == 0:
                self._entered.store.set(_FINISHED_KEY, "")
            else:
                self._entered.store.wait([_FINISHED_KEY])
        except StoreClosedError:
            raise
        except StoreError as error:
            _LOG.warning(
                "rank leaves without confirmation of the final checkpoint: rank=%d iteration=%s"
                " reason=%s",
                self._entered.launch.global_rank,
                self.final_iteration,
                error,
            )

    def report_saved(self) -> None:
        """Report the checkpoints that were completed or given up since the last call."""
        launch = self._entered.launch
        for missed in self.checkpoints.missed():
            self._report_missed("disk", missed)
        self._report_missed_copy()
        for saved in self.checkpoints.finished():
            self._dependencies.control.report(
                CheckpointSaved(
                    task=launch.task,
                    generation=launch.generation,
                    global_rank=launch.global_rank,
                    iteration=saved.iteration,
                    duration_s=saved.duration_s,
                    num_bytes=saved.num_bytes,
                )
            )

    def _report_missed_copy(self) -> None:
        if missed := self.memory.take_missed():
            self._report_missed("memory", missed)

    def _report_missed(
        self, tier: Literal["memory", "disk"], missed: MissedCheckpoint | MissedCopy
    ) -> None:
        launch = self._entered.launch
        self._dependencies.control.report(
            CheckpointMissed(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                tier=tier,
                iteration=missed.iteration,
                reason=missed.reason,
            )
        )

    def _wait_for_copies(self) -> None:
        """Wait until no copy is in progress.

        The controller's time limit bounds the wait, by a halt.

        Raises:
            HaltedError: The generation was halted.
        """
        while self.memory.is_busy and not self.memory.is_broken:
            if self._dependencies.halted.wait(_COPY_LOOK_UP_S):
                raise HaltedError

    def _wait_for_checkpoint(self) -> None:
        """Wait until no checkpoint is being written. The controller bounds the wait, by a halt.

        Raises:
            HaltedError: The generation was halted. The next one saves a checkpoint again.
        """
        while not self.checkpoints.wait(_LOOK_UP_S) and self.checkpoints.is_writing:
            if self._dependencies.halted.is_set():
                raise HaltedError

    @property
    def _entered(self) -> _Generation:
        assert self._generation is not None, "enter() comes first"
        return self._generation
