"""Makes the kernel kill a process for memory, if this user may make a memory cgroup.

The process is moved into a new cgroup with a very low limit. Its present memory stays charged to
the old cgroup, so the kernel kills it when it touches new pages. A process that touches none in
time is moved back.
"""

import asyncio
from pathlib import Path
from typing import Final

_LIMIT_BYTES: Final = 65536
_PATIENCE_S: Final = 3.0
_REAP_LIMIT_S: Final = 2.0
_POLL_S: Final = 0.01
_V1: Final = Path("/sys/fs/cgroup/memory")
_V2: Final = Path("/sys/fs/cgroup")


async def kill_for_memory(pid: int) -> bool:
    """Make the kernel kill ``pid`` for memory; return whether it did."""
    root, limit = (_V1, "memory.limit_in_bytes") if _V1.is_dir() else (_V2, "memory.max")
    group = root / f"unicron-drill-{pid}"
    try:
        home = root / _group_of(pid) / "cgroup.procs"
        group.mkdir()
    except OSError:
        return False
    try:
        (group / limit).write_text(str(_LIMIT_BYTES))
        (group / "cgroup.procs").write_text(str(pid))
        if await _has_ended(pid):
            return True
        home.write_text(str(pid))
    except OSError:
        return _is_gone(pid)
    finally:
        await _remove(group)
    return False


def _group_of(pid: int) -> str:
    """Return the memory cgroup of ``pid``, relative to the root of the hierarchy."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    return groups.get("memory", groups.get("", "/")).lstrip("/")


async def _has_ended(pid: int) -> bool:
    for _ in range(int(_PATIENCE_S / _POLL_S)):
        await asyncio.sleep(_POLL_S)
        if _is_gone(pid):
            return True
    return False


async def _remove(group: Path) -> None:
    """Remove the cgroup, once its ended process has been reaped."""
    for _ in range(int(_REAP_LIMIT_S / _POLL_S)):
        if _is_removed(group):
            return
        await asyncio.sleep(_POLL_S)


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return not group.exists()
    return True


def _is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in {"Z", "X"}
