"""How long a process waited for a core, from the kernel's own count."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from nodeagent.probes.process_stats import core_wait_s

BUSY = "import threading\nwhile True: pass"


def pinned(core: int) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    os.sched_setaffinity(process.pid, {core})
    return process


@pytest.fixture
def rivals() -> Iterator[tuple[int, int]]:
    """Two processes that need the same core all the time."""
    core = min(os.sched_getaffinity(0))
    processes = [pinned(core), pinned(core)]
    yield processes[0].pid, processes[1].pid
    for process in processes:
        process.kill()
        process.wait()


def test_waiting_grows_where_two_processes_need_one_core(rivals: tuple[int, int]) -> None:
    if core_wait_s(os.getpid()) is None:
        pytest.skip("this kernel counts no waiting")
    deadline = time.monotonic() + 30  # noqa: TID251 - a real process, a real clock
    first = core_wait_s(rivals[0])
    assert first is not None
    while (now := core_wait_s(rivals[0])) is not None and now < first + 0.3:
        assert time.monotonic() < deadline, "it never waited for a core"  # noqa: TID251
        os.sched_yield()
    assert now is not None


def test_a_process_that_is_gone_has_no_waiting() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert core_wait_s(process.pid) is None
