"""The training loop of one rank: iteration after iteration, checkpoints, the pause, the stop.

The loop belongs to a process and outlives generations: model, optimizer and ledger stay where they
are when the process joins the next one. Every iteration ends in a vote (``iteration``), so all ranks
decide alike whether to go on, to pause or to stop after it.

Not here: the phases of an iteration, taking up after a fault (``resume``), exceptions (``main``).
"""

import gc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from nodeagent.protocol.observations import AnyObservation, CheckpointSaved, IterationCommitted
from nodeagent.protocol.regroup import Position, StateSource, VoteResult
from nodeagent.protocol.training import RankLaunch
from nodeagent.rank.checkpoint import Checkpoints
from nodeagent.rank.iteration import Iterations
from nodeagent.rank.ledger import Ledger
from nodeagent.rank.loop import Loop
from nodeagent.rank.parallel import Place, data_parallel_group
from nodeagent.rank.rebind import groups_by_role, rebind
from nodeagent.rank.resume import resume_from_peers
from nodeagent.rank.state import TrainingState
from nodeagent.rank.store import AgentStore
from nodeagent.rank.wake import HaltedError

_FINAL_CHECKPOINT_LIMIT_S: Final = 120.0


class DrillError(Exception):
    """Raised on an operator's request, to rehearse an exception in a rank."""


class PausedError(Exception):
    """All ranks agreed to pause at the end of an iteration."""


class Control(Protocol):
    """What the loop needs of the rank's link to its agent. ``link.ControlLink`` is the real one."""

    @property
    def is_stop_requested(self) -> bool:
        """Whether the ranks should stop after the running iteration."""

    @property
    def is_pause_requested(self) -> bool:
        """Whether the ranks should park after the running iteration."""

    def take_raise_request(self) -> bool:
        """Return whether a drill's exception is wanted, once per request."""

    def report(self, observation: AnyObservation) -> None:
        """Hand over a report; it is kept until the agent stored it."""

    def pulse(self, iteration: int, duration_s: float) -> None:
        """Tell that ``iteration`` is done; may be dropped."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the loop knows of the world outside training.

    Attributes:
        control: The link to the agent.
        halted: Set when the generation is halted; a wait ends at once then.
        monotonic_s: The loop's only access to time.
    """

    control: Control
    halted: threading.Event
    monotonic_s: Callable[[], float]


