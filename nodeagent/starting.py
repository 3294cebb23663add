"""The ways to start an agent so that it outlives the login that starts it.

In this order: a unit of the site's own, if the cluster file names one; the systemd manager of the
user, if it runs without logins (linger); else a process in a session of its own. A systemd manager
starts an agent that has died again. In all of them a script, ``agent.sh`` in the state directory,
runs the agent, and only the agent: when it is stopped, its ranks live on.
"""

import hashlib
import os
import pwd
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nodeagent.ranks.launcher import code_dir

SCRIPT: Final = "agent.sh"
_RECORD: Final = "agent.unit"
_MAX_LOG_BYTES: Final = 4 * 1024 * 1024
_LIMIT_S: Final = 20.0
_LINGER: Final = Path("/var/lib/systemd/linger")
_RUNTIME: Final = Path("/run/user")
_PROPERTIES: Final = (
    "Type=notify", "NotifyAccess=main", "WatchdogSec=30", "KillMode=process", "Restart=always",
    "RestartSec=1",
)  # fmt: skip


class UnitError(Exception):
    """A unit can't be started or stopped; the text is one line and says what to do."""


@dataclass(frozen=True, slots=True)
class Launched:
    """An agent that was launched; it need not answer yet.

    Attributes:
        way: How, for people: ``unit NAME``, ``user unit NAME``, ``detached``.
        process: The process, if it is this one's child.
    """

    way: str
    process: "subprocess.Popen[bytes] | None" = None


def launch(state_dir: Path, arguments: Sequence[str], unit: str) -> Launched:
    """Start an agent: with ``unit`` if the site has one, else in the best way that works.

    Raises:
        UnitError: The site's unit can't be started.
        OSError: The state directory can't be written.
    """
    script = _write_script(state_dir, arguments)
    if unit:
        _record(state_dir, f"system {unit}")
        failure = _call(["systemctl", "restart", unit], dict(os.environ))
        if failure:
            raise UnitError(
                f"systemctl restart {unit}: {failure}; the unit has to run {script} as this user,"
                " who has to be allowed to manage it"
            )
        return Launched(f"unit {unit}")
    if name := _start_in_user_manager(state_dir, script):
        return Launched(f"user unit {name}")
    (state_dir / _RECORD).unlink(missing_ok=True)
    with (state_dir / "agent.log").open("ab") as output:
        process = subprocess.Popen(  # noqa: S603 - a script of our own
            ["/bin/sh", str(script)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=state_dir,
            start_new_session=True,
        )
    return Launched("detached", process)


def stop_unit(state_dir: Path) -> None:
    """Stop the unit that runs the agent, if one does: otherwise it would start it again.

    Raises:
        UnitError: It can't be stopped.
    """
    try:
        manager, _, unit = (state_dir / _RECORD).read_text(encoding="utf-8").partition(" ")
    except FileNotFoundError:
        return
    is_users = manager == "user"
    words = ["systemctl", *(["--user"] if is_users else []), "stop", unit]
    failure = _call(words, _user_environment() if is_users else dict(os.environ))
    if failure and "not loaded" not in failure:
        raise UnitError(f"{' '.join(words)}: {failure}")
    (state_dir / _RECORD).unlink(missing_ok=True)


def _write_script(state_dir: Path, arguments: Sequence[str]) -> Path:
    """Write what a unit runs. It is replaced in one step: a manager may run it at any time.

    Several starts at once each have a name of their own for the new one.
    """
    log = state_dir / "agent.log"
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(state_dir / "agent.log.1")
    # -P: the state directory must not become a place that modules are imported from.
    command = [sys.executable, "-P", "-m", "nodeagent", "run", *arguments]
    code, log_path = shlex.quote(str(code_dir())), shlex.quote(str(log))
    script, new = state_dir / SCRIPT, state_dir / f"{SCRIPT}.{os.getpid()}"
    new.write_text(
        "#!/bin/sh\n"
        f"PYTHONPATH={code}${{PYTHONPATH:+:$PYTHONPATH}}\n"
        "export PYTHONPATH\n"
        f"cd {shlex.quote(str(state_dir))} || exit 1\n"
        f"exec {shlex.join(command)} >>{log_path} 2>&1 </dev/null\n",
        encoding="utf-8",
    )
    new.chmod(0o700)
    new.replace(script)
    return script


def _start_in_user_manager(state_dir: Path, script: Path) -> str:
    """Start the agent as a unit of the user's manager; return its name, or nothing if it can't."""
    environment = _user_environment()
    if not environment:
        return ""
    digest = hashlib.sha256(os.fsencode(state_dir)).hexdigest()[:12]
    name = f"unicron-agent-{digest}.service"
    words = ["systemd-run", "--user", "--quiet", "--collect", f"--unit={name}"]
    words += [f"--property={each}" for each in _PROPERTIES]
    # Names alone: values would show in the list of processes.
    words += [f"--setenv={key}" for key in os.environ if key.isidentifier()]
    _record(state_dir, f"user {name}")
    failure = _call([*words, "/bin/sh", str(script)], {**os.environ, **environment})
    if failure:
        sys.stderr.write(f"nodeagent: no unit of the user's manager, so detached: {failure}\n")
        return ""
    return name


def _user_environment() -> dict[str, str]:
    """Return the environment that reaches the user's manager; empty if it ends with the login."""
    user = pwd.getpwuid(os.getuid()).pw_name
    runtime = _RUNTIME / str(os.getuid())
    if not (_LINGER / user).exists() or not (runtime / "systemd" / "private").exists():
        return {}
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(runtime),
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus",
    }


def _record(state_dir: Path, text: str) -> None:
    (state_dir / _RECORD).write_text(text, encoding="utf-8")


def _call(words: Sequence[str], environment: dict[str, str]) -> str:
    """Run a command; return its last line if it failed, else nothing."""
    try:
        done = subprocess.run(  # noqa: S603 - a list of words
            words, env=environment, capture_output=True, timeout=_LIMIT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return (said[-1] if said else f"exit status {done.returncode}") if done.returncode else ""
