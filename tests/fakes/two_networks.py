"""Nodes with a control network and a training network. Needs root, sshd and ip.

    controller ---- bridge ---- eth0 198.18.x.11  n1  ib0 198.18.y.11 ---- bridge
                       |------- eth0 198.18.x.12  n2  ib0 198.18.y.12 -------|

Each node is a network namespace with an SSH server. On the control network nodes can't reach each
other. As on Debian, the name of a machine leads to 127.0.1.1. No variable of ours is set on a node.
"""

import contextlib
import getpass
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from controller.localcluster.namespaces import free_subnets
from tests.fakes.polling import wait_until

CONTROL, TRAINING = "eth0", "ib0"
PORT = 22
_FIRST = 10
_SSHD = "/usr/sbin/sshd"
# The name of the machine, then the server in place of this process.
_HOST = (
    "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
)


class TwoNetworks:
    """The nodes ``n1`` to ``nN``, which run until ``end``.

    Args:
        directory: Directory for keys and the files of the servers.
        num_nodes: Number of nodes.
    """

    def __init__(self, directory: Path, num_nodes: int) -> None:
        self.names = [f"n{number}" for number in range(1, num_nodes + 1)]
        self._prefix = f"u{os.getpid()}"
        self._directory = directory
        self._servers: list[subprocess.Popen[bytes]] = []
        subnets = free_subnets(_routes(), os.getpid())
        self._control, self._training = next(subnets), next(subnets)

    def control_address(self, name: str) -> str:
        """Return the address at which SSH reaches a node."""
        return str(self._control[_FIRST + int(name[1:])])

    def training_address(self, name: str) -> str:
        """Return the address at which ranks reach each other."""
        return str(self._training[_FIRST + int(name[1:])])

    def start(self) -> None:
        """Make the networks and start the SSH servers."""
        bridge = f"{self._prefix}c"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{self._control[1]}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        fabric = self._namespace("fabric")
        _ip("netns", "add", fabric)
        _ip("-n", fabric, "link", "add", "fabric", "type", "bridge")
        _ip("-n", fabric, "link", "set", "fabric", "up")
        _keygen(self._directory / "client")
        for name in self.names:
            self._start(name, bridge, fabric)
        for name in self.names:
            server = (self.control_address(name), PORT)
            wait_until(partial(_answers, server), limit_s=20)

    def _start(self, name: str, bridge: str, fabric: str) -> None:
        space = self._namespace(name)
        _ip("netns", "add", space)
        _ip("-n", space, "link", "set", "lo", "up")
        link = f"{self._prefix}{name}"
        _ip("link", "add", link, "type", "veth", "peer", "name", CONTROL, "netns", space)
        _ip("link", "set", link, "master", bridge, "up")
        _ip("link", "set", link, "type", "bridge_slave", "isolated", "on")
        _ip(
            "-n",
            fabric,
            "link",
            "add",
            name,
            "type",
            "veth",
            "peer",
            "name",
            TRAINING,
            "netns",
            space,
        )
        _ip("-n", fabric, "link", "set", name, "master", "fabric", "up")
        for interface, address in (
            (CONTROL, self.control_address(name)),
            (TRAINING, self.training_address(name)),
        ):
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", interface)
            _ip("-n", space, "link", "set", interface, "up")
        # `ip netns exec` shows this file as /etc/hosts.
        hosts = Path("/etc/netns") / space / "hosts"
        hosts.parent.mkdir(parents=True)
        hosts.write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
        _keygen(self._directory / name)
        config = self._directory / f"{name}.conf"
        config.write_text(
            f"ListenAddress {self.control_address(name)}\nPort {PORT}\nHostKey {self._directory / name}\n"
            f"AuthorizedKeysFile {self._directory / 'client.pub'}\nStrictModes no\nUsePAM no\n"
            "PidFile none\nPermitRootLogin prohibit-password\nMaxStartups 100\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        server = [_SSHD, "-D", "-e", "-f", str(config)]
        inside = ["ip", "netns", "exec", space, "unshare", "--uts"]
        with (self._directory / f"{name}.log").open("w") as log:
            self._servers.append(
                subprocess.Popen(
                    [*inside, sys.executable, "-c", _HOST, name, *server],
                    env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                    stdin=subprocess.DEVNULL,
                    stderr=log,
                )
            )

    def run(self, name: str, code: str) -> str:
        """Run Python code on a node; return what it printed."""
        command = ["ip", "netns", "exec", self._namespace(name), sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def lose(self, name: str) -> None:
        """End a node's processes, and take it off both networks."""
        for interface in (CONTROL, TRAINING):
            self.cut(name, interface)
        for pid in _output("ip", "netns", "pids", self._namespace(name)).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def cut(self, name: str, interface: str, *, is_up: bool = False) -> None:
        """Take a node's interface, CONTROL or TRAINING, down; or up again."""
        space = self._namespace(name)
        _ip("-n", space, "link", "set", interface, "up" if is_up else "down")

    def sections(self) -> str:
        """Return ``[ssh]`` and ``[[nodes]]``. Every second node names only the interface."""
        lines = [
            "[ssh]",
            f'user = "{getpass.getuser()}"',
            f'identity = "{self._directory / "client"}"',
            f'python = "{sys.executable}"',
            f'state_dir = "{self._directory / "state"}"',
        ]
        for number, name in enumerate(self.names):
            public = (self._directory / f"{name}.pub").read_text().split()[:2]
            lines += [
                "[[nodes]]",
                f'name = "{name}"',
                f'host = "{self.control_address(name)}"',
                f'host_key = "{" ".join(public)}"',
                "workers = 1",
                f'training_address = "{self.training_address(name)}"'
                if number % 2 == 0
                else f'training_interface = "{TRAINING}"',
            ]
        return "\n".join(lines) + "\n"

    def end(self) -> None:
        """End all processes on the nodes, and remove the networks."""
        for name in [*self.names, "fabric"]:
            space = self._namespace(name)
            for pid in _output("ip", "netns", "pids", space).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _output("ip", "netns", "del", space)
            shutil.rmtree(Path("/etc/netns") / space, ignore_errors=True)
        for server in self._servers:
            server.wait()
        _output("ip", "link", "del", f"{self._prefix}c")

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"


@contextlib.contextmanager
def two_networks(directory: Path, num_nodes: int) -> Iterator[TwoNetworks]:
    """Run nodes until the block ends. ``directory`` is made for them, and removed."""
    directory.mkdir()
    nodes = TwoNetworks(directory, num_nodes)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.end()
        shutil.rmtree(directory)


def _answers(server: tuple[str, int]) -> bool:
    code = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
    words = [sys.executable, "-c", code, server[0], str(server[1])]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _routes() -> list[str]:
    found = json.loads(_output("ip", "-4", "-json", "route", "show") or "[]")
    return [str(ipaddress.ip_network(each["dst"])) for each in found if each["dst"] != "default"]


def _keygen(path: Path) -> None:
    _output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout
