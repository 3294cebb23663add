"""The interface of SSH servers for a node, and the files and variables that all of them use."""

import site
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.localcluster.local_node import Account, LocalNode, ServerKind
from controller.localcluster.warden_orders import ServerCommand


@dataclass(frozen=True, slots=True)
class Credentials:
    """The files of a node's server.

    Attributes:
        directory: Directory of the server's files, outside the node's state directory.
        host_key_path: Private host key of this node.
        authorized_keys_path: Public keys that may log in.
        account: The account that may log in.
    """

    directory: Path
    host_key_path: Path
    authorized_keys_path: Path
    account: Account


class SshServer(Protocol):
    """A kind of SSH server."""

    @property
    def kind(self) -> ServerKind:
        """The kind of server."""
        ...

    @property
    def title(self) -> str:
        """Its name for the operator."""
        ...

    def configure(self, node: LocalNode, credentials: Credentials) -> ServerCommand:
        """Write the configuration for ``node``; return the command that starts its server.

        Raises:
            ServerError: This server can't serve on this machine, or refuses the configuration.
            OSError: The configuration can't be written.
        """
        ...


def session_environment(node: LocalNode) -> dict[str, str]:
    """Return the additional variables of every session on ``node``.

    HOME is the node's state directory. With the user's home, shells would read the user's start-up
    files: they take time, may print, and may leave files behind if a drill kills them.
    PYTHONUSERBASE keeps the user's own Python packages importable.
    """
    return {"HOME": str(node.state_dir), "PYTHONUSERBASE": site.getuserbase()}


def log_path(node: LocalNode) -> Path:
    """Return the path of the server log of ``node``."""
    return node.state_dir / "sshd.log"
