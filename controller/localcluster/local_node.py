"""What a client must know of one node of the local cluster, what there is to choose, who logs in."""

import getpass
import os
import pwd
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from controller.fleet.address import NodeAddress
from controller.localcluster.cluster_errors import LocalClusterError
from nodeagent.protocol.ids import NodeId

_DEFAULT_SHELL: Final = "/bin/sh"


class ServerKind(StrEnum):
    """Which SSH server stands in front of a node."""

    OPENSSH = "openssh"
    ASYNCSSH = "asyncssh"


ServerChoice = Literal["auto", "openssh", "asyncssh"]
"""``auto``: OpenSSH where it is installed and serves, else asyncssh's server."""

NetworkChoice = Literal["loopback", "namespaces", "auto"]
"""``auto``: a network namespace for every node where that is possible, else one loopback for all."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node: its own SSH server, its own host key, its own state directory.

    Attributes:
        node: Its name, ``n1``, ``n2`` and so on.
        host: The loopback address, or its own in a network namespace.
        port: Port of its SSH server; the same after a restore.
        state_dir: Its state directory, mode 0700.
        user: Login name: who runs the demo.
        client_key_path: Private key that may log in; the same for all nodes of a run.
        host_public_key: The key to pin, as ``ssh-ed25519 AAAA..``; the same after a restore.
        server: Which SSH server it is.
        num_workers: Worker slots.
        interface: Through which its ranks reach others; empty where all share the loopback.
    """

    node: NodeId
    host: str
    port: int
    state_dir: Path
    user: str
    client_key_path: Path
    host_public_key: str
    server: ServerKind
    num_workers: int
    interface: str = ""

    @property
    def address(self) -> NodeAddress:
        """How a controller of this installation reaches it."""
        return NodeAddress(
            node=self.node,
            host=self.host,
            port=self.port,
            user=self.user,
            client_key=str(self.client_key_path),
            host_public_key=self.host_public_key,
            state_dir=str(self.state_dir),
            python=sys.executable,
            num_workers=self.num_workers,
            kernel_log=str(self.kernel_log),
        )

    @property
    def kernel_log(self) -> Path:
        """The file that stands for its kernel log; empty after a restore."""
        return self.state_dir / "kernel.log"


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the demo, and therefore everything on its nodes."""

    name: str
    home: str
    shell: str

    @classmethod
    def current(cls) -> "Account":
        """Return the account of this process.

        A user id without an entry, as containers have them, takes its name from the environment.

        Raises:
            LocalClusterError: There is no name at all; asyncssh insists on one.
        """
        try:
            entry = pwd.getpwuid(os.getuid())
        except KeyError:
            return cls(_name_from_environment(), os.environ.get("HOME", "/"), _DEFAULT_SHELL)
        return cls(entry.pw_name, entry.pw_dir, entry.pw_shell or _DEFAULT_SHELL)


def _name_from_environment() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # OSError since Python 3.13
        raise LocalClusterError(
            f"user id {os.getuid()} has no name on this machine: set LOGNAME to any name"
        ) from error
