"""Why a rank got a SIGKILL that nobody here sent: for memory, or from somebody else.

Counts are looked at once a second, so that their rise is known when a rank has ended; the kernel
log's lines come from ``kernel_watch``. An answer is waited for only where the kernel has killed
something lately, and then at most ``LIMIT_S``: a plain SIGKILL costs no time.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from typing_extensions import override

from nodeagent.detect.memory_kills import NODE, MemoryKills
from nodeagent.probes.control_groups import (
    CGROUP,
    PROC,
    memory_group,
    num_kills,
    num_kills_of_node,
)
from nodeagent.process_tools.node_clock import NodeClock

LIMIT_S: Final = 1.0
_POLL_S: Final = 0.05


class KillCauses(Protocol):
    """Separates memory kills from others."""

    def watch(self, pid: int) -> None:
        """Begin to watch a living process."""

    def forget(self, pid: int) -> None:
        """Stop watching a process that has ended."""

    async def is_out_of_memory(self, pid: int) -> bool:
        """Return whether the SIGKILL that ended ``pid`` came from the kernel, for memory."""


class MemoryKillCauses(KillCauses):
    """``KillCauses`` by the counts of control groups and the kernel log."""

    def __init__(
        self,
        clock: NodeClock,
        read_log: Callable[[], None],
        proc: Path = PROC,
        cgroup: Path = CGROUP,
    ) -> None:
        """Take the places to look at.

        Args:
            clock: The node's clock.
            read_log: Reads what is new in the kernel log now and hands it to ``kills``.
            proc: Root of ``/proc``.
            cgroup: Root of the control groups.
        """
        self.kills = MemoryKills()
        self._clock = clock
        self._read_log = read_log
        self._proc = proc
        self._cgroup = cgroup
        self._groups: dict[int, Path] = {}

    @override
    def watch(self, pid: int) -> None:
        """Begin to watch a living process; nothing happens if its group can't be found."""
        group = memory_group(pid, self._proc, self._cgroup)
        if group is not None:
            self._groups[pid] = group
        self.sample()

    @override
    def forget(self, pid: int) -> None:
        group = self._groups.pop(pid, None)
        if group is not None and group not in self._groups.values():
            self.kills.forget(str(group))

    def sample(self) -> None:
        """Look at the counts."""
        now_s = self._clock.monotonic_s()
        if (count := num_kills_of_node(self._proc)) is not None:
            self.kills.take_count(NODE, count, now_s)
        for group in set(self._groups.values()):
            if (count := num_kills(group)) is not None:
                self.kills.take_count(str(group), count, now_s)

    @override
    async def is_out_of_memory(self, pid: int) -> bool:
        """Return whether the kernel killed ``pid`` for memory; takes a second at most."""
        deadline = self._clock.monotonic_s() + LIMIT_S
        group = str(self._groups[pid]) if pid in self._groups else None
        while True:
            self.sample()
            self._read_log()
            now_s = self._clock.monotonic_s()
            is_killed = self.kills.is_killed(pid, group, now_s)
            if is_killed is not None:
                return is_killed
            if now_s >= deadline:
                return self.kills.decide(pid, group, now_s)
            await asyncio.sleep(_POLL_S)
