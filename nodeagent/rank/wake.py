"""Waking a rank that is blocked in a collective with a peer that will never answer.

When a peer dies, gloo raises only on the ranks that were exchanging with it; the others stay blocked
until the collective's timeout, and aborting the group does not wake them. Ending the TCP connections
of the group does, within milliseconds. Which connections belong to a group is noted while the group
is made: the process's sockets before and after. With NCCL the library's own abort does the same.

How a connection ends matters. Gloo keeps what waits to be sent or received in lists, and raises in all
that is there when a connection breaks; but what is partly sent or received is in none of them, and
is never woken. A write that fails makes such a thing every time. So a connection is ended in two
steps. ``cut`` ends receiving only: gloo reads the end of the stream, raises and closes its descriptor,
while a duplicate held here keeps the connection open, so that what a peer is writing does not fail
before it is told to halt itself. ``hang_up`` ends the connection, which wakes peers that were not told: the
rank has parked by then, and writes nothing any more.

What is left are operations whose payload was on its way in pieces. The vote, the buckets and the
gathering of a sharded optimizer get over that (``wait_unless_halted``). What moves state at the start of
a generation waits plainly, and so does Megatron for its own collectives. A rank that is stuck in
one does not park, and is replaced when the controller's ``halt_limit_s`` is over.

A descriptor's number is used again once it is closed, so a connection is known by its inode, and
the descriptor is duplicated before the inode is compared. Listening sockets are left alone: gloo
ends the process when one of its own is shut down.
"""

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed import ProcessGroup

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

    def cut(self) -> None:
        """Make every operation on the group fail, also one that another thread is blocked in."""
        with self._lock:
            for descriptor in _socket_descriptors():
                self._stop_receiving(descriptor)
        if self.group is not None:
            _abort_nccl(self.group)

    def hang_up(self) -> None:
        """End the connections for the peers too. No operation may be under way that is to be woken."""
        self.cut()
        with self._lock:
            for connection in self._held.values():
                with contextlib.suppress(OSError), connection:
                    connection.shutdown(socket.SHUT_RDWR)
            self._held.clear()
            self._inodes.clear()

    def _stop_receiving(self, descriptor: int) -> None:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            copy = stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
            inode = os.fstat(copy.fileno()).st_ino
            is_listening = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            if inode in self._inodes and inode not in self._held and not is_listening:
                copy.shutdown(socket.SHUT_RD)
                self._held[inode] = copy
                stack.pop_all()


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
    while not work.is_completed():
        if is_halted():
            raise HaltedError("halted in a collective")
        time.sleep(_POLL_S)
    work.wait()
    if is_halted():
        raise HaltedError("halted in a collective")


def _tcp_inodes() -> set[int]:
    inodes: set[int] = set()
    for descriptor in _socket_descriptors():
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
            if copy.family in {socket.AF_INET, socket.AF_INET6}:
                inodes.add(os.fstat(copy.fileno()).st_ino)
    return inodes


def _socket_descriptors() -> list[int]:
    descriptors: list[int] = []
    for path in Path("/proc/self/fd").iterdir():
        descriptor = int(path.name)
        # It may be gone by now; the one that lists the directory is.
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                descriptors.append(descriptor)
    return descriptors


def _abort_nccl(group: ProcessGroup) -> None:
    devices: Any = group
    if torch.device("cuda") in devices._device_types:  # noqa: SLF001 - no public way to ask
        devices._get_backend(torch.device("cuda")).abort()  # noqa: SLF001 - the same
