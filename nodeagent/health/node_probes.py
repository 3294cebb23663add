"""Runs every probe of the node at its interval, and puts findings into the outbox.

A probe may block (NVML, a dead file system), so each has a thread of its own and a time limit. A
probe that fails or does not return is reported once, and once more when it works again. Its earlier
findings hold until then. Probes read (``probes``), detectors judge the readings (``detect``). The
kernel log is watched in ``kernel_watch``.
"""

import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from nodeagent.detect.full_disk import DiskDetector, DiskLook
from nodeagent.detect.gpu_faults import GpuDetector
from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.detect.link_changes import LinkReading, NetworkDetector
from nodeagent.detect.memory_shortage import MemoryDetector, MemoryReading
from nodeagent.health.kernel_watch import KernelWatch
from nodeagent.outbox.finding_queue import FindingStore
from nodeagent.probes.disk import Disks
from nodeagent.probes.gpu import Gpus
from nodeagent.probes.memory import read_memory
from nodeagent.probes.network import read_links
from nodeagent.process_tools.beat import next_beat
from nodeagent.process_tools.blocking import Blocking
from nodeagent.process_tools.node_clock import NodeClock
from nodeagent.protocol.findings import NodeFinding, Probe
from nodeagent.ranks.rank_process import RankProcess

_LOG = logging.getLogger(__name__)

GPU_S: Final = 10.0
DISK_S: Final = 10.0
MEMORY_S: Final = 10.0
NETWORK_S: Final = 30.0
LOOK_LIMIT_S: Final = 30.0
_MEMORY_STATE: Final = "of the node, and of the control groups of agent and ranks"
_ALWAYS_WRITTEN: Final = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - looked at, not written

ReadingT = TypeVar("ReadingT")
ReportFinding = Callable[[NodeFinding], None]


@dataclass(frozen=True, slots=True)
class ScheduledProbe(Generic[ReadingT]):
    """One probe with its detector.

    Attributes:
        probe: Its name.
        interval_s: Between two looks; longer where one takes longer.
        prepare: Says what takes the next reading; that may block, in a thread of its own.
        judge: Says what a reading means.
        state: What the probe does, in words for an operator.
        limit_s: How long an answer is waited for.
    """

    probe: Probe
    interval_s: float
    prepare: Callable[[], Callable[[], ReadingT]]
    judge: Callable[[ReadingT], Sequence[NodeFinding]]
    state: Callable[[], str]
    limit_s: float = LOOK_LIMIT_S

    async def run(self, report: ReportFinding) -> None:
        """Look again and again."""
        thread: Blocking[ReadingT] = Blocking(f"{self.probe} probe")
        answers = LastingConditions()
        is_known = False
        while True:
            found: Sequence[NodeFinding] = ()
            silence: list[NodeFinding] = []
            try:
                taken = await thread.call(self.prepare(), self.limit_s)
            except TimeoutError:
                silence = [self._silence(f"has no answer after {self.limit_s:.0f} s")]
            else:
                if taken is None:
                    silence = [self._silence("failed; see agent.log")]
                else:
                    found = self.judge(taken)
            if not is_known:
                _LOG.info(
                    "probe started: probe=%s source=%s interval_s=%g",
                    self.probe,
                    self.state(),
                    self.interval_s,
                )
                is_known = True
            for finding in (*answers.update(silence), *found):
                report(finding)
            await next_beat(self.interval_s)

    def _silence(self, what: str) -> NodeFinding:
        name = f"{self.probe} probe"
        return NodeFinding(
            probe=self.probe, sign="unreadable", subject=name, text=f"the {name} {what}"
        )


class NodeHealth:
    """All probes of the node."""

    def __init__(
        self,
        kernel: KernelWatch,
        store: FindingStore,
        clock: NodeClock,
        state_dir: Path,
        ranks: Callable[[], Sequence[RankProcess]],
        gpus: Gpus,
    ) -> None:
        """Put the probes together.

        Args:
            kernel: The watch of the kernel log.
            store: Where findings go.
            clock: The node's clock.
            state_dir: The node's state directory.
            ranks: The ranks that live now.
            gpus: The node's GPUs.
        """
        self._kernel = kernel
        self._store = store
        self._clock = clock
        self._state_dir = state_dir
        self._ranks = ranks
        self._file_systems = Disks(clock)
        self._network = NetworkDetector()
        self._links = "not looked for yet"
        self._looks: tuple[ScheduledProbe[Any], ...] = (
            ScheduledProbe("gpu", GPU_S, lambda: gpus.read, GpuDetector().take, lambda: gpus.state),
            ScheduledProbe("disk", DISK_S, self._disks, DiskDetector().take, self._disk_state),
            ScheduledProbe(
                "memory", MEMORY_S, self._memory, MemoryDetector().take, lambda: _MEMORY_STATE
            ),
            ScheduledProbe(
                "network", NETWORK_S, lambda: read_links, self._judge, lambda: self._links
            ),
        )

    def begin(self, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        """Start all probes."""
        spawn(self._kernel.run(), "the watch of the kernel log")
        for look in self._looks:
            spawn(look.run(self._store.report), f"the {look.probe} probe")

    def states(self) -> dict[str, str]:
        """Return what each probe does, in words for an operator."""
        return {"kernel log": self._kernel.state} | {
            look.probe: look.state() for look in self._looks
        }

    def _disks(self) -> Callable[[], DiskLook]:
        return partial(self._file_systems.read, self._paths())

    def _paths(self) -> list[Path]:
        """Return what is written to, checkpoints first: a file system has the name of its first."""
        launches = [rank.record.present for rank in self._ranks()]
        checkpoints = {each.training.checkpoint_dir for each in launches if each.training} - {""}
        return [*map(Path, sorted(checkpoints)), self._state_dir, *_ALWAYS_WRITTEN]

    def _disk_state(self) -> str:
        return "free space of " + ", ".join(map(str, self._paths()))

    def _memory(self) -> Callable[[], MemoryReading]:
        return partial(read_memory, [os.getpid(), *self._pids()])

    def _judge(self, links: list[LinkReading]) -> list[NodeFinding]:
        self._links = ", ".join(f"{link.name} {link.state}" for link in links) or "no link to watch"
        return self._network.take(links, self._pids(), self._clock.monotonic_s())

    def _pids(self) -> frozenset[int]:
        return frozenset(rank.pid for rank in self._ranks())
