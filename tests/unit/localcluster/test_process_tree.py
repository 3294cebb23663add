"""Processes are found below their ancestor and told from later ones with the same id."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from controller.localcluster.interpreter import module_environment
from controller.localcluster.process_tree import (
    Process,
    find_descendants,
    find_process,
    is_running,
    kill_all,
    send_signal,
)
from tests.fakes.local_nodes import no_leftovers


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A shell with a child, which is up when the fixture is."""
    child = subprocess.Popen(["sh", "-c", "sleep 60 & echo up; wait"], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    try:
        yield child
    finally:
        kill_all(find_descendants(child.pid))
        child.kill()
        child.wait()
        child.stdout.close()


def _find(pid: int) -> Process:
    process = find_process(pid)
    assert process is not None
    return process


def test_a_name_with_blanks_and_parentheses_does_not_confuse() -> None:
    name = "a) (S 1"
    with open("/proc/self/comm", "r+", encoding="ascii") as comm:  # noqa: PTH123 - not truncated
        before = comm.read()
        comm.write(name)
        comm.flush()
        try:
            own = _find(os.getpid())
        finally:
            comm.write(before)
    assert (own.name, own.parent, own.state) == (name, os.getppid(), "R")


def test_there_is_no_process_where_none_is() -> None:
    assert find_process(2**22 + 1) is None


def test_descendants_come_after_their_parents_and_spared_ones_not_at_all(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    found = [process.pid for process in find_descendants(os.getpid())]
    (grandchild,) = find_descendants(sleeper.pid)
    assert found.index(sleeper.pid) < found.index(grandchild.pid)
    spared = {process.pid for process in find_descendants(os.getpid(), exclude=[sleeper.pid])}
    assert not spared & {sleeper.pid, grandchild.pid}


def test_a_later_process_with_the_same_id_is_another_one(
    sleeper: "subprocess.Popen[bytes]",
) -> None:
    namesake = _find(sleeper.pid)._replace(start_ticks=1)
    assert not is_running(namesake)
    send_signal(namesake, signal.SIGKILL)
    assert is_running(_find(sleeper.pid))


def test_a_zombie_does_not_run(sleeper: "subprocess.Popen[bytes]") -> None:
    process = _find(sleeper.pid)
    kill_all([process])  # returns with the zombie not yet reaped
    assert _find(sleeper.pid).state == "Z"
    assert not is_running(process)


_KILL_ALL = """
import os, subprocess, sys
from controller.localcluster.process_tree import *
become_subreaper()
spared = subprocess.Popen(["sleep", "60"])
for _ in range(5):
    subprocess.run(["sh", "-c", "(setsid sh -c 'trap \\"\\" TERM; sleep 60; :' &) ; sleep 60 & "])
assert len(find_descendants(os.getpid())) >= 11
left = kill_descendants(exclude=[spared.pid])
assert left == [], left
assert [each.pid for each in find_descendants(os.getpid())] == [spared.pid]
assert kill_descendants() == []
assert find_descendants(os.getpid()) == []
"""


def test_everything_below_is_killed_detached_or_not_and_the_spared_is_not() -> None:
    environment = {**os.environ, **module_environment()}
    with no_leftovers():
        subprocess.run([sys.executable, "-c", _KILL_ALL], env=environment, check=True, timeout=10)
