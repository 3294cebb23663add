"""One rank's process, from its first instruction to its exit code, over all its generations.

It opens the link to the agent, prepares the device, meets its peers, builds or receives the model
and its state, and trains. When training stopped or finished, it reports that and exits with 0.

Any other end of a generation parks the process: it reports its position and waits for the next
generation. It can't know whether the error is its own or the echo of a peer's death. The controller
decides that, and the agent kills a rank that shall not continue.
"""

import contextlib
import gc
import logging
import os
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import Final

import torch

from nodeagent.process_tools.log_format import log_to_stderr
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.local import RankHello
from nodeagent.protocol.observations import RankDone, RankHalted, RankJoined
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.regroup import Position
from nodeagent.protocol.standing import Standing
from nodeagent.rank.agent_link.control_link import ControlLink
from nodeagent.rank.agent_link.dependencies import Dependencies
from nodeagent.rank.agent_link.flight_recorder import recorded_collectives
from nodeagent.rank.agent_link.rendezvous_store import AgentStore
from nodeagent.rank.agent_link.training_stacks import dump_stacks_on_signal, read_own_standing
from nodeagent.rank.groups.device_shim import prepare_device, use_device
from nodeagent.rank.groups.halting import HaltedError, StuckWorkError
from nodeagent.rank.groups.parallel_groups import ParallelGroups
from nodeagent.rank.groups.placeholder_groups import placeholder_groups
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.process.failure_report import describe
from nodeagent.rank.process.fork import set_process_name
from nodeagent.rank.process.training_network import network_variables
from nodeagent.rank.training.loop_building import build, check_launch
from nodeagent.rank.training.training_loop import ParkedError, Training

_LOG = logging.getLogger(__name__)

_CLOCK: Final = SystemNodeClock()
_STORED_TIMEOUT_S: Final = 600.0
"""Seconds that a finished rank waits until an agent has stored its report.

A restarted agent may need them.
"""


class CannotRejoinError(Exception):
    """This process can't join another generation: its loop does not recover in process."""


def run_rank(state_dir: Path, launch: RankLaunch) -> int:
    """Train as the rank of ``launch``, then as the rank of each ``Join``; return the exit code.

    The function ends with the report ``RankDone`` and 0. Any other end of a generation is reported
    as ``RankHalted`` after a halt, else as ``RankRaised``. Then the process waits for a ``Join``.
    """
    _settle(launch)
    dump_stacks_on_signal(ProcessFiles.of(state_dir, launch).stack)
    process = _Process(state_dir, launch)
    while True:
        done = process.run_generation(launch)
        if done is not None:
            return process.leave(done)
        launch = process.next_launch()


