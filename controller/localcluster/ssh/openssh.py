"""OpenSSH's ``sshd`` in front of a node: found, configured for this node alone, checked.

It needs no root: run by an ordinary user it lets in that user only. Run by root it wants its
privilege separation directory, which packages leave to their service script; it is made here if it
is missing, and stays (every other sshd of the machine uses the same).
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.localcluster.cluster_errors import ServerError
from controller.localcluster.local_node import LocalNode, ServerKind
from controller.localcluster.ssh.ssh_server import Credentials, log_path, session_environment
from controller.localcluster.warden_orders import CutMethod, ServerCommand

_SYSTEM_DIRECTORIES: Final = ("/usr/sbin", "/usr/local/sbin")
"""Where sshd lies although the PATH of a user leaves it out."""
_SERVER_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHECK_LIMIT_S: Final = 10.0
_PENALTIES_SINCE: Final = (9, 8)
_VERSION: Final = re.compile(r"OpenSSH_(\d+)\.(\d+)")
_MISSING_DIRECTORY: Final = re.compile(r"Missing privilege separation directory: (/\S+)")
_RUN_DIRECTORIES: Final = ("/run/", "/var/run/")


class OpenSsh:
    """An installed ``sshd``."""

    def __init__(self, program: str) -> None:
        """Use the server at the absolute path ``program``."""
        self.program = program
        self._version = _version_of(program)

    @classmethod
    def find(cls, system_directories: Sequence[str] = _SYSTEM_DIRECTORIES) -> "OpenSsh | None":
        """Return the installed server: the first in PATH and then in ``system_directories``."""
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *system_directories])
        program = shutil.which("sshd", path=path)
        # sshd starts itself again for every connection and therefore insists on an absolute path.
        return cls(str(Path(program).absolute())) if program else None

    @property
    def kind(self) -> ServerKind:
        """OpenSSH."""
        return ServerKind.OPENSSH

    @property
    def title(self) -> str:
        """Name and place, since several may be installed."""
        return f"OpenSSH ({self.program})"

    def configure(self, node: LocalNode, credentials: Credentials) -> ServerCommand:
        """Write and check the configuration for ``node``; return the command to start.

        Raises:
            ServerError: This sshd refuses the configuration.
            OSError: It can't be written.
        """
        config = credentials.directory / "sshd_config"
        config.write_text(render_config(node, credentials, self._version))
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
        """Return in one line what sshd has against ``config``; None if it accepts it."""
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
    """Return an sshd_config that serves ``node`` and nothing else.

    Args:
        node: Whose server it is.
        credentials: Its keys.
        version: The server's version, where known; some settings are errors to older ones.
    """
    authorized_keys = str(credentials.authorized_keys_path).replace("%", "%%")  # else a token
    environment = session_environment(node)
    lines = [
        f"ListenAddress {node.host}",
        f"Port {node.port}",
        f'HostKey "{credentials.host_key_path}"',
        f'AuthorizedKeysFile "{authorized_keys}"',
        # The keys lie below a temporary directory, which is writable for all; ours in it is 0700.
        "StrictModes no",
        f"AllowUsers {node.user}",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in environment.items()),
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        # Neither sessions of the system's login manager nor locked-account rules of PAM.
        "UsePAM no",
        "AllowStreamLocalForwarding yes",  # how the controller reaches the agent
        # Not "no": that refuses connections to unix sockets too (checked with OpenSSH 9.2), whatever
        # the line above says. Who may log in could reach the loopback interface from a shell anyway.
        "AllowTcpForwarding local",
        "AllowAgentForwarding no",
        "X11Forwarding no",
        "PermitTunnel no",
        "Subsystem sftp internal-sftp",
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
    """Return the version of ``program``; old ones reject -V, but name themselves doing so."""
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
