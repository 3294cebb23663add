"""The warden: a process that removes all processes and files of the demo, however the demo ends.

It runs in its own session, connected to the demo by a socket pair. It makes the root directory and
forks one host per node. When the demo ends (socket closed, or process ended), the warden closes the
hosts' sockets and the hosts end their nodes. Then it kills all remaining descendants. The last
guard alive removes the root directory. If the warden itself is killed, the hosts notice and do the
same. With network namespaces, the warden's namespace is the switch between the nodes.

Run as ``python -m controller.localcluster.warden`` with the socket as standard input.

It imports little, to stay small. It knows nothing of SSH.
"""

import os
import select
import signal
import socket
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final

from controller.localcluster.host import serve
from controller.localcluster.namespaces import NetworkError, Switch
from controller.localcluster.process_tree import become_subreaper, kill_descendants, reap_children
from controller.localcluster.root_directory import RootDirectory
from controller.localcluster.wakeup import SignalSocket
from controller.localcluster.warden_orders import (
    Answer,
    Hello,
    MessageSocket,
    RootRequest,
    WardenAction,
    WardenOrder,
)

_HOST_ANSWER_LIMIT_S: Final = 20.0
_END_PAUSE_S: Final = 0.002
_MAX_END_PAUSES: Final = 5000
"""Times the pause: the hosts have 10 s to end their nodes, then they are killed."""


class Warden:
    """The hosts of all nodes, and the socket to the demo."""

    def __init__(
        self,
        owner: MessageSocket[WardenOrder],
        signals: SignalSocket,
        root: RootDirectory,
        switch: Switch | None = None,
    ) -> None:
        self._owner = owner
        self._signals = signals
        self._root = root
        self._switch = switch
        self._hosts: dict[str, MessageSocket[Answer]] = {}
        self._host_pids: dict[str, int] = {}

    def guard(self) -> None:
        """Carry out orders until the demo ends or SIGTERM arrives."""
        parent_end = _watch_parent()
        while True:
            hosts = {host.fileno(): node for node, host in self._hosts.items()}
            waiting = [self._owner.fileno(), self._signals.fileno(), *parent_end, *hosts]
            ready = select.select(waiting, [], [])[0]
            if self._signals.fileno() in ready and signal.SIGTERM in self._signals.receive():
                return
            if any(descriptor in ready for descriptor in parent_end):
                return
            reap_children()
            self._drop_hosts([hosts[descriptor] for descriptor in ready if descriptor in hosts])
            if self._owner.fileno() in ready:
                orders = self._owner.receive()
                if orders is None:
                    return
                for order in orders:
                    self._owner.send(self._carry_out(order))

    def end(self) -> None:
        """End all nodes, kill all remaining descendants, and remove the root directory."""
        for host in self._hosts.values():
            host.close()
        for _ in range(_MAX_END_PAUSES):
            _, has_children = reap_children()
            if not has_children:
                break
            time.sleep(_END_PAUSE_S)
        kill_descendants()
        if self._switch is not None:
            self._switch.remove()
        self._root.release()

    def _carry_out(self, order: WardenOrder) -> Answer:
        try:
            if order.action in (WardenAction.UNPLUG, WardenAction.PLUG_IN):
                self._change_link(order)
                return Answer(number=order.number)
            return self._forward(order)
        except (NetworkError, OSError) as error:
            return Answer(number=order.number, error=f"{order.node}: {error}")

    def _change_link(self, order: WardenOrder) -> None:
        if self._switch is None:
            raise NetworkError("the nodes share one network: start with network namespaces")
        if order.action is WardenAction.UNPLUG:
            self._switch.unplug(order.node)
        else:
            self._switch.plug_in(order.node)

    def _forward(self, order: WardenOrder) -> Answer:
        if order.node not in self._hosts:
            if order.action is not WardenAction.START:
                return Answer(number=order.number)  # without a host the node is lost already
            self._fork_host(order.node)
            if self._switch is not None:
                self._connect(self._switch, order)
        elif order.action is WardenAction.START and self._switch is not None:
            self._switch.plug_in(order.node)
        host = self._hosts[order.node]
        answer = host.receive_one(_HOST_ANSWER_LIMIT_S) if host.send(order) else None
        if answer is None:
            self._drop_hosts([order.node])
            return Answer(number=order.number, error=f"{order.node}: its host process ended")
        return answer

    def _connect(self, switch: Switch, order: WardenOrder) -> None:
        try:
            switch.connect(order.node, self._host_pids[order.node], order.address)
        except NetworkError:
            self._drop_hosts([order.node])
            raise

    def _fork_host(self, node: str) -> None:
        ours, theirs = socket.socketpair()
        with self._switch.new_namespace() if self._switch else nullcontext():
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._become_host(node, theirs)
        theirs.close()
        self._hosts[node] = MessageSocket(ours, Answer)
        self._host_pids[node] = pid

    def _become_host(self, node: str, connection: socket.socket) -> None:
        """Turn the forked child into the host of ``node``; never returns.

        The child keeps its copy of the socket to the demo open, unused. So the demo reads the end
        of the socket only after the warden and all hosts have ended, when nothing is left.
        """
        try:
            self._signals.close()
            if self._switch is not None:
                self._switch.close()
            for other in self._hosts.values():
                other.close()  # else this copy would keep the other hosts' sockets open
            serve(node, self._root.share(), MessageSocket(connection, WardenOrder))
        finally:
            error = sys.exc_info()
            if error[0] is not None:
                sys.excepthook(*error)
            os._exit(0 if error[0] is None else 1)

    def _drop_hosts(self, nodes: list[str]) -> None:
        """Drop hosts that have ended, and kill their orphans, which this process inherited."""
        for node in nodes:
            self._hosts.pop(node).close()
            del self._host_pids[node]
        if nodes:
            kill_descendants(exclude=set(self._host_pids.values()))


def _watch_parent() -> list[int]:
    """Return descriptors that become readable when the demo's process ends; none without pidfd.

    The socket alone is not enough: programs that the demo started may have inherited it.
    """
    try:
        return [os.pidfd_open(os.getppid())]
    except OSError:
        return []


def _take_socket() -> socket.socket:
    """Return the socket on standard input, and replace it by /dev/null."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return connection


def _build_switch() -> tuple[Switch | None, str]:
    """Return the switch, or None and the reason."""
    try:
        return Switch.build(), ""
    except (NetworkError, OSError) as error:
        return None, str(error)


def main() -> int:
    """Read the demo's request, guard its nodes, and clean up."""
    connection = _take_socket()
    request = MessageSocket(connection, RootRequest).receive_one(_HOST_ANSWER_LIMIT_S)
    if request is None:
        return 1
    owner = MessageSocket(connection, WardenOrder)  # the demo waits for Hello before its first
    become_subreaper()
    signals = SignalSocket()
    try:
        root = RootDirectory.create(
            Path(request.parent), Path(request.root) if request.root else None
        )
    except OSError as error:
        owner.send(Hello(error=f"{error.strerror}: {error.filename}"))
        return 1
    switch, network_error = _build_switch() if request.has_namespaces else (None, "")
    warden = Warden(owner, signals, root, switch)
    try:
        os.chdir("/")
        with suppress(OSError):
            Path("/proc/self/comm").write_text("unicron-warden")
        gateway = switch.gateway if switch else ""
        owner.send(Hello(root=str(root.path), gateway=gateway, network_error=network_error))
        warden.guard()
    finally:
        warden.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