class _Process:
    """The parts of a rank's process.

    ``_halt_generation`` and ``_read_standing`` run in the link's thread, all else in the main one.
    """

    def __init__(self, state_dir: Path, launch: RankLaunch) -> None:
        self._socket_path = sockets_dir(state_dir) / "ranks.sock"
        hello = RankHello(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            pid=os.getpid(),
        )
        self._link = ControlLink(
            self._socket_path, hello, _CLOCK.wall_s, self._halt_generation, self._read_standing
        )
        self._device: torch.device | None = None
        self._training: Training | None = None
        self._network_set: set[str] = set()
        self._unsupported: tuple[str, ...] = ()
        self._has_joined = False
        self._lock = threading.Lock()
        self._generation = launch.generation
        self._newest_halt = Generation(0)
        self._halted = threading.Event()
        self._place: Place | None = None
        self._groups: ParallelGroups | None = None
        self._formed_at_ns = 0
        self._has_stuck_work = False
        self._link.start()

    def run_generation(self, launch: RankLaunch) -> RankDone | None:
        """Train in the generation of ``launch``; return None if training did not stop or finish."""
        set_process_name(f"ur:{launch.task}/{launch.global_rank}")
        try:
            if launch.prepares_for is None:
                return self._train(launch)
            self._become_spare(launch, launch.prepares_for)
        except (ParkedError, HaltedError) as error:
            self._park(launch, error)
        except Exception as error:  # noqa: BLE001 - every error is reported, and the controller judges it
            traceback.print_exc()
            self._park(launch, error)
        return None

    def next_launch(self) -> RankLaunch:
        """Wait without a limit for the next generation."""
        launch = self._link.wait_for_join()
        _LOG.info(
            "parked rank joins a generation: task=%s generation=%d rank=%d",
            launch.task,
            launch.generation,
            launch.global_rank,
        )
        return launch

    def leave(self, done: RankDone) -> int:
        """Report the end of training and return the exit code."""
        self._link.report(done)
        is_stored = self._link.wait_until_stored(_STORED_TIMEOUT_S)
        _LOG.info(
            "training ended: reason=%s iteration=%d is_report_stored=%s",
            done.reason,
            done.iteration,
            is_stored,
        )
        self._link.close()
        return 0

    def _train(self, launch: RankLaunch) -> RankDone:
        began = _CLOCK.monotonic_s()
        check_launch(launch)
        self._use_network(launch)
        if self._training is not None and self._unsupported:
            raise CannotRejoinError("; ".join(self._unsupported))
        place = self._place_of(launch, launch.global_rank)
        store = AgentStore(
            self._socket_path,
            launch.task,
            launch.generation,
            caller=f"{launch.global_rank}.{os.getpid()}",
            monotonic_s=_CLOCK.monotonic_s,
        )
        groups = self._begin_generation(launch, place, store)
        if launch.resume.source == "disk":
            # The old model cannot be reused, not even if there is no checkpoint. It is freed now,
            # because two models may not fit in memory. It is freed before a peer can be lost:
            # afterwards this rank would report the old state as one of the new layout.
            self._training = None
            gc.collect()
        groups.form()
        if self._training is None:
            self._training = self._build(launch, place)
        formed = _CLOCK.monotonic_s()
        source = self._training.enter(launch, place, groups, store)
        self._has_joined = True
        self._link.report(
            RankJoined(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                iteration=self._training.committed,
                source=source,
                form_s=formed - began,
                state_s=_CLOCK.monotonic_s() - formed,
                unsupported=self._unsupported,
            )
        )
        reason = self._training.run()
        return RankDone(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            iteration=self._training.committed,
            reason=reason,
        )

    def _use_network(self, launch: RankLaunch) -> None:
        """Have gloo and NCCL use the interface that leads to the nodes of this generation."""
        for name in self._network_set:
            os.environ.pop(name, None)
        found = network_variables(launch.network, os.environ)
        os.environ.update(found)
        self._network_set = set(found)

    def _become_spare(self, launch: RankLaunch, global_rank: int) -> None:
        """Build a model for a later generation and report it. The other ranks train meanwhile."""
        self._leave_generation()
        with self._lock:
            self._groups = self._place = None
            self._generation = launch.generation
            self._halted.clear()
        if self._training is None:
            place = self._place_of(launch, global_rank)
            with placeholder_groups(place):
                self._training = self._build(launch, place)
        else:
            self._training.become_spare()
        self._report_halted(launch, self._training.position())
        _LOG.info(
            "process is kept as spare: task=%s rank=%d layout=%s",
            launch.task,
            global_rank,
            launch.layout,
        )

    def _place_of(self, launch: RankLaunch, global_rank: int) -> Place:
        if self._device is None:
            self._device = prepare_device(launch.backend, launch.worker, launch.settings.seed)
        return Place(global_rank, launch.layout, self._device)

    def _build(self, launch: RankLaunch, place: Place) -> Training:
        loop, self._unsupported = build(launch.settings, place)
        return Training(loop, Dependencies(self._link, self._halted, _CLOCK.monotonic_s))

    def _leave_generation(self) -> None:
        if self._groups is None:
            return
        # The link's thread may halt the groups at the same time.
        with self._lock:
            self._groups.close_connections()
        if self._training is not None and self._training.leave():
            self._has_stuck_work = True
        self._groups.leave(has_stuck_work=self._has_stuck_work)
        self._has_stuck_work = False

    def _begin_generation(
        self, launch: RankLaunch, place: Place, store: AgentStore
    ) -> ParallelGroups:
        self._leave_generation()
        with self._lock:
            self._groups = ParallelGroups(store, place, launch.backend)
            self._place = place
            self._generation = launch.generation
            self._formed_at_ns = time.time_ns()
            self._halted.clear()
            # The agent may have sent the halt before this point, and does not repeat it.
            if self._newest_halt >= launch.generation:
                self._halted.set()
                self._groups.halt(with_inner=True)
            return self._groups

    def _halt_generation(self, generation: Generation, broken: tuple[int, ...] | None) -> None:
        """Halt ``generation``. The training thread may be blocked in a collective, or computing.

        A replica without a broken rank keeps its inner connections, so that it can finish its
        micro-batch. It halts by itself before the next one.
        """
        with self._lock:
            self._newest_halt = max(self._newest_halt, generation)
            place, groups = self._place, self._groups
            if generation != self._generation or place is None or groups is None:
                return
            self._halted.set()
            lost_replicas = {place.layout.dp_rank(rank) for rank in broken or ()}
            groups.halt(with_inner=broken is None or place.dp_rank in lost_replicas)

    def _read_standing(self) -> Standing:
        """Return what the training thread does now. Runs in the link's thread."""
        if self._device is not None:
            # The training thread reports errors of the GPU.
            with contextlib.suppress(RuntimeError):
                use_device(self._device)
        collectives = recorded_collectives(self._formed_at_ns)
        standing = read_own_standing().model_copy(update={"collectives": collectives})
        training = self._training
        return standing if training is None else training.locate(standing)

    def _park(self, launch: RankLaunch, error: Exception) -> None:
        """Report this rank's position. An exception after a halt counts as the echo of the halt.

        Then wake the peers that wait for this rank in a collective. They may be in the same
        replica: their reductions were complete, and they wait for this rank to finalise.
        """
        self._has_stuck_work = isinstance(error, StuckWorkError)
        is_halting = not isinstance(error, ParkedError)
        groups = self._groups
        if self._training is not None and groups is not None and is_halting:
            self._training.settle(lambda: groups.is_inner_halted)
        position = self._training.position() if self._training is not None else None
        if position is None and launch.continues is not None and launch.resume.source == "disk":
            # The process freed its model and is otherwise intact: it can take part again.
            position = Position(committed=0, has_state=False)
        # A launch that was refused before its generation began was not halted. The halt, if any,
        # belongs to the generation before.
        is_halted = self._halted.is_set() and launch.generation == self._generation
        if isinstance(error, ParkedError) or is_halted:
            # Without a position it was halted before its model was built.
            self._report_halted(launch, position or Position(committed=0, has_state=False))
        else:
            if self._unsupported and not self._has_joined:
                # The controller does not know yet that this loop can't rejoin. Without a position
                # it starts a new process for the rank.
                position = None
            iteration = self._training.iteration if self._training is not None else 0
            self._link.report(describe(error, launch, iteration, position))
        if groups is not None and is_halting:
            groups.wake_peers()
        _LOG.info(
            "rank is parked: task=%s generation=%d rank=%d committed=%s phase=%s",
            launch.task,
            launch.generation,
            launch.global_rank,
            position.committed if position is not None else None,
            position.phase if position is not None else None,
        )

    def _report_halted(self, launch: RankLaunch, position: Position) -> None:
        self._link.report(
            RankHalted(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                position=position,
                unsupported=self._unsupported,
            )
        )


def _settle(launch: RankLaunch) -> None:
    set_process_name(f"ur:{launch.task}/{launch.global_rank}")
    log_to_stderr()
    for noisy in ("megatron", "torch"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.simplefilter("ignore")
    # After the fork: the thread pool belongs to one process. One thread per rank is enough.
    torch.set_num_threads(1)
