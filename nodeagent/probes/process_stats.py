"""What ``/proc`` says about a process: whether it lives, since when, and how much memory it holds.

A process is named by its pid *and* its start time (field 22 of ``/proc/PID/stat``): a pid alone may
have been given to another process since. A zombie counts as dead, because its program is over even
where nobody reaps it. Nothing here sends a signal.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of ``/proc/PID/stat`` that the agent uses."""

    state: str
    parent_pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        """Whether the program still runs; a zombie does not."""
        return self.state not in "ZXx"


def parse_stat(text: str) -> ProcessStat:
    """Return the fields of one ``/proc/PID/stat`` line; the name in it may hold anything."""
    fields = text[text.rindex(")") + 1 :].split()
    return ProcessStat(state=fields[0], parent_pid=int(fields[1]), start_ticks=int(fields[19]))


def read_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel says about ``pid``, or None if there is no such process."""
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text("utf-8", "replace"))
    except OSError:
        return None


def is_running(pid: int, start_ticks: int) -> bool:
    """Return whether the very process that began at ``start_ticks`` still runs as ``pid``."""
    stat = read_stat(pid)
    return stat is not None and stat.is_alive and stat.start_ticks == start_ticks


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether ``pid`` has a handler for a signal; False if there is no such process."""
    try:
        status = (PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return False
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def rss_bytes(pid: int) -> int:
    """Return the resident memory of ``pid``; 0 if there is no such process."""
    try:
        file = os.open(f"{PROC}/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:  # twice a second for every rank, so without a file object
        return int(os.read(file, 256).split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0
    finally:
        os.close(file)


def core_wait_s(pid: int) -> float | None:
    """Return how long the threads of ``pid`` were ready to run and had no core, summed, seconds.

    It only grows, unless a thread ends. The second field of ``/proc/PID/task/TID/schedstat`` counts
    it in nanoseconds. None if there is no such process, or if this kernel counts no waiting.
    """
    total_ns, is_known = 0, False
    try:
        threads = os.listdir(f"{PROC}/{pid}/task")  # noqa: PTH208 - names alone: no object per thread
    except OSError:
        return None
    for thread in threads:
        try:
            file = os.open(f"{PROC}/{pid}/task/{thread}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # the thread has just ended, or the kernel has no such file
        try:
            total_ns += int(os.read(file, 128).split()[1])
            is_known = True
        except (OSError, IndexError, ValueError):
            continue
        finally:
            os.close(file)
    return total_ns / 1e9 if is_known else None


def find_by_environment(name: str, value: str) -> Iterator[int]:
    """Yield the pids whose environment, as of their last exec, has ``name`` set to ``value``.

    A forked child that never called exec has its parent's environment. Processes of other users,
    which can't be read, are left out.
    """
    wanted = f"{name}={value}".encode()
    for entry in PROC.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0"):
                yield int(entry.name)
