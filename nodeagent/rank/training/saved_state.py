"""What a rank keeps of its training: checkpoints on disk, copies in the memory of other ranks.

It belongs to a process and outlives generations, like the training that it serves. When something is
saved or copied, the training loop decides (``train``); how, is in ``checkpoint`` and ``memory``.
"""

import logging
from typing import Final, Literal, NamedTuple

from nodeagent.protocol.observations import CheckpointMissed, CheckpointSaved
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.agent_link.dependencies import Dependencies
from nodeagent.rank.agent_link.rendezvous_store import AgentStore, StoreClosedError, StoreError
from nodeagent.rank.checkpoint import Checkpoints, MissedCheckpoint
from nodeagent.rank.groups.halting import HaltedError
from nodeagent.rank.groups.parallel_groups import Groups
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.loop import Loop
from nodeagent.rank.state.memory_checkpoints import MemoryCheckpoints, MissedCopy
from nodeagent.rank.state.rank_state import TrainingState

logger = logging.getLogger(__name__)

_FINISHED_KEY: Final = "finished"
"""Set in the store by global rank 0, once the final checkpoint is complete or given up."""

_LOOK_UP_S: Final = 0.05
_COPY_LOOK_UP_S: Final = 0.005


class _Generation(NamedTuple):
    """The generation that the rank is part of."""

    launch: RankLaunch
    place: Place
    groups: Groups
    store: AgentStore
    checkpoints: Checkpoints


class SavedState:
    """Saves and copies one rank's state, and knows what is saved.

    Attributes:
        memory: The copies, own and of others.
        final_iteration: The iteration of the final checkpoint in this generation, once it has begun.
    """

    def __init__(self, loop: Loop, state: TrainingState, dependencies: Dependencies) -> None:
        self._loop = loop
        self._dependencies = dependencies
        self._generation: _Generation | None = None
        self.memory = MemoryCheckpoints(state)
        self.final_iteration: int | None = None

    @property
    def checkpoints(self) -> Checkpoints:
        """The task's checkpoints on disk, as this rank has to do with them."""
        return self._entered.checkpoints

    def enter(self, launch: RankLaunch, place: Place, groups: Groups, store: AgentStore) -> None:
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
        """Give up what is under way: the generation's connections are cut."""
        if self._generation is not None:
            self._generation.checkpoints.abandon()
        self.memory.leave()

    def load(self, store: AgentStore) -> int:
        """Load the newest checkpoint into the loop's model; return its iteration, 0 if there is none."""
        if not self._entered.launch.settings.checkpoint_dir:
            return 0
        return self.checkpoints.load(self._loop.chunks[0], self._loop.optimizer, store)

    def copy(self, iteration: int, *, is_wanted: bool = False) -> None:
        """Begin an in-memory checkpoint, if one is due or wanted. All ranks call it; none is busy with another."""
        interval = self._entered.launch.settings.memory_interval
        if interval and (is_wanted or not iteration % interval):
            self._take_copies(iteration)

    def complete_copies(self, iteration: int, *, are_begun: bool) -> None:
        """Before the ranks park: have the in-memory checkpoints of ``iteration`` complete. All ranks call it.

        They may not be, where something broke on the way: what is complete, every rank tells by its position.

        Args:
            iteration: The newest one.
            are_begun: Whether its copies are on their way; otherwise those of another may be.

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
            # Not while the generation forms: nobody waits for the first copy.
            holders = self._entered.launch.copy_holders
            self.memory.connect(self._entered.groups.form_for_copies(holders))
        if self.memory.is_wanted:
            self.memory.take(iteration)

    def save(self, iteration: int, loss: float, *, is_final: bool) -> None:
        """Begin a checkpoint of ``iteration``; the final one waits for another that is being written.

        Nothing is saved where the task has no directory for it.

        Raises:
            HaltedError: The generation was halted meanwhile.
        """
        loop = self._loop
        if not self._entered.launch.settings.checkpoint_dir:
            return
        if is_final:
            # One that is still being written would make the last one be skipped.
            self._wait_for_checkpoint()
            self.final_iteration = iteration
        self.checkpoints.save(iteration, loss, loop.chunks[0], loop.optimizer)

    def finish(self) -> None:
        """Save what is being saved. No rank leaves before: until then others may need what it has.

        Raises:
            HaltedError: The generation was halted meanwhile.
            StoreClosedError: The same.
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
            logger.warning("leaves without having heard that all is saved: %s", error)

    def report_saved(self) -> None:
        """Tell the agent of the checkpoints that are complete, or given up, since the last call."""
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
        """Wait until no copy is on its way; for how long is the controller's to say.

        Raises:
            HaltedError: The generation was halted.
        """
        while self.memory.is_busy and not self.memory.is_broken:
            if self._dependencies.halted.wait(_COPY_LOOK_UP_S):
                raise HaltedError

    def _wait_for_checkpoint(self) -> None:
        """Wait until nothing is being written; for how long is the controller's to say.

        Raises:
            HaltedError: The generation was halted; another one completes a checkpoint.
        """
        while not self.checkpoints.wait(_LOOK_UP_S) and self.checkpoints.is_writing:
            if self._dependencies.halted.is_set():
                raise HaltedError

    @property
    def _entered(self) -> _Generation:
        assert self._generation is not None, "enter() comes first"
        return self._generation
