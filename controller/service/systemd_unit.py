"""The systemd unit that runs a controller, as text."""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = "# Written by `unicron service install`; the next install replaces it."
"""First line of a unit that may be replaced."""

_DOLLAR_OR_PERCENT: Final = re.compile(r"[$%]")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What a unit is made of.

    Attributes:
        cluster: The cluster file, an absolute path.
        name: Name of the cluster.
        user: Who runs it, in a system unit; empty in a unit of the user's own.
        is_auto_heal: Whether plans are applied at once, whatever the file says.
        environment: Variables that the controller needs.
    """

    cluster: Path
    name: str
    user: str
    is_auto_heal: bool
    environment: Mapping[str, str]


def unit_name(cluster: str) -> str:
    """Return the name of the unit of a cluster."""
    return f"unicron-{cluster}.service"


def unit_text(options: ServiceOptions) -> str:
    """Return the unit. It is restarted after a crash, and takes over; training is not disturbed."""
    run = [sys.executable, "-P", "-m", "controller.cli", "run", str(options.cluster)]
    if options.is_auto_heal:
        run.append("--auto-heal")
    reload = [sys.executable, "-P", "-m", "controller.cli", "reload", "--yes"]
    reload += ["--cluster", str(options.cluster)]
    lines = [
        MARK,
        "[Unit]",
        f"Description=Unicron, the controller of cluster {options.name}",
        "Wants=network-online.target",
        "After=network-online.target",
        "# However often it fails, it is started again: ranks train on, but faults wait for it.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=notify",
        *([f"User={options.user}"] if options.user else []),
        *(f"Environment={_word(f'{key}={text}')}" for key, text in options.environment.items()),
        f"ExecStart={' '.join(map(_word, run))}",
        f"ExecReload={' '.join(map(_word, reload))}",
        "Restart=on-failure",
        "RestartSec=5",
        "# 2 is a mistake in the cluster file: somebody has to correct it.",
        "RestartPreventExitStatus=2",
        "TimeoutStartSec=300",
        "TimeoutStopSec=30",
        "WatchdogSec=60",
        "KillMode=mixed",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if options.user else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    """Return a word as systemd reads it: quoted, without variables and specifiers."""
    doubled = _DOLLAR_OR_PERCENT.sub(lambda found: found[0] * 2, text)
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return escaped if re.fullmatch(r"[\w@%+=:,./-]+", escaped) else f'"{escaped}"'
