"""The template: a process with all imports done. Ranks are forked from it in milliseconds.

    python -m nodeagent.rank.process.template --state-dir DIR

It listens on ``DIR/template.sock`` and outlives agents. A lost connection is normal, and a new
connection replaces the old one. On each connection it sends ``TemplateHello``, then answers every
``ForkRank`` with ``RankForked`` or ``ForkRefused``. It reaps its children and records their exits,
since an agent can't wait for grandchildren. It has one thread and one ``select`` loop, because a
process with a second thread can't be forked.

SIGTERM ends the template and leaves its ranks running. SIGUSR1 retires it: it gives way to a
template of other code, forks no more, and ends after its last rank, whose exit it still records.
The template restarts no rank by itself.
"""

import argparse
import contextlib
import fcntl
import functools
import logging
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter

from nodeagent.process_tools.log_format import log_to_stderr
from nodeagent.process_tools.node_clock import SystemNodeClock
from nodeagent.process_tools.process_files import ProcessFiles
from nodeagent.process_tools.socket_places import sockets_dir
from nodeagent.protocol.codec import Codec, MessageReader, ProtocolError, encode
from nodeagent.protocol.local import ForkRank, ForkRefused, RankForked, TemplateHello, ToTemplate
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.rank.process.fork import fork_hazard, fork_rank, set_process_name
from nodeagent.rank.process.warm_imports import RunRank, import_training_program

_LOG = logging.getLogger("nodeagent.rank.process.template")  # it runs as ``__main__``

RETIRE: Final = signal.SIGUSR1
EXIT_ALREADY_RUNS: Final = 3
"""Exit code of a template if another template runs in the same state directory."""

_CLOCK: Final = SystemNodeClock()
_SEND_TIMEOUT_S: Final = 5.0


