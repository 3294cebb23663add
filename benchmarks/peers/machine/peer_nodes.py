"""The nodes of a run on one machine: which processes are on one, and losing it at once.

A node is a launcher with its ranks and whatever these have started, daemons included. All of them
inherit a variable that names the run and the node, by which they are found; nothing else is ever
signalled. Unicron's nodes are those of its demo, each below a process that stands for the machine.

A node is lost by SIGSTOP to all of its processes, as after a power loss or a cut cable: nothing is
closed, nothing answers, and nobody is told. The kernel still acknowledges what peers send
to it, so even TCP notices nothing. It is killed by SIGKILL to all of them: peers see every
connection closed at once, as when a machine reboots.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from peers.machine.process_herd import descendants
from peers.runs.workload_plan import FaultKind

_VARIABLE: Final = "RECOVERY_NODE"
_HOST_PREFIX: Final = "unicron-"
"""How the demo names the process that stands for a machine; it is no part of the node."""


def on_node(directory: str, number: int) -> dict[str, str]:
    """Return the environment that puts a process of the run in ``directory`` on a node."""
    return {_VARIABLE: f"{directory}/{number}"}


def lose_own_node(kind: FaultKind) -> None:
    """Take all processes of the node that this one is on, this one last. Does not return."""
    mark = f"{_VARIABLE}={os.environ[_VARIABLE]}".encode()
    _stop(lambda: _marked(mark))
    if kind == "killed-node":
        _send(_marked(mark), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_demo_node(pid: int) -> int:
    """Stop all processes of the demo's node that ``pid`` is on; return how many.

    Raises:
        ProcessLookupError: The process is gone, or on no node.
    """
    host = pid
    while not _name(host).startswith(_HOST_PREFIX):
        host = _parent(host)
    return len(_stop(lambda: descendants(host)))


def _stop(find: Callable[[], Iterable[int]]) -> set[int]:
    """Stop what ``find`` returns until it finds nothing new: one may have started another."""
    stopped: set[int] = set()
    while new := set(find()) - stopped:
        _send(new, signal.SIGSTOP)
        stopped |= new
    return stopped


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _marked(mark: bytes) -> list[int]:
    """Return the processes with ``mark`` in their environment, but this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except FileNotFoundError:
        raise ProcessLookupError(f"process {pid} is gone, or on no node") from None


def _parent(pid: int) -> int:
    # The name, in brackets, may hold anything.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])
