"""OpenSSH's ``sshd`` for a node: finds it, writes its configuration, and checks it.

It needs no root: an ordinary user's sshd accepts that user only. An sshd of root needs its
privilege separation directory, which the package's service script usually makes. If the directory
is missing, it is made here and kept, since every sshd of the machine uses it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from typing_extensions import override

from controller.localcluster.cluster_errors import ServerError
from controller.localcluster.local_node import LocalNode, ServerKind
from controller.localcluster.ssh.ssh_server import (
    Credentials,
    SshServer,
    log_path,
    session_environment,
)
from controller.localcluster.warden_orders import CutMethod, ServerCommand

_SYSTEM_DIRECTORIES: Final = ("/usr/sbin", "/usr/local/sbin")
"""Directories of sshd that a user's PATH may lack."""
_SERVER_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHECK_LIMIT_S: Final = 10.0
_PENALTIES_SINCE: Final = (9, 8)
_VERSION: Final = re.compile(r"OpenSSH_(\d+)\.(\d+)")
_MISSING_DIRECTORY: Final = re.compile(r"Missing privilege separation directory: (/\S+)")
_RUN_DIRECTORIES: Final = ("/run/", "/var/run/")


class OpenSsh(SshServer):
    """An installed ``sshd``."""

    def __init__(self, program: str, own_lines: Sequence[str] = ()) -> None:
        """Use the server at the absolute path ``program``, with ``own_lines`` in its settings."""
        self.program = program
        self._own_lines = own_lines
        self._version = _version_of(program)

    @classmethod
    def find(
        cls,
        system_directories: Sequence[str] = _SYSTEM_DIRECTORIES,
        own_lines: Sequence[str] = (),
    ) -> "OpenSsh | None":
        """Return the installed server: the first in PATH and then in ``system_directories``."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *system_directories])
        program = shutil.which("sshd", path=path)
        # sshd executes itself again for every connection, so it demands an absolute path.
        return cls(str(Path(program).absolute()), own_lines) if program else None

    @property
    @override
    def kind(self) -> ServerKind:
        return ServerKind.OPENSSH

    @property
    @override
    def title(self) -> str:
        return f"OpenSSH ({self.program})"  # with its path, since several may be installed

    @override
    def configure(self, node: LocalNode, credentials: Credentials) -> ServerCommand:
        config = credentials.directory / "sshd_config"
        # sshd takes the first value of a key, but the last one of MaxStartups.
        lines = [*self._own_lines, *render_config(node, credentials, self._version).splitlines()]
        lines += [line for line in self._own_lines if line.lower().startswith("maxstartups")]
        config.write_text("".join(f"{line}\n" for line in lines))
        self._check(config)
        return ServerCommand(
            argv=[self.program, "-D", "-e", "-f", str(config)],
            env={"PATH": _SERVER_PATH},
            log_path=str(log_path(node)),
            cut_method=CutMethod.KILL_SESSIONS,
        )

    def _check(self, config: Path) -> None:
        reason = self._test(config)
        missing = _MISSING_DIRECTORY.search(reason or "")
        if missing and missing[1].startswith(_RUN_DIRECTORIES):
            Path(missing[1]).mkdir(mode=0o755, parents=True, exist_ok=True)
            reason = self._test(config)
        if reason is not None:
            raise ServerError(reason)

    def _test(self, config: Path) -> str | None:
        """Return sshd's error about ``config`` in one line; None if sshd accepts it."""
        try:
            done = _run([self.program, "-t", "-f", str(config)])
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            return None
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines()]
        return "; ".join(filter(None, lines)) or f"sshd -t ended with {done.returncode}"


def render_config(
    node: LocalNode, credentials: Credentials, version: tuple[int, int] | None
) -> str:
    """Return an sshd_config for ``node``.

    Args:
        node: The server's node.
        credentials: The node's keys.
        version: The server's version, if known. Older servers refuse some settings.
    """
    authorized_keys = str(credentials.authorized_keys_path).replace("%", "%%")  # else a token
    environment = session_environment(node)
    lines = [
        f"ListenAddress {node.host}",
        f"Port {node.port}",
        f'HostKey "{credentials.host_key_path}"',
        f'AuthorizedKeysFile "{authorized_keys}"',
        # The keys are below a temporary directory that is writable for all; our part is 0700.
        "StrictModes no",
        f"AllowUsers {node.user}",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in environment.items()),
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        # PAM would add sessions of the login manager and rules about locked accounts.
        "UsePAM no",
        "AllowStreamLocalForwarding yes",  # how the controller reaches the agent
        # "no" would also refuse unix sockets, despite the line above (checked with OpenSSH 9.2). A
        # user with a shell can reach the loopback interface anyway.
        "AllowTcpForwarding local",
        "AllowAgentForwarding no",
        "X11Forwarding no",
        "PermitTunnel no",
        "UseDNS no",
        "MaxStartups 100:30:200",
        "MaxSessions 64",
        "PidFile none",
        "PrintMotd no",
        "LogLevel INFO",
    ]
    if version is not None and version >= _PENALTIES_SINCE:
        # A session that a drill kills looks like an attack, and all clients share one address.
        lines.append("PerSourcePenalties no")
    return "\n".join(lines) + "\n"


def _version_of(program: str) -> tuple[int, int] | None:
    """Return the version of ``program``. Old versions reject -V, but print their version."""
    try:
        done = _run([program, "-V"])
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _run(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - the server that was found, and our own arguments
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_CHECK_LIMIT_S,
        check=False,
    )
