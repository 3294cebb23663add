"""What every kind of SSH server for a node has in common, and the choice between the kinds."""

import site
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.localcluster.local_node import Account, LocalNode, ServerKind
from controller.localcluster.warden_orders import ServerCommand


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files that a node's server needs.

    Attributes:
        directory: The node's own directory for its server's files, outside its state directory.
        host_key_path: Private host key of this node.
        authorized_keys_path: Public keys that may log in.
        account: Who may log in.
    """

    directory: Path
    host_key_path: Path
    authorized_keys_path: Path
    account: Account


class SshServer(Protocol):
    """A kind of SSH server."""

    @property
    def kind(self) -> ServerKind:
        """Which kind."""
        ...

    @property
    def title(self) -> str:
        """Its name for the operator."""
        ...

    def configure(self, node: LocalNode, credentials: Credentials) -> ServerCommand:
        """Write the configuration for ``node``; return the command that starts its server.

        Raises:
            ServerError: This kind can't serve on this machine.
            OSError: The configuration can't be written.
        """
        ...


def session_environment(node: LocalNode) -> dict[str, str]:
    """Return what every session on ``node`` finds in its environment besides the usual.

    A node has a home of its own, its state directory. With the user's, shells would read the user's
    start-up files: they take time, may print, and, killed half-way by a drill, may leave things
    behind in the user's home. Python packages that were installed for the user are still found.
    With a network namespace of its own, gloo must be told the interface: the name of the machine,
    which it looks up otherwise, stands for another namespace's address.
    """
    environment = {"HOME": str(node.state_dir), "PYTHONUSERBASE": site.getuserbase()}
    if node.interface:
        environment["GLOO_SOCKET_IFNAME"] = node.interface
    return environment


def log_path(node: LocalNode) -> Path:
    """Return where the server of ``node`` writes its log."""
    return node.state_dir / "sshd.log"
