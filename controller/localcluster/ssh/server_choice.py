"""Which SSH servers to try for the nodes, in order."""

from collections.abc import Callable

from controller.localcluster.cluster_errors import LocalClusterError
from controller.localcluster.local_node import ServerChoice
from controller.localcluster.ssh.asyncssh_server import AsyncSsh
from controller.localcluster.ssh.openssh import OpenSsh
from controller.localcluster.ssh.ssh_server import SshServer


def choose_servers(
    choice: ServerChoice, openssh: OpenSsh | None, progress: Callable[[str], None]
) -> list[SshServer]:
    """Return the SSH servers to try, in order.

    Raises:
        LocalClusterError: ``choice`` is OpenSSH, which is not installed.
    """
    missing = "no OpenSSH server (sshd in PATH, /usr/sbin or /usr/local/sbin)"
    if choice == "asyncssh":
        return [AsyncSsh()]
    if choice == "openssh" and openssh is None:
        raise LocalClusterError(f"{missing}: install openssh-server, or use --sshd asyncssh")
    if openssh is None:
        progress(f"{missing}: using {AsyncSsh().title} instead")
        return [AsyncSsh()]
    return [openssh] if choice == "openssh" else [openssh, AsyncSsh()]
