"""Which host keys are believed: pinned ones, and those of known_hosts files.

OpenSSH's files are read as OpenSSH reads them: hashed names, patterns, ``@cert-authority`` and
``@revoked``. Only with ``accept_new`` a key of a host that no file knows is believed, and it is
written into a file of the project, so that from then on the host has to show it.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncssh
from typing_extensions import override

from controller.fleet.address import SSH_PORT, SshTarget

_LOG: Final = logging.getLogger(__name__)
_FINGERPRINT: Final = "SHA256:"
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class AcceptedKeys:
    """Where the project keeps host keys that were accepted at the first contact.

    Attributes:
        path: The known_hosts file. It may not be there yet.
        accepts_new: Whether further hosts that no file knows are accepted.
        announce: Called with a line for people when a key was accepted.
    """

    path: Path
    accepts_new: bool = False
    announce: Callable[[str], None] = _LOG.info

    def add(self, target: SshTarget, key: asyncssh.SSHKey) -> None:
        """Believe a key of a host from now on.

        Raises:
            OSError: The file can't be written.
        """
        public = key.export_public_key().decode().strip()
        self.path.touch(_MODE)
        with self.path.open("a") as file:
            file.write(f"{target.name_in_known_hosts} {public}\n")
        self.announce(f"accepts the host key {key.get_fingerprint()} of {target.place}")


class HostKeyCheck(asyncssh.SSHClient):
    """Decides about the host key of one login. asyncssh asks it about keys that no file has.

    Args:
        target: The server.
        accepted: The project's own file, if there is one.

    Raises:
        OSError: A known_hosts file can't be read.
        ValueError: The pinned key, or a file, can't be understood.
    """

    def __init__(self, target: SshTarget, accepted: AcceptedKeys | None) -> None:
        self._target = target
        self._accepted = None if target.host_key else accepted
        self.known_hosts = _known_hosts(target, self._accepted)
        self.refused: asyncssh.SSHKey | None = None
        """The key that was not believed."""
        self._connection: asyncssh.SSHClientConnection | None = None

    @override
    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self._connection = conn

    @property
    def server_version(self) -> str:
        """What the server calls itself; empty until it has said it."""
        found = self._connection and self._connection.get_extra_info("server_version", "")
        return str(found or "")

    @override
    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        if self._target.host_key.startswith(_FINGERPRINT):
            is_believed = key.get_fingerprint() == self._target.host_key
        else:
            is_believed = self._is_new(addr)
            if is_believed and self._accepted is not None:
                self._accepted.add(self._target, key)
        self.refused = None if is_believed else key
        return is_believed

    def _is_new(self, addr: str) -> bool:
        accepted = self._accepted
        return accepted is not None and accepted.accepts_new and not self.known_keys(addr)

    def known_keys(self, addr: str = "") -> Sequence[asyncssh.SSHKey]:
        """Return the keys that files, or the cluster file, have for the server."""
        return _keys_of(self.known_hosts, self._target, addr)

    def why_refused(self) -> str:
        """Return why the key was not believed, and what to do. One line."""
        target = self._target
        shown = self.refused.get_fingerprint() if self.refused else "of the server"
        if target.host_key:
            return (
                f"the host key is {shown}, and the cluster file pins {_fingerprint(target.host_key)}: if the"
                " machine was installed anew, change host_key; else somebody may pretend to be it"
            )
        name = target.name_in_known_hosts
        if self.known_keys():
            files = " ".join(f"-f {path}" for path in self._files_that_know())
            return (
                f"the host key has changed: it is {shown}, and was"
                f" {', '.join(key.get_fingerprint() for key in self.known_keys())}. If the machine was"
                f" installed anew: ssh-keygen -R '{name}' {files}; else somebody may pretend to be it"
            )
        return (
            f"no known_hosts file has the host key {shown} of {name}: compare it with the machine's"
            " (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there), then accept it with --accept-new"
        )

    def why_revoked(self) -> str:
        """Return that the key is revoked, and what to do. One line."""
        name = self._target.name_in_known_hosts
        return (
            f"known_hosts revokes the host key of {name}: give that machine another key, or remove the"
            " line with @revoked"
        )

    def _files_that_know(self) -> list[str]:
        target = self._target
        files = [*target.known_hosts, *([str(self._accepted.path)] if self._accepted else [])]
        known = []
        for path in files:
            with contextlib.suppress(OSError, ValueError):
                if _keys_of(asyncssh.read_known_hosts(path), target):
                    known.append(path)
        return known


def _keys_of(
    hosts: asyncssh.SSHKnownHosts, target: SshTarget, addr: str = ""
) -> Sequence[asyncssh.SSHKey]:
    # As a login asks: without the port where it is the default one, or where there is an alias.
    port = None if target.host_key_alias or target.port == SSH_PORT else target.port
    keys, *_ = asyncssh.match_known_hosts(hosts, target.host_key_alias or target.host, addr, port)
    return keys


def _known_hosts(target: SshTarget, accepted: AcceptedKeys | None) -> asyncssh.SSHKnownHosts:
    if target.host_key.startswith(_FINGERPRINT):
        return asyncssh.import_known_hosts("")
    if target.host_key:
        return asyncssh.import_known_hosts(target.known_hosts_line)
    files = [Path(path) for path in target.known_hosts]
    if accepted is not None:
        files.append(accepted.path)
    return asyncssh.read_known_hosts([str(path) for path in files if path.exists()])


def _fingerprint(host_key: str) -> str:
    if host_key.startswith(_FINGERPRINT):
        return host_key
    return asyncssh.import_public_key(host_key).get_fingerprint()
