"""Whether a SIGKILL was the kernel's, from files that look like the kernel's."""

import asyncio
from pathlib import Path

import pytest

from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.ranks import kill_causes
from nodeagent.ranks.kill_causes import MemoryKillCauses

PID = 42


class Node:
    """A node's files, and lines that the kernel log shows when it is read next."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._group = root / "cgroup/job"
        (root / f"proc/{PID}").mkdir(parents=True)
        (root / f"proc/{PID}/cgroup").write_text("0::/job\n")
        self._group.mkdir(parents=True)
        self.num_reads = 0
        self.late_line = b""
        self.set_kills(node=0, group=0)
        self.causes = MemoryKillCauses(
            SystemNodeClock(), self._read, root / "proc", root / "cgroup"
        )

    def set_kills(self, *, node: int, group: int) -> None:
        (self._root / "proc/vmstat").write_text(f"oom_kill {node}\n")
        (self._group / "memory.events").write_text(f"oom_kill {group}\n")

    def _read(self) -> None:
        self.num_reads += 1
        if self.num_reads == 3:
            self.causes.kills.take_lines([self.late_line], SystemNodeClock().monotonic_s())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_plain_kill_is_told_from_the_first_look(node: Node) -> None:
    node.causes.watch(PID)
    assert not await node.causes.is_out_of_memory(PID)
    assert node.num_reads == 1


async def test_kill_of_somebody_else_on_the_node_delays_nothing(node: Node) -> None:
    node.causes.watch(PID)
    node.set_kills(node=1, group=0)
    assert not await node.causes.is_out_of_memory(PID)
    assert node.num_reads == 1


async def test_log_that_comes_late_is_waited_for(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_causes, "LIMIT_S", 60.0)
    node.causes.watch(PID)
    node.set_kills(node=1, group=1)
    node.late_line = b"Memory cgroup out of memory: Killed process 42 (python)"
    async with asyncio.timeout(20):
        assert await node.causes.is_out_of_memory(PID)
    assert node.num_reads == 3


async def test_count_of_the_group_decides_where_the_log_stays_silent(node: Node) -> None:
    node.causes.watch(PID)
    node.set_kills(node=1, group=1)
    async with asyncio.timeout(5):
        assert await node.causes.is_out_of_memory(PID)


async def test_kill_before_the_process_began_is_not_its_own(node: Node) -> None:
    node.set_kills(node=5, group=5)
    node.causes.watch(PID)
    assert not await node.causes.is_out_of_memory(PID)
    node.causes.forget(PID)
    assert not await node.causes.is_out_of_memory(PID)
