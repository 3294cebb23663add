"""``unicron service``: runs the controller of a cluster file as a systemd service."""

import argparse
import getpass
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from controller.arguments import HelpText, file_path
from controller.clusterfile.cluster_reader import Cluster, load_cluster
from controller.clusterfile.file_mistakes import ClusterFileError
from controller.printing import refuse
from controller.service.systemd_unit import MARK, ServiceOptions, unit_name, unit_text
from profiles.records import on_one_line

_PROGRAM: Final = "unicron service"
_EXIT_INACTIVE: Final = 3
_SYSTEM_UNITS: Final = Path("/etc/systemd/system")
_LINGER: Final = Path("/var/lib/systemd/linger")
_LIMIT_S: Final = 330.0
"""Longer than the TimeoutStartSec of the unit."""
_SHOWN: Final = ("LoadState", "UnitFileState", "ActiveState", "SubState", "MainPID", "NRestarts")
_EPILOG: Final = """\
install writes a unit (Type=notify, with a watchdog) and starts it. systemd restarts a controller that has crashed or
hangs; it takes over, and training is not disturbed. Changes of the cluster file: `unicron reload`, or
`systemctl reload`.

Without --system it is a unit of your own systemd, in ~/.config/systemd/user. That ends with your last session, unless
`loginctl enable-linger` is set for you. With --system it is in /etc/systemd/system, and runs as you or as --user NAME.

uninstall ends the controller and not the training: the next `unicron run` takes over. `unicron down` ends both.

exit codes:
  0  done; with status: it is active
  1  systemd refused; its message says why
  2  wrong options, or a mistake in the cluster file: nothing was changed
  3  with status: it is not active

examples:
  unicron service install cluster.toml --print
  unicron service install cluster.toml --auto-heal
  sudo unicron service install cluster.toml --system --user train
  unicron service status cluster.toml --json
  unicron service uninstall cluster.toml --dry-run
"""


