"""The local cluster: nodes on this machine, each behind its own SSH server.

A node has an SSH server with its own host key, a state directory, and the processes that were
started over SSH. It listens on a loopback port or in its own network namespace. A node can be lost
(all processes killed), restored, disconnected (its SSH sessions ended) and, in a namespace,
unplugged.

The warden owns all processes. It ends them and removes all files, however this process ends. This
module writes the keys and the servers' configurations, and checks that every node accepts a login.
"""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from controller.localcluster.cluster_errors import LocalClusterError, ServerError
from controller.localcluster.host import find_sessions
from controller.localcluster.local_node import LocalNode, NetworkChoice, ServerChoice, ServerKind
from controller.localcluster.loopback_ports import LOOPBACK, reserve_ports
from controller.localcluster.namespaces import NODE_INTERFACE, node_address
from controller.localcluster.process_tree import (
    Process,
    find_descendants,
    find_process,
    freeze_all,
    is_running,
    send_signal,
)
from controller.localcluster.short_path import choose_root
from controller.localcluster.ssh.credentials import RunCredentials
from controller.localcluster.ssh.login import wait_until_serving
from controller.localcluster.ssh.openssh import OpenSsh
from controller.localcluster.ssh.server_choice import choose_servers
from controller.localcluster.ssh.ssh_server import SshServer, log_path
from controller.localcluster.warden_link import WardenLink
from controller.localcluster.warden_orders import ServerCommand, WardenAction
from nodeagent.protocol.ids import NodeId

__all__ = [
    "LocalCluster",
    "LocalClusterError",
    "LocalNode",
    "ServerKind",
]

_NAMESPACE_PORT: Final = 2222
"""The first node's port in its own namespace, if no base port was given."""
_LOG_TAIL_BYTES: Final = 2000
_SERVER_VERSION: Final = re.compile(r"^SSH-2\.0-([A-Za-z]+)_(\d+(?:\.\d+)*)")


