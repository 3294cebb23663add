"""Waking a rank that is blocked in a collective with a peer that will never answer.

When a peer dies, gloo raises only on the ranks that were exchanging with it; the others stay blocked
until the collective's timeout, and aborting the group does not wake them. Ending the TCP connections
of the group does, within milliseconds. Which connections belong to a group is noted while the group
is made: the process's sockets before and after. With NCCL the group is aborted instead (``nccl``).

How a connection ends matters. Gloo keeps what waits to be sent or received in lists, and raises in all
that is there when a connection breaks; but what is partly sent or received is in none of them, and
is never woken. A write of a payload that fails makes one. So a connection is ended in two
steps. ``halt`` ends receiving only: gloo reads the end of the stream, raises and closes its descriptor,
while a duplicate held here keeps the connection open, so that what a peer is writing does not fail
before it is told to halt itself. ``close`` ends the connection, which wakes peers that were not told: the
rank has parked by then, and writes nothing any more.

What is left are operations whose payload was on its way in pieces. The vote, the buckets and the
gathering of a sharded optimizer get over that (``wait_unless_halted``), and in-memory checkpoints have a thread
of their own that is given up. What moves state at the start of
a generation waits plainly, and so does Megatron for its own collectives. A rank that is stuck in
one does not park, and is replaced when the controller's ``halt_limit_s`` is over.

A descriptor's number is used again once it is closed, so a connection is known by its inode, and
the descriptor is duplicated before the inode is compared. Listening sockets are left alone: gloo
ends the process when one of its own is shut down.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from torch import distributed
from torch._C import _distributed_c10d
from torch.distributed import ProcessGroup

from nodeagent.rank.groups.nccl import abort

_c10d: Any = _distributed_c10d

_LOOK_UP_S: Final = 0.1
_NUM_LOOKS_AFTER_HALT: Final = 3
_POLL_S: Final = 0.0005


class Connections:
    """What can be woken of one process group. Its methods may be called from any thread, repeatedly.

    Attributes:
        group: The group itself, for NCCL's abort.
    """

    def __init__(self) -> None:
        self.group: ProcessGroup | None = None
        self._inodes: set[int] = set()
        self._lock = threading.Lock()
        self._held: dict[int, socket.socket] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Note the TCP sockets that are made inside the block, also if it raises."""
        before = _tcp_inodes()
        try:
            yield
        finally:
            self._inodes |= _tcp_inodes() - before

    def halt(self) -> None:
        """Make every operation on the group fail, also one that another thread is blocked in."""
        with self._lock:
            self._stop_receiving()
            group, self.group = self.group, None
        if group is not None:
            abort(group)

    def close(self) -> None:
        """End the connections for the peers too."""
        self.halt()
        with self._lock:
            for connection in self._held.values():
                with contextlib.suppress(OSError), connection:
                    connection.shutdown(socket.SHUT_RDWR)
            self._held.clear()
            self._inodes.clear()

    def _stop_receiving(self) -> None:
        if self._inodes <= self._held.keys():
            return
        for inode, copy in _connections():
            if inode in self._inodes and inode not in self._held:
                with contextlib.suppress(OSError):
                    copy.shutdown(socket.SHUT_RD)
                self._held[inode] = socket.socket(fileno=copy.detach())


class HaltedError(Exception):
    """The generation was told to halt; what follows is decided elsewhere."""


class StuckWorkError(RuntimeError):
    """A collective does not end although its connections did. Its group can't be ended either."""


def wait_unless_halted(work: distributed.Work, is_halted: Callable[[], bool]) -> None:
    """Wait for a collective to end: for ever, or for a moment once the generation was halted.

    Raises:
        StuckWorkError: It never ends.
        RuntimeError: It failed.
    """
    if distributed.is_initialized() and distributed.get_backend() == "nccl":
        _poll(work, is_halted)
        return
    if work.is_completed():
        work.wait()
        return
    ended = threading.Event()
    # Not wait(limit): where that gives up it says so by an exception, and making one is costly.
    work.get_future().add_done_callback(lambda _: ended.set())
    num_looks = 0
    while not ended.wait(_LOOK_UP_S):
        num_looks += is_halted()
        if num_looks == _NUM_LOOKS_AFTER_HALT:
            raise StuckWorkError("gloo: a collective did not end after the generation was halted")
    work.wait()


def _poll(work: distributed.Work, is_halted: Callable[[], bool]) -> None:
    """The same with NCCL, where a wait that runs into its limit would abort the communicator.

    After an abort an operation counts as ended, whatever it has left behind. This path has not been
    run yet.
    """
    # In this order: while a group is aborted, asking for its operations would hold up all of Python.
    while not is_halted() and not work.is_completed():
        time.sleep(_POLL_S)
    if is_halted():
        raise HaltedError("halted in a collective")
    ended: Any = work
    result = ended.get_future_result()
    if result.done() and (how := _c10d.WorkResult(result.value())) != _c10d.WorkResult.SUCCESS:
        # wait() would abort the group first.
        raise RuntimeError(f"NCCL: a collective failed: {how.name}")
    work.wait()
    if is_halted():
        raise HaltedError("halted in a collective")


def _tcp_inodes() -> set[int]:
    return {inode for inode, _ in _connections()}


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """Yield the inode and a duplicate of every TCP connection of the process.

    The duplicate is closed when the next one is asked for, unless it was detached.
    """
    for path in Path("/proc/self/fd").iterdir():
        # Most descriptors are something else, and any may be gone by now.
        with contextlib.suppress(OSError), _as_socket(os.dup(int(path.name))) as copy:
            is_listening = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            if copy.family in {socket.AF_INET, socket.AF_INET6} and not is_listening:
                yield os.fstat(copy.fileno()).st_ino, copy


def _as_socket(descriptor: int) -> socket.socket:
    try:
        return socket.socket(fileno=descriptor)
    except OSError:
        os.close(descriptor)
        raise
