"""What ``/proc`` says, and which process a pidfd names."""

import asyncio
import os
import subprocess
import sys

import pytest

from nodeagent.probes.process_stats import (
    find_by_environment,
    is_running,
    parse_stat,
    read_stat,
    rss_bytes,
)
from nodeagent.process_tools.pidfd import kill, open_pidfd, wait_ended


def test_name_with_spaces_and_parentheses_is_skipped() -> None:
    rest = " ".join(str(field) for field in range(4, 53))
    stat = parse_stat(f"17 (a ) S (b) R {rest}")
    assert (stat.state, stat.parent_pid, stat.start_ticks) == ("R", 4, 22)
    assert stat.is_alive


def test_own_process_runs_since_its_start() -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    assert is_running(os.getpid(), stat.start_ticks)
    assert not is_running(os.getpid(), stat.start_ticks + 1)
    assert rss_bytes(os.getpid()) > 1_000_000


def test_process_that_never_was_is_gone() -> None:
    assert read_stat(2**22 + 1) is None
    assert rss_bytes(2**22 + 1) == 0
    assert open_pidfd(2**22 + 1) is None


@pytest.fixture
def child() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={"UNICRON_TEST_MARK": "unit"},
    )


async def test_killed_process_ends_its_wait_and_a_zombie_does_not_run(
    child: "subprocess.Popen[bytes]",
) -> None:
    with child:
        pidfd = open_pidfd(child.pid)
        assert pidfd is not None
        stat = read_stat(child.pid)
        assert stat is not None
        kill(pidfd)
        async with asyncio.timeout(5):
            await wait_ended(pidfd)
        assert not is_running(child.pid, stat.start_ticks)
        child.wait()
        kill(pidfd)  # it is gone: nothing happens
        os.close(pidfd)


def test_processes_are_found_by_their_environment(child: "subprocess.Popen[bytes]") -> None:
    with child:
        # Popen returns after the exec, so the environment is the child's own.
        assert list(find_by_environment("UNICRON_TEST_MARK", "unit")) == [child.pid]
        assert list(find_by_environment("UNICRON_TEST_MARK", "uni")) == []
        child.kill()