class LocalCluster:
    """Running nodes. ``start`` makes one.

    Attributes:
        nodes: All nodes, lost nodes included, in the order n1, n2 and so on.
        root: The directory of this run's files; mode 0700, removed at the end.
        has_namespaces: Whether each node has its own network namespace.
    """

    def __init__(
        self, link: WardenLink, ports: Mapping[NodeId, int], workers_per_node: int
    ) -> None:
        self.has_namespaces = bool(link.gateway)
        self.root = link.root
        self.nodes: list[LocalNode] = []
        self._link = link
        self._ports = ports
        self._workers_per_node = workers_per_node
        self._keys = RunCredentials.generate(link.root, list(ports))
        self._commands: dict[NodeId, ServerCommand] = {}
        self._hosts: dict[NodeId, Process | None] = {}
        self._servers: dict[NodeId, Process | None] = {}

    @classmethod
    @asynccontextmanager
    async def start(  # noqa: PLR0913 - each is an option of the demo
        cls,
        num_nodes: int,
        workers_per_node: int,
        *,
        base_port: int | None = None,
        root: Path | None = None,
        sshd: ServerChoice = "auto",
        network: NetworkChoice = "loopback",
        sshd_config: Sequence[str] = (),
        progress: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator["LocalCluster"]:
        """Start the nodes; on exit, end all their processes and remove all files.

        The exit returns when no process and no file is left. If this process dies, the warden does
        the same.

        Args:
            num_nodes: Number of nodes, at least 1.
            workers_per_node: Worker slots of each node.
            base_port: Port of node n1; n2 gets the next port, and so on. None for free ports.
            root: Directory to make and use; None for a new one under TMPDIR.
            sshd: Which SSH server to use.
            sshd_config: Lines for OpenSSH's sshd_config, before the lines that are written here.
            network: How nodes are reached. In its own namespace a node has its own address. If
                namespaces are impossible, ``auto`` reports why and uses the loopback network.
            progress: Takes a line about each step that an operator should know of.

        Raises:
            LocalClusterError: The nodes can't be started. No process and no file is left.
        """
        if num_nodes < 1 or workers_per_node < 1:
            raise LocalClusterError(
                f"a cluster of {num_nodes} nodes with {workers_per_node} workers: both must be at"
                " least 1"
            )
        sshd = "openssh" if sshd_config else sshd  # no other server reads the lines
        request = choose_root(num_nodes, root)
        candidates = choose_servers(
            sshd, await asyncio.to_thread(OpenSsh.find, own_lines=sshd_config), progress
        )
        names = [NodeId(f"n{number}") for number in range(1, num_nodes + 1)]
        request = request.model_copy(update={"has_namespaces": network != "loopback"})
        with ExitStack() as reservations:
            async with WardenLink.open(request) as link:
                if link.network_error and network == "namespaces":
                    raise LocalClusterError(f"no network namespaces: {link.network_error}")
                if link.network_error:
                    progress(f"all nodes share the loopback network: {link.network_error}")
                if link.gateway:
                    first = base_port or _NAMESPACE_PORT
                    ports = {name: first + index for index, name in enumerate(names)}
                else:
                    ports = reservations.enter_context(reserve_ports(names, base_port))
                cluster = cls(link, ports, workers_per_node)
                await cluster._bring_up(candidates, progress)
                yield cluster

    @property
    def warden_pid(self) -> int:
        """Process id of the warden."""
        return self._link.warden_pid

    def host_pid(self, node: LocalNode | NodeId) -> int | None:
        """Return the process id of the host of ``node``; None if it is dead."""
        host = self._hosts.get(self._find(node).node)
        return host.pid if host is not None and is_running(host) else None

    def pids(self, node: LocalNode | NodeId) -> list[int]:
        """Return the process ids of ``node``: SSH server, sessions, and all their descendants."""
        host_pid = self.host_pid(node)
        return [each.pid for each in find_descendants(host_pid)] if host_pid is not None else []

    @property
    def names(self) -> list[NodeId]:
        """All nodes, in order."""
        return list(self._ports)

    async def lose_node(self, node: LocalNode | NodeId) -> None:
        """Kill all processes of ``node`` at once. The node stays lost until it is restored.

        Raises:
            LocalClusterError: A process could not be killed, or the warden has ended.
        """
        await self._link.order(WardenAction.LOSE, self._find(node).node)

    async def cut_connections(self, node: LocalNode | NodeId) -> None:
        """End the SSH sessions of ``node``; its listener and detached processes continue.

        Raises:
            LocalClusterError: The warden has ended.
        """
        await self._link.order(WardenAction.CUT, self._find(node).node)

    async def unplug(self, node: LocalNode | NodeId) -> None:
        """Take the link of ``node`` down. No packet passes and no connection is reset.

        The node's processes continue.

        Raises:
            LocalClusterError: The node has no network namespace, or the warden has ended.
        """
        await self._link.order(WardenAction.UNPLUG, self._find(node).node)

    async def plug_in(self, node: LocalNode | NodeId) -> None:
        """Take the link of ``node`` up again.

        Raises:
            LocalClusterError: The node has no network namespace, or the warden has ended.
        """
        await self._link.order(WardenAction.PLUG_IN, self._find(node).node)

    def freeze(self, node: LocalNode | NodeId, *, only_server: bool) -> None:
        """Freeze every process of ``node`` (SIGSTOP), or only its SSH server and sessions."""
        found = self._find(node).node
        server, host_pid = self._servers.get(found), self.host_pid(found)
        if only_server:
            if server is not None:
                send_signal(server, signal.SIGSTOP)
                for session in find_sessions(server.pid):
                    send_signal(session, signal.SIGSTOP)
        elif host_pid is not None:
            freeze_all(host_pid)

    def thaw(self, node: LocalNode | NodeId) -> None:
        """Let every frozen process of ``node`` continue (SIGCONT)."""
        host_pid = self.host_pid(node)
        for process in find_descendants(host_pid) if host_pid is not None else ():
            send_signal(process, signal.SIGCONT)

    def log_kernel(self, node: LocalNode | NodeId, text: str) -> None:
        """Append lines to the kernel log of ``node``, with the kernel's time stamps.

        Raises:
            OSError: The log can't be written.
        """
        stamp = f"[{time.clock_gettime(time.CLOCK_BOOTTIME):12.6f}] "
        with self._find(node).kernel_log.open("a") as log:
            log.write("".join(f"{stamp}{line}\n" for line in text.splitlines()))

    async def restore_node(self, node: LocalNode | NodeId) -> None:
        """Start ``node`` anew: same address and host key, link up, empty state directory.

        If the node is not lost, its processes are killed first.

        Raises:
            LocalClusterError: Its SSH server does not start, or the warden has ended.
        """
        found = self._find(node)
        failure = await self._wait_for(found, await self._start_server(found))
        if isinstance(failure, ServerError):
            raise LocalClusterError(f"cannot restore node {found.node}: {failure}")

    def _find(self, node: LocalNode | NodeId) -> LocalNode:
        name = node.node if isinstance(node, LocalNode) else node
        for known in self.nodes:
            if known.node == name:
                return known
        raise LocalClusterError(f"there is no node {name}; nodes: n1 to n{len(self._ports)}")

    async def _bring_up(self, candidates: list[SshServer], progress: Callable[[str], None]) -> None:
        """Start all nodes behind the first of ``candidates`` that serves."""
        while True:
            server = candidates.pop(0)
            try:
                version = await self._start_all(server)
            except ServerError as error:
                reason = f"{server.title} can't serve here: {error}"
                if not candidates:
                    raise LocalClusterError(reason) from error
                progress(f"{reason}; using {candidates[0].title} instead")
            else:
                progress(f"{self._count()} behind {version} {self._places()}")
                return

    def _count(self) -> str:
        return f"{len(self.nodes)} node{'s' if len(self.nodes) > 1 else ''}"

    def _places(self) -> str:
        if self.has_namespaces:
            places = ", ".join(f"{node.host}:{node.port}" for node in self.nodes)
            return f"in network namespaces of their own, at {places}"
        return f"on port{'s'[: len(self.nodes) > 1]} {', '.join(str(node.port) for node in self.nodes)}"

    async def _start_all(self, server: SshServer) -> str:
        """Start every node behind ``server``; return the server's name and version.

        Raises:
            ServerError: A node does not start. All nodes are ended again.
        """
        self.nodes = [self._describe(name, server.kind) for name in self._ports]
        await asyncio.to_thread(self._configure_all, server)
        started = [(node, await self._start_server(node)) for node in self.nodes]
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(self._wait_for(*each)) for each in started]
        outcomes = [wait.result() for wait in waits]
        failures = [outcome for outcome in outcomes if isinstance(outcome, ServerError)]
        if failures:
            for node in self.nodes:
                await self.lose_node(node)
            raise failures[0]
        version = _SERVER_VERSION.match(str(outcomes[0]))
        return f"{version[1]} {version[2]}" if version else server.title

    def _describe(self, name: NodeId, kind: ServerKind) -> LocalNode:
        return LocalNode(
            node=name,
            host=self._host_of(name),
            port=self._ports[name],
            state_dir=self.root / name,
            user=self._keys.servers[name].account.name,
            client_key_path=self._keys.client.private_path,
            host_public_key=self._keys.hosts[name].public_line,
            server=kind,
            num_workers=self._workers_per_node,
            interface=NODE_INTERFACE if self.has_namespaces else "",
        )

    def _host_of(self, name: NodeId) -> str:
        if not self.has_namespaces:
            return LOOPBACK
        return node_address(self._link.gateway, list(self._ports).index(name) + 1)

    def _configure_all(self, server: SshServer) -> None:
        for node in self.nodes:
            credentials = self._keys.servers[node.node]
            self._commands[node.node] = server.configure(node, credentials)

    async def _start_server(self, node: LocalNode) -> Process | None:
        """Start the server of ``node`` in an empty state directory; return its process."""
        command = self._commands[node.node]
        address = node.host if self.has_namespaces else ""
        answer = await self._link.order(WardenAction.START, node.node, command, address)
        self._hosts[node.node] = find_process(answer.host_pid)
        self._servers[node.node] = find_process(answer.server_pid)
        return self._servers[node.node]

    async def _wait_for(self, node: LocalNode, process: Process | None) -> str | ServerError:
        """Return the version of the SSH server of ``node`` once it serves, or the error."""
        try:
            return await wait_until_serving(
                node, lambda: process is not None and is_running(process)
            )
        except ServerError as error:
            reason = _last_line(log_path(node))
            return ServerError(f"{error} (node {node.node}{reason})")


def _last_line(log: Path) -> str:
    """Return the last line of a server's log for an error message; empty if the log is."""
    try:
        lines = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
