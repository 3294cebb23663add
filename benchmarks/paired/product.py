"""Unicron's own training loop, in blocks of iterations, with a real agent on the other side.

The loop, its phases, its vote and its reports are the product's. A block ends as an operator's
pause ends an iteration, and the next one goes on in the same loop; nothing is replaced but the
question whether a pause is wanted. The agent takes pulses and stores reports as on any node; no
controller is attached to it.
"""

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from megatron.core.optimizer import MegatronOptimizer  # noqa: TID253

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import RankHello
from nodeagent.protocol.observations import IterationCommitted, OwnObservation
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.public import Context, Loop
from nodeagent.rank.agent_link.control_link import ControlLink
from nodeagent.rank.agent_link.dependencies import Dependencies
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.program.program_loading import build_loop
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from nodeagent.rank.training.training_loop import ParkedError, Training
from paired.ranks import Seat


@contextlib.contextmanager
def running_agents(num_nodes: int, directory: Path) -> Iterator[list[Path]]:
    """Run an agent per node inside the block; yields their state directories."""
    agent = [sys.executable, "-m", "nodeagent"]
    state_dirs = [directory / f"n{number}" for number in range(1, num_nodes + 1)]
    started: list[Path] = []
    try:
        for state_dir in state_dirs:
            options = ["--node", state_dir.name, "--num-workers", "8", "--no-template"]
            start = [*agent, "start", "--state-dir", str(state_dir), *options]
            subprocess.run(start, check=True, capture_output=True)
            started.append(state_dir)
        yield state_dirs
    finally:
        for state_dir in started:
            stop = [*agent, "stop", "--state-dir", str(state_dir)]
            subprocess.run(stop, check=True, capture_output=True)


class _BlockControl:
    """The link to the agent, which asks for a pause when a block is full, and notes the times."""

    def __init__(self, link: ControlLink, note_pulse: Callable[[], None]) -> None:
        self._link = link
        self._note_pulse = note_pulse
        self.stamps: list[float] = []
        self.num_wanted = 0
        self.needs_copies = False
        self.losses: list[float] = []

    is_stop_requested = False

    @property
    def is_park_requested(self) -> bool:
        """Whether the iteration that begins is the last one of the block."""
        return len(self.stamps) == self.num_wanted

    def take_fault(self) -> RankFault | None:
        return self._link.take_fault()

    def report(self, observation: OwnObservation) -> None:
        self._link.report(observation)

    def pulse(
        self,
        iteration: int,
        duration_s: float,
        busy_s: float,
        *,
        report: OwnObservation | None = None,
    ) -> None:
        self.stamps.append(time.perf_counter())
        if isinstance(report, IterationCommitted) and report.loss is not None:
            self.losses.append(report.loss)
        self._note_pulse()
        self._link.pulse(iteration, duration_s, busy_s, report=report)


def launch_of(spec: TrainingSpec, place: Place, task: str = "gpt") -> RankLaunch:
    """Return the launch of the rank at ``place``; ``task`` distinguishes loops in one process."""
    return RankLaunch(
        task=TaskId(task),
        generation=Generation(1),
        global_rank=place.global_rank,
        worker=place.global_rank,
        layout=place.layout,
        training=spec,
    )


class Product:
    """One rank of Unicron's loop.

    Args:
        launch: What it is told.
        seat: Where it runs.
        state_dir: Of its node's agent.
        counts_copies: Whether to look, after every iteration, which in-memory checkpoints are
            complete; before a block ends they are all.
    """

    def __init__(
        self, launch: RankLaunch, seat: Seat, state_dir: Path, *, counts_copies: bool = False
    ) -> None:
        clock = SystemNodeClock()
        hello = RankHello(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            pid=os.getpid(),
        )
        link = ControlLink(
            state_dir / "ranks.sock", hello, clock.wall_s, lambda _generation, _broken: None
        )
        link.start()
        self._copied: set[int] = set()
        self._control = _BlockControl(link, self._count_copies if counts_copies else _do_nothing)
        self._control.needs_copies = counts_copies
        self._interval = launch.settings.memory_interval
        around = Dependencies(self._control, threading.Event(), clock.monotonic_s)
        self._training = Training(_build_loop(launch, seat.place), around)
        self._training.enter(launch, seat.place, seat.groups, seat.store)

    @property
    def num_copies(self) -> int:
        """In-memory checkpoints that were complete on this rank, its own or another's."""
        return len(self._copied)

    def _count_copies(self) -> None:
        position = self._training.position()
        iterations = {copy.iteration for copy in position.copies}
        self._copied.update(each for each in iterations if not each % self._interval)

    @property
    def losses(self) -> list[float]:
        """Mean loss of the global batch by iteration; on rank 0."""
        return self._control.losses

    def run_block(self, num_iterations: int) -> list[float]:
        """Train ``num_iterations`` more and return how long each took, seconds."""
        control = self._control
        control.stamps, control.num_wanted = [time.perf_counter()], num_iterations
        with contextlib.suppress(ParkedError):
            self._training.run()
        # The last one takes until the loop is out of it, what follows its pulse included.
        stamps = [*control.stamps[:-1], time.perf_counter()]
        return [end - begin for begin, end in itertools.pairwise(stamps)]


def _build_loop(launch: RankLaunch, place: Place) -> Loop:
    loop = build_loop(Context(launch.settings, place))
    if not launch.settings.shard_optimizer:
        return loop
    assert isinstance(loop.optimizer, MegatronOptimizer)
    return replace(loop, optimizer=ShardedOptimizer(loop.optimizer))


def _do_nothing() -> None:
    """Nobody wants to know."""
