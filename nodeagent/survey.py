"""What a node has that the agent and its ranks need: disk, clock, GPUs, limits, shared folders.

The controller runs the text of this module with ``python -c``, before any file of the agent is
there. Nothing is changed, but for one marker file if ``marker`` asks for it. It prints one JSON
line.
"""

import contextlib
import getpass
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

_COMMAND_LIMIT_S: Final = 20.0


def survey(question: dict[str, Any]) -> dict[str, Any]:
    """Return what the node has.

    Args:
        question: ``state_dir``; ``paths``, to look whether they are there; and ``unit``, the site's
            system unit for the agent. Or one of these alone: ``marker``, a file to make in its
            folder, or in the nearest one above that is there; ``seen``, a file to look for, and
            ``place``, the folder that is meant; ``done``, a file to remove.
    """
    if question.get("marker"):
        place = _nearest(Path(question["marker"]).parent) / Path(question["marker"]).name
        try:
            place.touch()
        except OSError as error:
            return {"marker": str(place), "problem": error.strerror or str(error)}
        return {"marker": str(place), "problem": ""}
    if question.get("seen"):
        seen = Path(question["seen"])
        return {"seen": seen.exists(), "nearest": str(_nearest(Path(question["place"])))}
    if question.get("done"):
        with contextlib.suppress(OSError):
            Path(question["done"]).unlink()
        return {}
    state_dir = _nearest(Path(question["state_dir"]))
    return {
        "wall_s": time.time(),  # noqa: TID251 - the node's clock is what is looked at
        "files": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "state_dir": str(state_dir),
        "is_writable": os.access(state_dir, os.W_OK),
        "free_bytes": shutil.disk_usage(state_dir).free,
        "gpus": _num_gpus(),
        "reads_kernel_log": _reads_kernel_log(question.get("kernel_log", "")),
        "ends_with_login": "" if question.get("unit") else why_login_ends(Path("/")),
        "paths": {path: str(_nearest(Path(path))) for path in question.get("paths", [])},
    }


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest directory above it that is there."""
    # These do not raise where a user is unknown, or a directory must not be looked into.
    path = Path(os.path.expanduser(str(path)))  # noqa: PTH111
    for each in [path, *path.parents]:
        if os.path.exists(str(each)):  # noqa: PTH110
            return each
    return Path("/")


def _num_gpus() -> int | None:
    """Return how many GPUs the driver shows; None if it does not answer in time."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return len(list(Path("/dev").glob("nvidia[0-9]*")))
    try:
        listed = subprocess.check_output([program, "-L"], timeout=_COMMAND_LIMIT_S)  # noqa: S603
    except subprocess.TimeoutExpired:
        return None
    except (OSError, subprocess.CalledProcessError):
        return 0
    return sum(line.startswith(b"GPU ") for line in listed.splitlines())


def why_login_ends(root: Path) -> str:
    """Return what ends the processes of a login with it; nothing if they may stay.

    Args:
        root: Directory that ``/etc`` and ``/var`` are looked for in.
    """
    user = getpass.getuser()
    if (root / "var/lib/systemd/linger" / user).exists():
        return ""
    with contextlib.suppress(OSError):
        if "pam_slurm_adopt" in _settings((root / "etc/pam.d/sshd").read_text("utf-8")):
            return "pam_slurm_adopt puts logins into a Slurm job, and ends them with it"
    if not (root / "run/systemd/system").exists():
        return ""
    folders = [root / top / "systemd" for top in ("usr/lib", "run", "etc")]
    files = [folder / "logind.conf" for folder in folders]
    for folder in folders:
        files += sorted((folder / "logind.conf.d").glob("*.conf"))
    found: dict[str, str] = {}
    for path in files:
        with contextlib.suppress(OSError, UnicodeError):
            for line in _settings(path.read_text("utf-8")).splitlines():
                key, _, value = line.partition("=")
                found[key.strip()] = value.strip()
    kills = found.get("KillUserProcesses", "no").lower() in {"1", "yes", "true", "on"}
    spared = found.get("KillExcludeUsers", "root").split()
    return "KillUserProcesses=yes in logind.conf" if kills and user not in spared else ""


def _settings(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))


def _reads_kernel_log(given: str) -> bool:
    places = [given] if given else ["/dev/kmsg", "/var/log/kern.log", "/var/log/messages"]
    for place in places:
        try:
            os.close(os.open(place, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        return True
    program = None if given else shutil.which("journalctl")
    if program is None:
        return False
    words = [program, "-k", "-n", "1", "-q", "--no-pager"]
    try:
        said = subprocess.check_output(  # noqa: S603
            words, timeout=_COMMAND_LIMIT_S, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return bool(said)


def listen() -> None:
    """Listen on a socket until standard input ends, and print its path: can SSH reach it?"""
    folder = Path(tempfile.mkdtemp(prefix="unicron-"))
    path = str(folder / "check.sock")
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            sys.stdout.write("\n" + json.dumps({"unicron_listens": path}) + "\n")
            sys.stdout.flush()
            sys.stdin.read()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__" and sys.argv[1] == "listen":
    listen()
elif __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps({"unicron_survey": survey(json.loads(sys.argv[1]))}) + "\n")
