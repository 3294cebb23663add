"""Wakes a rank that is blocked in a collective, at a halt.

When a peer dies, gloo raises only on the ranks that were exchanging data with it. The other ranks
stay blocked until the collective's timeout, and aborting the group does not wake them. Ending the
TCP connections of the group wakes them within milliseconds. The connections of a group are found by
comparing the process's sockets before and after the group is made. With NCCL the group is aborted
instead (``nccl``).

A connection ends in two steps, because of how gloo handles a broken connection. Gloo lists the
operations that wait to send or receive, and raises in all of them. An operation that is partly sent
or received is in no list, and gloo never wakes it. A failed write of a payload leaves such an
operation. So:

1. ``halt`` ends receiving only. Gloo reads the end of the stream, raises and closes its descriptor.
   A duplicate of the descriptor keeps the connection open, so a peer's write does not fail before
   the peer gets its own halt.
2. ``close`` ends the connection, after the rank has parked and writes nothing more. That wakes
   peers that got no halt.

Known issue: gloo may not unblock an operation whose payload was partly transferred. The vote, the
buckets, transfers of state and the gathering of a sharded optimizer stop waiting for it
(``wait_unless_halted``). In-memory checkpoints run in a thread that is abandoned. Megatron's own
collectives wait without a limit. A rank that is stuck in one of them does not park, and is replaced
after the controller's ``halt_limit_s``.

A descriptor number is reused after it is closed. So a connection is identified by its inode, and
the descriptor is duplicated before the inode is compared. Listening sockets are not touched: gloo
ends the process if one of its own is shut down.
"""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
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
    """The connections of one process group. Any thread may call any method, also repeatedly.

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
        """Record the TCP sockets that are made inside the block, also if it raises."""
        before = _tcp_inodes()
        try:
            yield
        finally:
            self._inodes |= _tcp_inodes() - before

    def halt(self) -> None:
        """Make every operation on the group fail, also if a thread is blocked in it."""
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
    """The generation was halted. The controller decides how it continues."""


class StuckWorkError(RuntimeError):
    """A collective does not end although its connections ended. Its group can't be destroyed."""


def wait_unless_halted(work: distributed.Work, is_halted: Callable[[], bool]) -> None:
    """Wait for a collective to end: without a limit, but only for a moment after a halt.

    Raises:
        StuckWorkError: The collective does not end after a halt.
        RuntimeError: The collective failed.
    """
    if distributed.is_initialized() and distributed.get_backend() == "nccl":
        _poll(work, is_halted)
        return
    if work.is_completed():
        work.wait()
        return
    ended = threading.Event()
    # Not wait(limit): at its limit it raises an exception, which is costly to make.
    wait = _watch(work, ended)
    num_looks = 0
    while not ended.wait(_LOOK_UP_S):
        num_looks += is_halted()
        if num_looks == _NUM_LOOKS_AFTER_HALT:
            raise StuckWorkError("gloo: a collective did not end after the generation was halted")
    wait()


def _watch(work: distributed.Work, ended: threading.Event) -> Callable[[], object]:
    """Set ``ended`` when the work ends; return what then raises its error, if there is one."""
    try:
        work.get_future().add_done_callback(lambda _: ended.set())
    except RuntimeError:
        # A single send or receive of gloo has no future, and ends only while somebody waits for it.
        outcome = in_thread(work.wait)
        outcome.add_done_callback(lambda _: ended.set())
        return outcome.result
    return work.wait


def in_thread(call: Callable[[], object]) -> Future[object]:
    """Begin ``call`` in a thread that may be abandoned; return what becomes of it."""
    outcome = Future[object]()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 - raised again by whoever asks for the result
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def _poll(work: distributed.Work, is_halted: Callable[[], bool]) -> None:
    """Wait with NCCL, by polling: a wait with a limit would abort the communicator at its limit.

    After an abort an operation counts as ended, whether or not it was complete. On a GPU it has
    been run without a halt only.
    """
    # In this order: querying an operation of a group that is being aborted would block all of
    # Python.
    while not is_halted() and not work.is_completed():
        time.sleep(_POLL_S)
    if is_halted():
        raise HaltedError("halted in a collective")
    ended: Any = work
    result = ended.get_future_result()
    if result.done() and (how := _c10d.WorkResult(result.value())) != _c10d.WorkResult.SUCCESS:
        # Not wait(): it would abort the group first.
        raise RuntimeError(f"NCCL: a collective failed: {how.name}")
    work.wait()
    if is_halted():
        raise HaltedError("halted in a collective")


def _tcp_inodes() -> set[int]:
    return {inode for inode, _ in _connections()}


def _connections() -> Iterator[tuple[int, socket.socket]]:
    """Yield the inode and a duplicate of every TCP connection of the process.

    The duplicate is closed before the next one is made, unless it was detached.
    """
    for path in Path("/proc/self/fd").iterdir():
        # Most descriptors are no sockets, and any may be closed meanwhile.
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
