"""How a host is reached: the keys of a cluster file first, then OpenSSH's configuration.

The configuration is that of the controller's user: ``~/.ssh/config``, then ``/etc/ssh/ssh_config``,
with ``Include`` and ``Match``. It is read once, when the cluster file is read. Used are HostName,
Port, User, IdentityFile, ProxyJump, HostKeyAlias, UserKnownHostsFile and GlobalKnownHostsFile.
"""

import getpass
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncssh
from asyncssh.config import ConfigParseError, SSHClientConfig

from controller.clusterfile.cluster_keys import NO_CONFIG, SshSection
from controller.fleet.address import SshTarget
from profiles.records import is_file, user_path

_PORT: Final = 22
_MOST_JUMPS: Final = 8
_FILES: Final = ("~/.ssh/config", "/etc/ssh/ssh_config")
_IDENTITIES: Final = ("id_ed25519", "id_ecdsa", "id_rsa")
_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_KNOWN_TO_ALL: Final = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_AGENT: Final = "SSH_AUTH_SOCK"
_JUMP: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^\[\]:@]+))(?::(?P<port>\d+))?/?"
)


class SshConfigError(Exception):
    """A host can't be reached as configured. ``key`` is the key of the cluster file to mend."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class SshConfig:
    """Finds the SSH server of each host, and the jump hosts on the way.

    Attributes:
        section: What the cluster file says.
        folder: Paths in it are relative to this directory.
        environment: Environment of the controller.
    """

    section: SshSection
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def way_to(self, host: str) -> tuple[SshTarget, tuple[SshTarget, ...]]:
        """Return the SSH server of a host, and its jump hosts in their order.

        Raises:
            SshConfigError: It can't be reached so.
        """
        section = self.section
        options = self._options(host, section.user, section.port)
        target = self._target(host, options, section.host_key or "")
        jump = section.proxy_jump if section.proxy_jump is not None else options.get("ProxyJump")
        if section.proxy_jump is None and jump is None and options.get("ProxyCommand"):
            raise SshConfigError(
                "proxy_jump",
                f"{host}: ProxyCommand of the SSH configuration is not supported; write ProxyJump there, or"
                " proxy_jump here",
            )
        return target, tuple(self._jumps(str(jump or ""), host))

    def _jumps(self, text: str, host: str, depth: int = 0) -> list[SshTarget]:
        """Return the jump hosts that a ProxyJump names. The first one may have jumps of its own."""
        found: list[SshTarget] = []
        if not text or text.lower() == NO_CONFIG:
            return found
        if depth > _MOST_JUMPS:
            raise SshConfigError("proxy_jump", f"{host}: its jump hosts lead back to each other")
        for number, item in enumerate(text.split(",")):
            parts = _JUMP.fullmatch(item.strip())
            if parts is None:
                mend = "write user@host:port, and commas between several"
                raise SshConfigError(
                    "proxy_jump", f"{host}: {item.strip()!r:.60} is no jump host; {mend}"
                )
            name = parts["six"] or parts["host"]
            port = int(parts["port"]) if parts["port"] else None
            options = self._options(name, parts["user"], port)
            if number == 0:
                found += self._jumps(str(options.get("ProxyJump") or ""), host, depth + 1)
            found.append(self._target(name, options, ""))
        return found

    def _target(self, host: str, options: SSHClientConfig, host_key: str) -> SshTarget:
        return SshTarget(
            host=str(options.get("Hostname", host)),
            port=int(str(options.get("Port", _PORT))),
            user=str(options.get("User") or getpass.getuser()),
            client_key=self._identity(options),
            host_key=host_key,
            known_hosts=() if host_key else self._known_hosts(options),
            host_key_alias=str(options.get("HostKeyAlias") or ""),
        )

    def _options(self, host: str, user: str | None, port: int | None) -> SSHClientConfig:
        """Return what the SSH configuration says about a host.

        Raises:
            SshConfigError: A file can't be read, or not be understood.
        """
        given = (getpass.getuser(), user or (), host, port or ())
        files = self._files()
        try:
            options = SSHClientConfig.load(None, files, False, False, False, *given)
            if options.has_match_final():
                # The file is read once more, and what was found first stays, as with OpenSSH.
                options = SSHClientConfig.load(options, files, False, False, True, *given)
        except (OSError, ConfigParseError, UnicodeError, asyncssh.Error) as error:
            raise SshConfigError("config", f"the SSH configuration for {host}: {error}") from error
        assert isinstance(options, SSHClientConfig)
        return options

    def _files(self) -> list[Path]:
        named = self.section.config
        if named is None:
            return [path for name in _FILES if is_file(path := user_path(name))]
        return [] if named == NO_CONFIG else [self.folder / user_path(named)]

    def _identity(self, options: SSHClientConfig) -> str:
        """Return the private key to log in with; empty for the keys of the ssh-agent.

        Raises:
            SshConfigError: There is none.
        """
        if self.section.identity is not None:
            path = self.folder / user_path(self.section.identity)
            if is_file(path):
                return str(path)
            text = f"there is no file {path}; make a key with ssh-keygen, or name another"
            raise SshConfigError("identity", f"identity: {text}")
        listed = options.get("IdentityFile", [])
        names = [str(name) for name in listed] if isinstance(listed, list) else []
        for name in [*names, *(f"~/.ssh/{each}" for each in _IDENTITIES)]:
            path = user_path(name)
            if is_file(path):
                return str(path)
        if self.environment.get(_AGENT):
            return ""
        raise SshConfigError(
            "identity",
            "identity: none is named, ~/.ssh has none of the usual keys, and no ssh-agent runs; make a key with"
            " ssh-keygen, or name another",
        )

    def _known_hosts(self, options: SSHClientConfig) -> tuple[str, ...]:
        """Return the files with host keys. They are read at each connection.

        Raises:
            SshConfigError: The file that the cluster file names is not there.
        """
        if self.section.known_hosts is not None:
            path = self.folder / user_path(self.section.known_hosts)
            if is_file(path):
                return (str(path),)
            text = f"there is no file {path}; fill it with ssh-keyscan, or give host_key"
            raise SshConfigError("known_hosts", f"known_hosts: {text}")
        own = options.get("UserKnownHostsFile", _KNOWN_HOSTS)
        of_all = options.get("GlobalKnownHostsFile", _KNOWN_TO_ALL)
        return tuple(
            str(user_path(str(name)))
            for names in (own, of_all)
            for name in (names if isinstance(names, (list, tuple)) else [])
        )