class Template:
    """The loop, its listening socket, its one connection and its children.

    Args:
        state_dir: The node's state directory.
        run_rank: Runs in each forked child.
        import_s: Seconds that the imports took, for ``TemplateHello``.
        give_way: Lets another template run in the state directory.
    """

    def __init__(
        self,
        state_dir: Path,
        run_rank: RunRank,
        import_s: float,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        self._state_dir = state_dir
        self._socket = sockets_dir(state_dir) / "template.sock"
        self._run_rank = run_rank
        self._hello = TemplateHello(pid=os.getpid(), import_s=import_s)
        self._codec: Codec[ForkRank] = Codec(TypeAdapter(ToTemplate))
        self._files_by_pid: dict[int, ProcessFiles] = {}
        self._give_way = give_way
        self._is_ending = self._is_to_retire = self._is_retired = False
        self._selector = selectors.DefaultSelector()
        self._connection: socket.socket | None = None
        self._reader = MessageReader(self._codec)
        self._signals, self._signalled = socket.socketpair()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def serve(self) -> None:
        """Serve agents until SIGTERM; after SIGUSR1, until the last rank has ended."""
        self._listen()
        self._watch_signals()
        while not self._is_ending and (self._files_by_pid or not self._is_retired):
            for key, _ in self._selector.select():
                handle: Callable[[], None] = key.data
                handle()
            if self._is_to_retire and not self._is_retired:
                self._retire()
        if not self._is_retired:
            self._socket.unlink(missing_ok=True)
        self._release()

    def _listen(self) -> None:
        path = self._socket
        # ``main`` holds the lock, so no other template lives and an old socket file is stale.
        path.unlink(missing_ok=True)
        # The umask sets the mode when the socket is made. A later chmod would leave a moment in
        # which other users could connect.
        old_mask = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(old_mask)
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _watch_signals(self) -> None:
        for end in (self._signals, self._signalled):
            end.setblocking(False)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _only_wake)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.signal(RETIRE, self._ask_to_retire)
        self._selector.register(self._signals, selectors.EVENT_READ, self._reap)

    def _end(self, *_: object) -> None:
        self._is_ending = True

    def _ask_to_retire(self, *_: object) -> None:
        self._is_to_retire = True

    def _retire(self) -> None:
        """Leave socket and lock to the next template."""
        self._is_retired = True
        _LOG.info("gives way to a template of other code: ranks=%d", len(self._files_by_pid))
        self._disconnect()
        self._selector.unregister(self._listener)
        self._listener.close()
        self._give_way()
        # Last: whoever waits for this begins then.
        self._socket.unlink(missing_ok=True)

    # --- the agent's connection ------------------------------------------------------------

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._disconnect()
        connection.settimeout(_SEND_TIMEOUT_S)
        self._connection = connection
        self._reader = MessageReader(self._codec)
        receive = functools.partial(self._receive, connection)
        self._selector.register(connection, selectors.EVENT_READ, receive)
        self._send(self._hello)

    def _receive(self, connection: socket.socket) -> None:
        if connection is not self._connection:
            return  # A new connection replaced it in the same round of the loop.
        try:
            data = connection.recv(65536)
            if not data:
                self._disconnect()
                return
            for request in self._reader.feed(data):
                self._send(self._fork(request.launch))
        except ProtocolError as error:
            _LOG.warning("closed a connection after an invalid message: reason=%s", error)
            self._disconnect()
        except OSError as error:
            _LOG.info("lost the connection to the agent: reason=%s", error)
            self._disconnect()

    def _send(self, message: BaseModel) -> None:
        if self._connection is None:
            return  # The agent finds the rank in its files.
        try:
            self._connection.sendall(encode(message))
        except OSError as error:
            _LOG.info("lost the connection to the agent: reason=%s", error)
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._selector.unregister(connection)
            connection.close()

    # --- ranks -----------------------------------------------------------------------------

    def _fork(self, launch: RankLaunch) -> RankForked | ForkRefused:
        try:
            files = ProcessFiles.of(self._state_dir, launch)
            pid = self._living(files)
            if pid is None:
                pid = self._fork_new(files, launch)
        except (OSError, ValueError, _ForkHazardError) as error:
            _LOG.warning(
                "refused to fork a rank: task=%s generation=%d rank=%d reason=%s",
                launch.task,
                launch.generation,
                launch.global_rank,
                error,
            )
            return ForkRefused(
                task=launch.task,
                generation=launch.generation,
                global_rank=launch.global_rank,
                reason=str(error),
            )
        return RankForked(
            task=launch.task,
            generation=launch.generation,
            global_rank=launch.global_rank,
            pid=pid,
        )

    def _fork_new(self, files: ProcessFiles, launch: RankLaunch) -> int:
        hazard = fork_hazard()
        if hazard is not None:
            raise _ForkHazardError(hazard)
        run_rank, state_dir = self._run_rank, self._state_dir
        pid = fork_rank(files, launch, lambda: run_rank(state_dir, launch), self._release)
        self._files_by_pid[pid] = files
        return pid

    def _living(self, files: ProcessFiles) -> int | None:
        """Return the pid of the rank if an earlier copy of the request has forked it."""
        return next((pid for pid, known in self._files_by_pid.items() if known == files), None)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._signals.recv(4096)
        while self._files_by_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            files = self._files_by_pid.pop(pid)
            try:
                files.write_exit(pid, status, _CLOCK.wall_s())
            except OSError as error:
                _LOG.warning(
                    "cannot record the exit of a rank: rank=%s pid=%d reason=%s",
                    files.stem,
                    pid,
                    error,
                )

    def _release(self) -> None:
        """Close all sockets of this object. A forked child calls only this method."""
        for end in (self._listener, self._signals, self._signalled, self._connection):
            if end is not None:
                end.close()
        self._selector.close()


class _ForkHazardError(Exception):
    """A fork would not be safe now."""


def _only_wake(*_: object) -> None:
    """Do nothing. With a handler installed, Python writes to the wake-up descriptor."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Import everything, then serve. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="nodeagent.rank.process.template")
    parser.add_argument("--state-dir", type=Path, required=True)
    state_dir: Path = parser.parse_args(arguments).state_dir
    log_to_stderr()
    with (state_dir / "template.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _LOG.warning("another template runs already: path=%s", state_dir)
            return EXIT_ALREADY_RUNS
        set_process_name("ur:template")
        began = _CLOCK.monotonic_s()
        run_rank = import_training_program()
        import_s = _CLOCK.monotonic_s() - began
        _LOG.info("imports are complete: duration_s=%.2f", import_s)
        Template(state_dir, run_rank, import_s, lambda: fcntl.flock(lock, fcntl.LOCK_UN)).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
