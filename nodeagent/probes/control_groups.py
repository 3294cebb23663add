"""Memory control groups: which one a process is in, and how many of it the kernel has killed.

Version 2 counts in ``memory.events``, version 1 in ``memory.oom_control``; a machine may have
both. Inside a container the group's path may not exist under the mount that the container sees,
which is then the group itself.
"""

from pathlib import Path
from typing import Final

from nodeagent.detect.memory_kills import kills_in

CGROUP: Final = Path("/sys/fs/cgroup")
PROC: Final = Path("/proc")
_LIMITLESS: Final = 1 << 60
"""Version 1 writes a number near 2^63 where there is no limit."""


def memory_group(pid: int, proc: Path = PROC, root: Path = CGROUP) -> Path | None:
    """Return the directory of the memory control group of ``pid``; None if it can't be found."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    paths = dict(line.split(":", 2)[1:] for line in lines if line.count(":") >= 2)
    places = []
    for controllers, path in paths.items():
        inside = path.lstrip("/")
        if "memory" in controllers.split(","):
            places += [(root / "memory" / inside, "memory.oom_control")]
            places += [(root / "memory", "memory.oom_control")]
    for mount in (root, root / "unified"):
        if "" in paths:
            places += [(mount / paths[""].lstrip("/"), "memory.events")]
            places += [(mount, "memory.events")]
    return next((folder for folder, name in places if (folder / name).exists()), None)


def num_kills(group: Path) -> int | None:
    """Return how many processes of ``group`` were killed for memory; None if nobody counts."""
    for name in ("memory.events", "memory.oom_control"):
        if (count := kills_in(_text(group / name))) is not None:
            return count
    return None


def num_kills_of_node(proc: Path = PROC) -> int | None:
    """Return how many processes were killed for memory since boot; None if nobody counts."""
    return kills_in(_text(proc / "vmstat"))


def memory_limit_bytes(group: Path) -> int | None:
    """Return the most that ``group`` may use; None without a limit."""
    text = (_text(group / "memory.max") or _text(group / "memory.limit_in_bytes")).strip()
    return int(text) if text.isdigit() and int(text) < _LIMITLESS else None


def memory_used_bytes(group: Path) -> int | None:
    """Return what ``group`` uses and can't be taken back at once: without file pages."""
    used = (_text(group / "memory.current") or _text(group / "memory.usage_in_bytes")).strip()
    if not used.isdigit():
        return None
    pages = {
        name: int(value)
        for name, _, value in (
            line.partition(" ") for line in _text(group / "memory.stat").splitlines()
        )
        if value.isdigit()
    }
    reclaimable = pages.get("total_inactive_file", pages.get("inactive_file", 0))
    return max(0, int(used) - reclaimable)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
