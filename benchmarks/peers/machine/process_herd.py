"""Starting the processes of a run and ending all of them, whatever they have become.

Launchers put their ranks into sessions of their own, and some processes detach on purpose. This
process therefore adopts every orphan among its descendants (Linux' child subreaper), so that they
all can be found below it and ended by their ids; nothing else is ever signalled.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from peers.runs.workload_plan import now_s

_PR_SET_CHILD_SUBREAPER: Final = 36
_GRACE_S: Final = 10.0


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Herd:
    """The processes of one run. Use as a context manager: none is left after it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._leaders: list[subprocess.Popen[bytes]] = []

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], stdout: Path | None = None
    ) -> None:
        """Start a process in a session of its own; what it says goes to the log."""
        with self._log.open("ab") as log, contextlib.ExitStack() as files:
            output = files.enter_context(stdout.open("wb")) if stdout else log
            self._leaders.append(
                subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def exit_codes(self) -> list[int | None]:
        """Return the leaders' exit codes in the order of their start; None for one that runs."""
        return [leader.poll() for leader in self._leaders]

    def wait(self, limit_s: float) -> bool:
        """Wait until all leaders have ended; return whether they have."""
        until = now_s() + limit_s
        while None in self.exit_codes():
            if now_s() > until:
                return False
            time.sleep(0.02)
        return True

    def end(self) -> None:
        """Ask the leaders to end, kill what is left of them and of all they started.

        What is stopped is killed first: it can't answer, and a launcher would wait for it.
        """
        for pid in descendants(os.getpid()):
            if _is_stopped(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for leader in reversed(self._leaders):
            if leader.poll() is None:
                leader.terminate()
        self.wait(_GRACE_S)
        while pids := descendants(os.getpid()):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for leader in self._leaders:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    leader.wait(1.0)
            _reap_adopted({leader.pid for leader in self._leaders})
        self._leaders.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def free_ports(count: int) -> int:
    """Return the first of ``count`` ports in a row that nobody listens on at the moment."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count < 65536 and all(_is_free(first + i) for i in range(count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.extend(int(word) for word in task.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below ``pid``, parents before their children."""
    found = []
    for child in _children(pid):
        found += [child, *descendants(child)]
    return found


def _is_stopped(pid: int) -> bool:
    try:
        # The name, in brackets, may hold anything; the state follows it.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "T"


def _reap_adopted(leaders: set[int]) -> None:
    """Take the exit codes of adopted children; the leaders' belong to their ``Popen``."""
    for pid in _children(os.getpid()):
        if pid not in leaders:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
