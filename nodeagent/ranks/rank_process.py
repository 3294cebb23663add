"""One rank's process, from its start until its exit is stored.

It has two names. ``key`` is its present rank: the controller uses it. ``name`` is made of its first
rank and its pid, and never changes: marks, and with them the numbers of its reports, use it.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from nodeagent.probes.process_stats import core_wait_s, is_running, rss_bytes
from nodeagent.process_tools.pidfd import kill, open_pidfd, stop, terminate
from nodeagent.protocol.local import RankPulse
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.ranks.rank_files import RankRecord
from nodeagent.ranks.supervisor import RankKey

_SAMPLE_S: Final = 1.0
_NUM_SAMPLES: Final = 60
NUM_BUSY: Final = 10
"""Newest iterations in the median of a rank's own computing time."""


@dataclass(slots=True, eq=False)
class RankProcess:
    """A process and what is known of it."""

    record: RankRecord
    launched_at: float
    is_foreign: bool = False
    pidfd: int | None = None
    is_cold: bool = False
    is_killed_here: bool = False
    is_attached: bool = False
    """Its program, a command, reports itself."""
    iteration: int = 0
    duration_s: float = 0.0
    busy_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_BUSY))
    waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=NUM_BUSY))
    """Waiting for a core in each of the newest iterations, summed over its threads."""
    wait_samples: deque[tuple[float, float]] = field(
        default_factory=lambda: deque(maxlen=_NUM_SAMPLES)
    )
    """Monotonic time and its waiting for a core until then, summed over its threads."""
    wait_at_pulse_s: float | None = None
    """Its waiting for a core until its newest pulse; None if the kernel does not count it."""
    exited: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        """Its pid."""
        return self.record.pid

    @property
    def is_command(self) -> bool:
        """Whether its program is not ours."""
        return self.record.launch.command is not None

    @property
    def first_key(self) -> RankKey:
        """Name of its first rank, which its files keep."""
        return self.record.first_key

    @property
    def key(self) -> RankKey:
        """Name of the rank that it is now."""
        return self.record.key

    @property
    def name(self) -> str:
        """Name of the process in marks; the same for its whole life."""
        return self.first_key.process(self.pid)

    @property
    def became(self) -> RankLaunch | None:
        """The newest rank that it was ordered to become; None if it is its first rank still."""
        return self.record.became

    @property
    def status(self) -> RankStatus:
        """What is reported of it now."""
        busy_s = _median(self.busy_s) if len(self.busy_s) == NUM_BUSY else 0.0
        return RankStatus(
            task=self.key.task,
            generation=self.key.generation,
            global_rank=self.key.global_rank,
            worker=self.record.present.worker,
            pid=self.pid,
            iteration=self.iteration,
            duration_s=self.duration_s,
            busy_s=busy_s,
            busy_spread_s=_median(abs(each - busy_s) for each in self.busy_s),
            waited_s=_median(self.waits_s) if busy_s else 0.0,
            rss_bytes=rss_bytes(self.pid),
            is_attached=self.is_attached,
        )

    def take_pulse(self, pulse: RankPulse) -> None:
        """Remember how far it is, and how long its computing took lately."""
        self.iteration, self.duration_s = pulse.iteration, pulse.duration_s
        wait_s = core_wait_s(self.pid)
        if pulse.busy_s > 0:
            self.busy_s.append(pulse.busy_s)
            if wait_s is not None and self.wait_at_pulse_s is not None:
                self.waits_s.append(max(0.0, wait_s - self.wait_at_pulse_s))
        self.wait_at_pulse_s = wait_s

    def sample_wait(self, now_s: float) -> None:
        """Keep how long its threads have waited for a core until now, at most once a second."""
        if self.wait_samples and now_s - self.wait_samples[-1][0] < _SAMPLE_S:
            return
        if (wait_s := core_wait_s(self.pid)) is not None:
            self.wait_samples.append((now_s, wait_s))

    def waited_s(self, now_s: float, since_s: float) -> float:
        """Return its waiting for a core in the last ``since_s`` seconds; 0 if unknown.

        Samples are a second apart and go back a minute, so it is rather too little than too much.
        """
        wait_s = core_wait_s(self.pid)
        then = [wait for at, wait in self.wait_samples if at >= now_s - since_s]
        return 0.0 if wait_s is None or not then else max(0.0, wait_s - then[0])

    def kill(self) -> None:
        """Send SIGKILL to the process itself, stopped or not; nothing happens if it is gone."""
        if self.pidfd is not None:
            self.is_killed_here = True
            kill(self.pidfd)

    def terminate(self) -> None:
        """Send SIGTERM to the process itself; nothing happens if it is gone."""
        if self.pidfd is not None:
            terminate(self.pidfd)

    def stop(self) -> None:
        """Send SIGSTOP to the process; nothing happens if it is gone."""
        if self.pidfd is not None:
            stop(self.pidfd)

    def release(self) -> None:
        """Let go of the process after its exit was stored, and wake the waiters."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        self.exited.set()


def open_running(record: RankRecord) -> int | None:
    """Return a pidfd of the very process in ``record``, or None if it does not run."""
    pidfd = open_pidfd(record.pid)
    # Checked after opening: from here on the descriptor can't come to mean another process.
    if pidfd is None or is_running(record.pid, record.start_ticks):
        return pidfd
    os.close(pidfd)
    return None


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return median(known) if known else 0.0