class Training:
    """One process's share of a task's training.

    Args:
        build: Makes the loop in the state of the seed. The process groups are formed then.
        surroundings: The world outside.
    """

    def __init__(self, build: Callable[[], Loop], surroundings: Surroundings) -> None:
        self._build = build
        self._around = surroundings
        self._control = surroundings.control
        self._ledger = Ledger()
        self._begin_from_seed()
        self._launch: RankLaunch | None = None
        self._checkpoints: Checkpoints | None = None
        self._to_compute: Sequence[int] | None = None
        self._paced_at = 0.0

    def _begin_from_seed(self) -> None:
        loop = self._loop = self._build()
        self._iterations = Iterations(
            loop, self._ledger, self._at_boundary, self._around.halted.is_set
        )
        self._state = TrainingState(loop.chunks, loop.optimizer)
        self._groups = groups_by_role()

    @property
    def launch(self) -> RankLaunch:
        """Who this rank is at present."""
        assert self._launch is not None, "enter() comes first"
        return self._launch

    @property
    def iteration(self) -> int:
        """The iteration that runs."""
        return self._ledger.iteration

    @property
    def committed(self) -> int:
        """The newest iteration whose update this rank has applied."""
        return self._ledger.committed

    def position(self) -> Position:
        """Return where this rank stands. Call it while nothing runs."""
        return self._ledger.position(len(self._iterations.reduction.names))

    def enter(self, launch: RankLaunch, place: Place, store: AgentStore) -> StateSource:
        """Join a generation whose groups are formed; return where the state came from.

        Raises:
            RuntimeError: A peer was lost meanwhile.
        """
        has_trained = self._launch is not None
        self._launch = launch
        groups = groups_by_role()
        if groups is not self._groups:
            rebind(self._loop.chunks, self._loop.optimizer, self._groups, groups)
            self._groups = groups
        self._iterations.enter(place, data_parallel_group())
        if self._checkpoints is not None:
            self._checkpoints.abandon()
        self._checkpoints = Checkpoints(launch, place)
        if launch.resume.source == "peer":
            resumed = resume_from_peers(
                launch.resume, place, self._iterations, self._ledger, self._state
            )
            self._to_compute = resumed.micro_batches
            return resumed.source
        iteration = self._load(store)
        if not iteration and has_trained:
            # Two models at a time may not fit.
            del self._loop, self._iterations, self._state
            gc.collect()
            self._begin_from_seed()
            self._iterations.enter(place, data_parallel_group())
        self._ledger.adopt(iteration)
        return "disk" if iteration else "seed"

    def _load(self, store: AgentStore) -> int:
        assert self._checkpoints is not None
        self._ledger.has_state = False
        self._to_compute = None
        return self._checkpoints.load(self._loop.chunks[0], self._loop.optimizer, store)

    def run(self) -> Literal["stopped", "finished"]:
        """Train until the task is finished or all ranks agreed to stop; both save a checkpoint.

        Raises:
            PausedError: All ranks agreed to pause; nothing of the next iteration is begun.
            HaltedError: The generation was halted.
            Exception: Whatever else interrupted the iteration.
        """
        spec = self.launch.training
        while spec.num_iterations is None or self.committed < spec.num_iterations:
            is_last = self.iteration == spec.num_iterations
            vote, (_, is_stop_wanted) = self._iterate()
            is_final = is_stop_wanted or is_last
            if is_final or self.committed % spec.checkpoint_interval == 0:
                self._save(vote, is_final=is_final)
            if is_stop_wanted and not is_last:
                self._finish_saving()
                return "stopped"
            if vote.is_pause_wanted and not is_last:
                raise PausedError
        self._finish_saving()
        return "finished"

    def _iterate(self) -> tuple[VoteResult, list[bool]]:
        began = self._around.monotonic_s()
        control, is_fresh = self._control, self._to_compute is None
        if self._to_compute is None:
            self._iterations.begin()
            self._to_compute = self._iterations.own_share()
        micro_batches, self._to_compute = self._to_compute, None
        self._paced_at = began
        vote, granted = self._iterations.run(
            micro_batches, control.is_pause_requested, control.is_stop_requested
        )
        self._announce(vote, self._around.monotonic_s() - began, is_fresh=is_fresh)
        self._report_saved()
        return vote, granted

    def _at_boundary(self, micro_batch: int) -> None:
        """Stop here, before ``micro_batch``, if that is wanted and no rank would wait for this one."""
        if self._control.take_raise_request():
            raise DrillError(f"drill: exception in micro-batch {micro_batch}")
        place = self._iterations.place
        if place.is_first_stage:
            self._pace(place)
        if place.layout.tp * place.layout.pp == 1 and self._around.halted.is_set():
            raise HaltedError

    def _pace(self, place: Place) -> None:
        """Wait until a micro-batch has taken its part of the iteration's floor."""
        spec = self.launch.training
        if spec.iteration_floor_s > 0:
            floor_s = spec.iteration_floor_s * place.layout.dp / spec.num_micro_batches
            elapsed_s = self._around.monotonic_s() - self._paced_at
            self._around.halted.wait(max(0.0, floor_s - elapsed_s))
            self._paced_at = self._around.monotonic_s()

    def _announce(self, vote: VoteResult, duration_s: float, *, is_fresh: bool) -> None:
        self._control.pulse(vote.iteration, duration_s)
        if self._iterations.place.global_rank != 0:
            return
        launch, spec = self.launch, self.launch.training
        is_resumed = vote.iteration == launch.resume.committed + 1 and not is_fresh
        self._control.report(
            IterationCommitted(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                iteration=vote.iteration,
                loss=vote.loss,
                duration_s=duration_s,
                num_tokens=spec.num_micro_batches * spec.micro_batch_size * spec.model.seq_length,
                grad_norm=vote.grad_norm,
                num_recomputed=launch.resume.num_recomputed if is_resumed else 0,
                num_saved=launch.resume.num_saved if is_resumed else 0,
            )
        )

    def _save(self, vote: VoteResult, *, is_final: bool) -> None:
        assert self._checkpoints is not None
        loop = self._loop
        if is_final:
            # One that is still being written would make the last one be skipped.
            self._checkpoints.wait(_FINAL_CHECKPOINT_LIMIT_S)
        self._checkpoints.save(vote.iteration, vote.loss, loop.chunks[0], loop.optimizer)

    def _finish_saving(self) -> None:
        assert self._checkpoints is not None
        self._checkpoints.wait(_FINAL_CHECKPOINT_LIMIT_S)
        self._report_saved()

    def _report_saved(self) -> None:
        assert self._checkpoints is not None
        launch = self.launch
        for saved in self._checkpoints.finished():
            self._control.report(
                CheckpointSaved(
                    task=launch.task,
                    generation=launch.generation,
                    global_rank=launch.global_rank,
                    iteration=saved.iteration,
                    duration_s=saved.duration_s,
                    num_bytes=saved.num_bytes,
                )
            )
