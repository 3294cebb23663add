"""One node of the local cluster: its address, the choices for it, and the account that logs in."""

import getpass
import os
import pwd
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from controller.fleet.address import NodeAddress, SshTarget
from controller.localcluster.cluster_errors import LocalClusterError
from nodeagent.protocol.ids import NodeId

_DEFAULT_SHELL: Final = "/bin/sh"


class ServerKind(StrEnum):
    """The kinds of SSH servers."""

    OPENSSH = "openssh"
    ASYNCSSH = "asyncssh"


ServerChoice = Literal["auto", "openssh", "asyncssh"]
"""``auto``: OpenSSH if it is installed and serves, else asyncssh's server."""

NetworkChoice = Literal["loopback", "namespaces", "auto"]
"""``auto``: a network namespace for every node if possible, else the loopback network for all."""


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One node, with its own SSH server, host key and state directory.

    Attributes:
        node: Its name: ``n1``, ``n2`` and so on.
        host: The loopback address, or the node's address in its network namespace.
        port: Port of its SSH server; the same after a restore.
        state_dir: Its state directory, mode 0700.
        user: Login name: the user who runs the demo.
        client_key_path: Private key that may log in; the same for all nodes of a run.
        host_public_key: The key to pin, as ``ssh-ed25519 AAAA..``; the same after a restore.
        server: The kind of its SSH server.
        num_workers: Worker slots.
        interface: The network interface of its ranks; empty if all nodes share the loopback
            network.
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
        """The node's address, for a controller of this installation."""
        return NodeAddress(
            node=self.node,
            ssh=SshTarget(
                host=self.host,
                port=self.port,
                user=self.user,
                client_key=str(self.client_key_path),
                host_key=self.host_public_key,
            ),
            state_dir=str(self.state_dir),
            python=sys.executable,
            num_workers=self.num_workers,
            kernel_log=str(self.kernel_log),
        )

    @property
    def kernel_log(self) -> Path:
        """The file that represents its kernel log; empty after a restore."""
        return self.state_dir / "kernel.log"


@dataclass(frozen=True, slots=True)
class Account:
    """The account that runs the demo and all processes of its nodes."""

    name: str
    home: str
    shell: str

    @classmethod
    def current(cls) -> "Account":
        """Return the account of this process.

        In containers a user id may have no entry. Then its name comes from the environment.

        Raises:
            LocalClusterError: The user has no name; asyncssh needs one.
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
