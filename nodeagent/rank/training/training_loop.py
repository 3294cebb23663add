"""The training loop of one rank: iteration after iteration, until the task stops or the ranks park.

The loop belongs to a process and outlives generations: model, optimizer and ledger stay in place
when the process joins the next generation. Every iteration ends in a vote, so all ranks make the
same decision after it: continue, park or stop.

The phases of an iteration are in ``iteration``, checkpoints in ``saved_state``, recovery after a
fault in ``resume``, and exceptions in ``process.rank_main``.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final, Literal

from nodeagent.protocol.observations import IterationCommitted
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import Position, StateSource, VoteResult
from nodeagent.protocol.standing import Standing
from nodeagent.rank.agent_link.dependencies import Dependencies
from nodeagent.rank.agent_link.rendezvous_store import AgentStore
from nodeagent.rank.agent_link.staged_faults import StagedFaults
from nodeagent.rank.groups.group_rebinding import groups_by_role, rebind
from nodeagent.rank.groups.halting import HaltedError
from nodeagent.rank.groups.parallel_groups import ParallelGroups, data_parallel_group
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.iteration_phases import IterationHooks, Iterations, NonFiniteLossError
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.program.loop import Loop
from nodeagent.rank.state.rank_state import TrainingState
from nodeagent.rank.training.resume import resume_from_peers
from nodeagent.rank.training.saved_state import SavedState

_LOG = logging.getLogger(__name__)

_LOSS_TOLERANCE: Final = 0.01
"""Largest relative difference to the recorded loss that rounding can cause in any layout."""


class ParkedError(Exception):
    """All ranks agreed to park at the end of an iteration."""


class SuspectStateError(Exception):
    """An iteration has another loss than before the load: the loaded state is wrong."""


class Training:
    """One process's share of a task's training."""

    def __init__(self, loop: Loop, dependencies: Dependencies) -> None:
        self._loop = loop
        self._dependencies = dependencies
        self._control = dependencies.control
        self._ledger = Ledger()
        self._staged_faults = StagedFaults(
            self._control.take_fault, dependencies.halted.wait, dependencies.monotonic_s
        )
        self._iterations = Iterations(
            loop,
            self._ledger,
            IterationHooks(
                self._at_boundary, self._staged_faults.alter_loss, self._staged_faults.before_vote
            ),
            dependencies.halted.is_set,
            self._examine,
            self._note_accumulated,
        )
        self._state = TrainingState(loop.chunks, loop.optimizer)
        self._saved_state = SavedState(loop, self._state, dependencies)
        self._group_by_role = groups_by_role()
        self._launch: RankLaunch | None = None
        self._to_compute: Sequence[int] | None = None
        self._paced_at = 0.0
        self._paced_s = 0.0
        self._busy_s = 0.0
        self._began_at = 0.0
        self._moved_at = dependencies.monotonic_s()

    @property
    def launch(self) -> RankLaunch:
        """The launch of this rank in the present generation."""
        assert self._launch is not None, "enter() comes first"
        return self._launch

    @property
    def iteration(self) -> int:
        """The running iteration."""
        return self._ledger.iteration

    @property
    def committed(self) -> int:
        """The newest iteration whose update this rank has applied."""
        return self._ledger.committed

    def position(self) -> Position:
        """Return the progress of this rank. Call it while no iteration runs."""
        position = self._ledger.position(
            len(self._iterations.reduction.names), self._saved_state.memory.copies.held()
        )
        shard = self._state.partition if self._state.sharded is not None else None
        return position.model_copy(update={"shard": shard if shard and shard[1] else None})

    def settle(self, is_inner_halted: Callable[[], bool]) -> None:
        """Drop results that a broken generation may have damaged. Call it before ``position``."""
        self._iterations.settle(is_inner_halted)

    def locate(self, standing: Standing) -> Standing:
        """Add the progress of the running iteration to ``standing``. Any thread may call it."""
        ledger = self._ledger
        return standing.model_copy(
            update={
                "iteration": ledger.iteration,
                "phase": ledger.phase,
                "num_micro_batches": len(ledger.loss_by_micro_batch),
                "idle_s": self._dependencies.monotonic_s() - self._moved_at,
            }
        )

    def become_spare(self) -> None:
        """Forget the training state: the other ranks continue without this process."""
        self._ledger.adopt(0)
        self._ledger.has_state = False
        self._saved_state.memory.copies.forget()
        self._saved_state.checkpoints.forget_load()

    def leave(self) -> bool:
        """Leave the generation after its connections ended.

        Return whether an operation never ends.
        """
        self._saved_state.leave()
        return self._iterations.reduction.abandon()

    def enter(
        self, launch: RankLaunch, place: Place, groups: ParallelGroups, store: AgentStore
    ) -> StateSource:
        """Join a generation whose groups are formed; return where the state came from.

        Raises:
            RuntimeError: A peer was lost meanwhile.
        """
        self._launch = launch
        self._staged_faults.forget()
        by_role = groups_by_role()
        rebind(self._loop.chunks, self._loop.optimizer, self._group_by_role, by_role)
        self._group_by_role = by_role
        self._iterations.enter(place, data_parallel_group())
        self._saved_state.enter(launch, place, groups, store)
        if launch.resume.source != "disk":
            resumed = resume_from_peers(
                launch.resume,
                place,
                self._iterations,
                self._ledger,
                self._state,
                self._saved_state.memory.copies,
            )
            self._to_compute = resumed.micro_batches
            has_copies = any(shard.is_copy for shard in launch.resume.shards)
            committed = self._ledger.committed
            self._saved_state.checkpoints.recall(committed, store, is_from_copies=has_copies)
            return resumed.source
        self._state.enter(place)
        iteration = self._saved_state.load(store)
        self._ledger.adopt(iteration)
        return "disk" if iteration else "seed"

    def run(self) -> Literal["stopped", "finished"]:
        """Train until the task is finished or all ranks agreed to stop; both save a checkpoint.

        Raises:
            ParkedError: All ranks agreed to park. Their copies are complete if that was asked for,
                and the next iteration has not begun.
            HaltedError: The generation was halted.
            Exception: Another error interrupted the iteration.
        """
        spec = self.launch.settings
        while spec.num_iterations is None or self.committed < spec.num_iterations:
            is_last = self.iteration == spec.num_iterations
            vote, (_, is_stop_wanted, is_copying, needs_copies) = self._iterate()
            is_final = is_stop_wanted or is_last
            is_parking = vote.is_park_wanted and not is_final
            needs_copies &= is_parking
            if not is_final and not is_copying:
                self._saved_state.copy(vote.iteration, is_wanted=needs_copies)
            if is_final or self.committed % spec.checkpoint_interval == 0:
                self._saved_state.save(vote.iteration, vote.loss, is_final=is_final)
            if is_stop_wanted and not is_last:
                self._saved_state.finish()
                return "stopped"
            if needs_copies:
                self._saved_state.complete_copies(vote.iteration, are_begun=not is_copying)
            if is_parking:
                raise ParkedError
        if self._saved_state.final_iteration != self.committed:
            # A fault interrupted the work between the last iteration and its checkpoint.
            self._saved_state.save(self.committed, self._loss_of_last(), is_final=True)
        self._saved_state.finish()
        return "finished"

    def _loss_of_last(self) -> float:
        """Return the loss of the newest iteration; NaN if this rank joined after it."""
        vote = self._ledger.vote or self.launch.resume.vote
        return vote.loss if vote is not None and vote.iteration == self.committed else math.nan

    def _iterate(self) -> tuple[VoteResult, list[bool]]:
        began = self._began_at = self._moved_at = self._dependencies.monotonic_s()
        self._paced_s = self._busy_s = 0.0
        control, is_fresh = self._control, self._to_compute is None
        if self._to_compute is None:
            self._iterations.begin()
            self._to_compute = self._iterations.own_share()
        micro_batches, self._to_compute = self._to_compute, None
        self._paced_at = began
        try:
            vote, granted = self._iterations.run(
                micro_batches,
                lambda: control.is_park_requested,
                lambda: control.is_stop_requested,
                lambda: self._saved_state.memory.is_busy,
                lambda: control.needs_copies,
            )
        except NonFiniteLossError as error:
            if self._saved_state.checkpoints.expected_loss(self.iteration) is not None:
                raise self._distrusted(self.iteration, math.nan) from error
            raise
        self._announce(vote, self._dependencies.monotonic_s() - began, is_fresh=is_fresh)
        self._saved_state.report_saved()
        return vote, granted

    def _at_boundary(self, micro_batch: int) -> None:
        """Run drills, and stop before ``micro_batch`` if the generation was halted."""
        self._moved_at = self._dependencies.monotonic_s()
        place = self._iterations.place
        if place.is_first_stage:
            self._pace(place)
        self._staged_faults.at_boundary(self.iteration, micro_batch)
        self._paced_at = self._dependencies.monotonic_s()
        # With several ranks in a replica, the others would wait for this one in a collective.
        if place.layout.tp * place.layout.pp == 1 and self._dependencies.halted.is_set():
            raise HaltedError

    def _pace(self, place: Place) -> None:
        """Wait until a micro-batch has taken its share of ``iteration_floor_s``."""
        spec = self.launch.settings
        if spec.iteration_floor_s > 0:
            floor_s = spec.iteration_floor_s * place.layout.dp / spec.num_micro_batches
            elapsed_s = self._dependencies.monotonic_s() - self._paced_at
            wait_s = max(0.0, floor_s - elapsed_s)
            self._dependencies.halted.wait(wait_s)
            self._moved_at = self._dependencies.monotonic_s()
            self._paced_s += wait_s

    def _note_accumulated(self) -> None:
        self._moved_at = self._dependencies.monotonic_s()
        self._busy_s = self._moved_at - self._began_at - self._paced_s

    def _examine(self, vote: VoteResult) -> None:
        """Compare the loss with the recorded loss of the same iteration, if there is one.

        Raises:
            SuspectStateError: They differ. The loaded checkpoint is quarantined.
            CheckpointError: They differ, but the checkpoint can't be quarantined.
        """
        expected = self._saved_state.checkpoints.expected_loss(vote.iteration)
        if expected is not None and abs(vote.loss - expected) > _LOSS_TOLERANCE * abs(expected):
            raise self._distrusted(vote.iteration, vote.loss)

    def _distrusted(self, iteration: int, loss: float) -> SuspectStateError:
        """Quarantine the checkpoint that the state came from, and return the error.

        All ranks call it.
        """
        checkpoints = self._saved_state.checkpoints
        reason = f"iteration {iteration}: loss {loss:.6g}, and {checkpoints.expected_loss(iteration):.6g} before"
        self._ledger.has_state = False
        # All in-memory copies are of this state, or of states that follow from it.
        self._saved_state.memory.copies.forget()
        checkpoints.distrust(iteration, reason)
        return SuspectStateError(reason)

    def _announce(self, vote: VoteResult, duration_s: float, *, is_fresh: bool) -> None:
        self._moved_at = self._dependencies.monotonic_s()
        report = None
        if self._iterations.place.global_rank == 0:
            self._saved_state.checkpoints.note_loss(vote.iteration, vote.loss)
            report = self._committed(vote, duration_s, is_fresh=is_fresh)
        self._control.pulse(vote.iteration, duration_s, self._busy_s, report=report)

    def _committed(
        self, vote: VoteResult, duration_s: float, *, is_fresh: bool
    ) -> IterationCommitted:
        launch, loop = self.launch, self._loop
        is_resumed = vote.iteration == launch.resume.committed + 1 and not is_fresh
        is_second_try = self._iterations.is_second_try
        num_recomputed = launch.resume.num_recomputed if is_resumed else 0
        return IterationCommitted(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            iteration=vote.iteration,
            loss=vote.loss,
            duration_s=duration_s,
            num_tokens=loop.num_micro_batches * loop.micro_batch_size * loop.seq_length,
            grad_norm=vote.grad_norm,
            num_recomputed=num_recomputed + loop.num_micro_batches * is_second_try,
            num_saved=launch.resume.num_saved if is_resumed and not is_second_try else 0,
        )
