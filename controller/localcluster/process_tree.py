"""Finds all descendants of a process in /proc, and kills them without survivors.

A process that called ``become_subreaper`` inherits every descendant after the death of its parent,
daemons included (double fork and ``setsid``). So the tree below it is complete, and ``waitpid``
reporting "no children" proves that nothing is left. Signals are sent through a pidfd after the
process was checked again. So a reused process id never hits another program's process.

Standard library only, since the warden and the hosts must stay small. Linux only.
"""

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PR_SET_CHILD_SUBREAPER: Final = 36
_PAUSE_S: Final = 0.002
_MAX_ROUNDS: Final = 1000
"""How often to check that killed processes have ended: a few seconds, then they are reported."""


class Process(NamedTuple):
    """One process, from /proc/PID/stat. ``start_ticks`` differs for a later one with its id."""

    pid: int
    name: str
    state: str
    parent: int
    start_ticks: int


def become_subreaper(*, is_on: bool = True) -> None:
    """Make this process (not its children) the parent of its orphaned descendants.

    Raises:
        OSError: The kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_CHILD_SUBREAPER: {os.strerror(number)}")


def find_process(pid: int) -> Process | None:
    """Return the process ``pid``, also if it is a zombie; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name is in parentheses and may itself contain blanks and parentheses.
    head, _, tail = stat.rpartition(b")")
    name = head.partition(b"(")[2].decode(errors="replace")
    fields = tail.split()
    return Process(pid, name, fields[0].decode(), int(fields[1]), int(fields[19]))


def is_running(process: Process) -> bool:
    """Return whether this very ``process`` still runs and is not a zombie."""
    now = find_process(process.pid)
    return now is not None and now.start_ticks == process.start_ticks and now.state != "Z"


def find_descendants(pid: int, exclude: Collection[int] = ()) -> list[Process]:
    """Return the descendants of ``pid``, parents before children, zombies included.

    Args:
        pid: Root of the tree, which is not returned.
        exclude: Processes to leave out, with all their descendants.
    """
    children: dict[int, list[Process]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - no Path objects in the kill loop
        if name.isdigit() and (process := find_process(int(name))) is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [pid]
    while parents:
        below = [child for child in children.get(parents.pop(), ()) if child.pid not in exclude]
        found += below
        parents += [child.pid for child in below]
    return found


def send_signal(process: Process, signal_number: signal.Signals) -> None:
    """Signal ``process``; do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return
        except OSError:  # a kernel or sandbox without pidfd
            if is_running(process):
                os.kill(process.pid, signal_number)
            return
        try:
            if is_running(process):
                signal.pidfd_send_signal(descriptor, signal_number)
        finally:
            os.close(descriptor)


def reap_children() -> tuple[list[int], bool]:
    """Reap ended children; return their ids, and whether this process still has a child."""
    reaped: list[int] = []
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return reaped, False
        if pid == 0:
            return reaped, True
        reaped.append(pid)


def kill_descendants(exclude: Collection[int] = ()) -> list[int]:
    """Kill and reap all descendants of this process, which must be a subreaper.

    First all are frozen, until /proc shows none that still runs: a frozen process can't fork. Then
    all are killed. Every child that ends meanwhile is reaped, also those in ``exclude``.

    Returns:
        Processes that did not end within seconds (stuck in the kernel); normally none.
    """
    victims: list[Process] = []
    for _ in range(_MAX_ROUNDS):
        freeze_all(os.getpid(), exclude)
        victims = find_descendants(os.getpid(), exclude)
        for victim in victims:
            send_signal(victim, signal.SIGKILL)
        _, has_children = reap_children()
        if not (has_children and victims):
            return []
        time.sleep(_PAUSE_S)
    return [victim.pid for victim in victims]


def freeze_all(pid: int, exclude: Collection[int] = ()) -> None:
    """Freeze all descendants of ``pid``, until /proc shows none that runs."""
    stopped: set[tuple[int, int]] = set()
    for _ in range(_MAX_ROUNDS):
        found = find_descendants(pid, exclude)
        new = [each for each in found if each.state != "Z" and _identity(each) not in stopped]
        if not new:
            return
        for process in new:
            send_signal(process, signal.SIGSTOP)
        stopped.update(map(_identity, new))


def _identity(process: Process) -> tuple[int, int]:
    return process.pid, process.start_ticks


def kill_all(processes: Iterable[Process]) -> None:
    """Kill these processes and wait a few seconds at most until none runs."""
    victims = list(processes)
    for victim in victims:
        send_signal(victim, signal.SIGKILL)
    for _ in range(_MAX_ROUNDS):
        victims = [victim for victim in victims if is_running(victim)]
        if not victims:
            return
        time.sleep(_PAUSE_S)