class _ServiceError(Exception):
    """systemd, or the file system, has refused. The text is one line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Define the options of ``unicron service``."""
    parser.formatter_class, parser.epilog = HelpText, _EPILOG
    parser.add_argument("action", choices=("install", "uninstall", "status"), help="what to do")
    parser.add_argument("cluster", metavar="CLUSTER", type=file_path, help="the cluster file")
    parser.add_argument(
        "--system", action="store_true", help="a unit of the system, not of your own systemd"
    )
    parser.add_argument(
        "--user", metavar="NAME", help="with --system: who runs the controller (default: you)"
    )
    parser.add_argument(
        "--auto-heal", action="store_true", help="install: the controller applies plans at once"
    )
    parser.add_argument(
        "--print", action="store_true", help="install: print the unit, and change nothing"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )
    parser.add_argument("--json", action="store_true", help="status: print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Install, uninstall or show the service; return the exit code."""
    if arguments.user and not arguments.system:
        return refuse(_PROGRAM, "--user NAME belongs to --system: your own systemd runs it as you")
    try:
        cluster = load_cluster(arguments.cluster)
    except ClusterFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    service = _Service(cluster, arguments)
    try:
        match arguments.action:
            case "install":
                return service.install()
            case "uninstall":
                return service.uninstall()
            case _:
                return service.show()
    except _ServiceError as error:
        refuse(_PROGRAM, str(error))
        return 1


class _Service:
    """The service of one cluster."""

    def __init__(self, cluster: Cluster, arguments: argparse.Namespace) -> None:
        self._cluster, self._arguments = cluster, arguments
        self._is_system: bool = arguments.system
        self._name = unit_name(cluster.name)
        config = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        self._directory = _SYSTEM_UNITS if self._is_system else Path(config) / "systemd" / "user"
        self._path = self._directory / self._name

    def install(self) -> int:
        text = unit_text(self._options())
        if self._arguments.print:
            sys.stdout.write(text)
            return 0
        known = self._written()
        if known is not None and not known.startswith(MARK):
            raise _ServiceError(
                f"{self._path} was not written by unicron: remove it first, or keep it and use --print"
            )
        what = "stays as it is" if known == text else "is replaced" if known else "is written"
        verb = "start" if known == text else "restart"
        steps = (("daemon-reload",), ("enable", self._name), (verb, self._name))
        sys.stdout.write(f"{self._path} {what}\n")
        if not self._arguments.dry_run:
            self._write(text)
        self._carry_out(*steps)
        if not self._is_system and not (_LINGER / getpass.getuser()).exists():
            sys.stdout.write(
                "it ends with your last session: `loginctl enable-linger` lets it stay\n"
            )
        if not self._arguments.dry_run:
            sys.stdout.write(f"{self._name} runs; watch it: {self._advice()}\n")
        return 0

    def uninstall(self) -> int:
        if self._written() is None:
            raise _ServiceError(f"{self._path}: there is no such unit")
        self._carry_out(("disable", "--now", self._name))
        sys.stdout.write(f"{self._path} is removed\n")
        if not self._arguments.dry_run:
            self._path.unlink()
        self._carry_out(("daemon-reload",))
        sys.stdout.write(
            "training continues without a controller; the next one takes over:"
            f" unicron run {self._cluster.path}\n"
        )
        return 0

    def show(self) -> int:
        options = [f"--property={name}" for name in (*_SHOWN, "StatusText")]
        done = self._systemctl("show", self._name, *options)
        if done.returncode != 0:
            reason = on_one_line((done.stderr or done.stdout).strip())
            raise _ServiceError(f"systemctl show: {reason or 'failed'}")
        found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
        is_active = found.get("ActiveState") == "active"
        if self._arguments.json:
            report = {"unit": self._name, "path": str(self._path), "is_active": is_active, **found}
            sys.stdout.write(f"{json.dumps(report)}\n")
        elif found.get("LoadState") == "not-found":
            sys.stdout.write(f"{self._name} is not installed\n")
        else:
            state = f"{found.get('ActiveState', 'unknown')} ({found.get('SubState', 'unknown')})"
            sys.stdout.write(
                f"{self._name} is {state}, {found.get('UnitFileState', 'unknown')}, process"
                f" {found.get('MainPID', '0')}, restarted {found.get('NRestarts', '0')} times\n"
            )
            if text := found.get("StatusText"):
                sys.stdout.write(f"{on_one_line(text)}\n")
        return 0 if is_active else _EXIT_INACTIVE

    def _options(self) -> ServiceOptions:
        user = ""
        if self._is_system:
            user = self._arguments.user or os.environ.get("SUDO_USER") or getpass.getuser()
        state_home = os.environ.get("XDG_STATE_HOME", "")
        return ServiceOptions(
            cluster=self._cluster.path,
            name=self._cluster.name,
            user=user,
            is_auto_heal=self._arguments.auto_heal,
            # Where the run directory is depends on it.
            environment={"XDG_STATE_HOME": state_home} if state_home else {},
        )

    def _written(self) -> str | None:
        try:
            return self._path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise _ServiceError(f"{self._path}: {error}") from error

    def _write(self, text: str) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._path.write_text(text)
        except OSError as error:
            mend = "; --system needs root" if self._is_system else ""
            reason = (error.strerror or str(error)).lower()
            raise _ServiceError(f"{self._path}: {reason}{mend}") from error

    def _carry_out(self, *steps: tuple[str, ...]) -> None:
        for step in steps:
            sys.stdout.write(f"{' '.join(self._words(*step))}\n")
            if self._arguments.dry_run:
                continue
            done = self._systemctl(*step)
            if done.returncode != 0:
                reason = on_one_line((done.stderr or done.stdout).strip())
                raise _ServiceError(
                    f"systemctl {step[0]}: {reason or 'failed'}: see {self._advice()}"
                )

    def _words(self, *step: str) -> list[str]:
        return ["systemctl", *([] if self._is_system else ["--user"]), *step]

    def _systemctl(self, *step: str) -> subprocess.CompletedProcess[str]:
        program = shutil.which("systemctl")
        if program is None:
            raise _ServiceError(
                "there is no systemctl on this machine: --print shows the unit, and `unicron run` needs"
                " no systemd"
            )
        _, *words = self._words(*step)
        try:
            return subprocess.run(  # noqa: S603 - no shell; the unit's name is made of checked letters
                [program, *words], capture_output=True, text=True, check=False, timeout=_LIMIT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _ServiceError(f"systemctl {step[0]}: {on_one_line(str(error))}") from error

    def _advice(self) -> str:
        return f"journalctl {'' if self._is_system else '--user '}--unit {self._name}"
