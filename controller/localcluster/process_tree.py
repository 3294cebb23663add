"""A process and everything that descends from it: found in /proc, and killed without survivors.

A process that called ``become_subreaper`` inherits every descendant whose own parent has died, also
what daemonised with a double fork and ``setsid``. The tree below it is therefore complete, and
``waitpid`` saying "no children" proves that nothing is left. Signals go through a pidfd whose
process was looked at again, so that a reused process id never hits a stranger.

Standard library only: the warden and the hosts must stay small. Works for Linux alone.
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
"""How often we look whether the killed have vanished: some seconds, then they are reported."""


class Process(NamedTuple):
    """One process as /proc/PID/stat has it. ``start_ticks`` tells it from a later namesake."""

    pid: int
    name: str
    state: str
    parent: int
    start_ticks: int


def become_subreaper(*, is_on: bool = True) -> None:
    """Make this process (not its children) the heir of orphaned descendants.

    Raises:
        OSError: The kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_CHILD_SUBREAPER: {os.strerror(number)}")


def find_process(pid: int) -> Process | None:
    """Return the process ``pid``, a zombie too; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in parentheses and may itself contain blanks and parentheses.
    head, _, tail = stat.rpartition(b")")
    name = head.partition(b"(")[2].decode(errors="replace")
    fields = tail.split()
    return Process(pid, name, fields[0].decode(), int(fields[1]), int(fields[19]))


def is_running(process: Process) -> bool:
    """Return whether ``process`` still runs: the same one, and not a zombie."""
    now = find_process(process.pid)
    return now is not None and now.start_ticks == process.start_ticks and now.state != "Z"


def find_descendants(pid: int, exclude: Collection[int] = ()) -> list[Process]:
    """Return what descends from ``pid``, parents before children, zombies included.

    Args:
        pid: Root of the tree, itself not returned.
        exclude: Processes left out together with everything below them.
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
    """Signal ``process`` unless it has ended. Never raises for a process that is gone."""
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
    """Collect ended children; return their ids and whether this process still has any child."""
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
    """Kill and reap everything below this process, which must be a subreaper.

    First all are stopped, until a look at /proc finds none that still runs: a stopped process can't
    fork out of the way. Then all are killed. Children that end meanwhile are reaped, those in
    ``exclude`` too.

    Returns:
        Processes that would not vanish within seconds (stuck in the kernel); normally none.
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
    """Stop everything that descends from ``pid``, until a look at /proc finds none that runs."""
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
    """Kill exactly these processes and wait, for seconds at most, until none runs any more."""
    victims = list(processes)
    for victim in victims:
        send_signal(victim, signal.SIGKILL)
    for _ in range(_MAX_ROUNDS):
        victims = [victim for victim in victims if is_running(victim)]
        if not victims:
            return
        time.sleep(_PAUSE_S)
