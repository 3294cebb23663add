"""The host of one node: the process that represents the machine.

The host starts the node's SSH server as its child, and is a subreaper. So every process that is
started over SSH on that node descends from the host, daemons included. To lose the node, the host
kills all descendants. The host carries out the warden's orders. When the warden ends, the host ends
its node, and the last host removes the root directory.

The host is forked from the warden, so the two share the memory of what they import.
"""

import os
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.localcluster.process_tree import (
    Process,
    become_subreaper,
    find_descendants,
    find_process,
    kill_all,
    kill_descendants,
    reap_children,
    send_signal,
)
from controller.localcluster.root_directory import RootDirectory
from controller.localcluster.wakeup import SignalSocket
from controller.localcluster.warden_orders import (
    Answer,
    CutMethod,
    MessageSocket,
    ServerCommand,
    WardenAction,
    WardenOrder,
)

_SESSION_NAME: Final = "sshd"
"""OpenSSH names its processes sshd; since 9.8 also sshd-session and sshd-auth."""
_RESET_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these signals; other programs expect the default handlers."""


class NodeHost:
    """The processes of one node."""

    def __init__(self, node: str, root: RootDirectory) -> None:
        """Make this process a subreaper, so that it inherits all orphaned descendants."""
        become_subreaper()
        self._node = node
        self._root = root
        self._server: Process | None = None
        self._cut_method = CutMethod.KILL_SESSIONS

    def carry_out(self, order: WardenOrder) -> Answer:
        """Carry out ``order`` and return the answer; errors are part of the answer."""
        try:
            self._do(order)
        except OSError as error:
            return Answer(number=order.number, host_pid=os.getpid(), error=f"{self._node}: {error}")
        server_pid = self._server.pid if self._server else 0
        return Answer(number=order.number, host_pid=os.getpid(), server_pid=server_pid)

    def _do(self, order: WardenOrder) -> None:
        if order.action is WardenAction.CUT:
            self._cut()
            return
        self.end()
        if order.action is WardenAction.START and order.server is not None:
            self._start(order.server)

    def _start(self, server: ServerCommand) -> None:
        self._root.remake_state_directory(self._node)
        self._cut_method = server.cut_method
        self._server = find_process(spawn(server))

    def _cut(self) -> None:
        if self._server is None:
            return
        if self._cut_method is CutMethod.SIGNAL_SERVER:
            send_signal(self._server, signal.SIGUSR1)
        else:
            kill_all(find_sessions(self._server.pid))

    def end(self) -> None:
        """Kill all processes of the node.

        Raises:
            OSError: A process could not be killed.
        """
        self._server = None
        left = kill_descendants()
        if left:
            raise OSError(f"processes that could not be killed: {left}")

    def release_root(self) -> None:
        """Release the root directory after the warden's end."""
        self._root.release()


def find_sessions(listener_pid: int) -> list[Process]:
    """Return the SSH server's session processes, without the commands that they run."""
    own = {listener_pid}
    sessions = []
    for process in find_descendants(listener_pid):  # parents come before their children
        if process.parent in own and process.name.startswith(_SESSION_NAME):
            own.add(process.pid)
            sessions.append(process)
    return sessions


def spawn(server: ServerCommand) -> int:
    """Start ``server`` in its own session and append its output to its log; return its pid.

    Raises:
        OSError: The program can't be started, or the log can't be opened.
    """
    log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        server.argv[0],
        server.argv,
        server.env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, server.log_path, log_flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=_RESET_SIGNALS,
    )


def serve(node: str, root: RootDirectory, orders: MessageSocket[WardenOrder]) -> None:
    """Carry out orders until the warden ends or SIGTERM arrives; then end the node.

    The last process that holds the root directory removes it. After a SIGTERM to this host alone
    the directory stays, since the warden still holds it.
    """
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"unicron-{node}")
    signals = SignalSocket()
    host = NodeHost(node, root)
    try:
        _serve_orders(host, orders, signals)
    finally:
        with suppress(OSError):
            host.end()
        host.release_root()


def _serve_orders(
    host: NodeHost, orders: MessageSocket[WardenOrder], signals: SignalSocket
) -> None:
    waiting = [orders.fileno(), signals.fileno()]
    while True:
        ready = select.select(waiting, [], [])[0]
        if signals.fileno() in ready and signal.SIGTERM in signals.receive():
            return
        reap_children()
        if orders.fileno() in ready:
            messages = orders.receive()
            if messages is None:
                return
            for order in messages:
                orders.send(host.carry_out(order))
