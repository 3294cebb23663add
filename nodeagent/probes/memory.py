"""Memory of the node and of the control groups that its ranks are in."""

from collections.abc import Iterable
from pathlib import Path

from nodeagent.detect.memory_shortage import GroupReading, MemoryReading
from nodeagent.probes.control_groups import (
    CGROUP,
    PROC,
    memory_group,
    memory_limit_bytes,
    memory_used_bytes,
)


def read_memory(pids: Iterable[int], proc: Path = PROC, cgroup: Path = CGROUP) -> MemoryReading:
    """Return the node's memory, and that of the groups of ``pids``, as far as it can be read."""
    amounts = _amounts(proc / "meminfo")
    groups = {memory_group(pid, proc, cgroup) for pid in pids}
    return MemoryReading(
        total_bytes=amounts.get("MemTotal", 0),
        available_bytes=amounts.get("MemAvailable", 0),
        stalled_percent=_stalled_percent(proc / "pressure" / "memory"),
        groups=tuple(
            reading
            for group in sorted(group for group in groups if group is not None)
            if (reading := _group(group)) is not None
        ),
    )


def _amounts(path: Path) -> dict[str, int]:
    """Return the lines ``Name:  123 kB`` of a file in bytes."""
    amounts = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            amounts[name] = int(number[0]) * 1024
    return amounts


def _stalled_percent(path: Path) -> float | None:
    for line in _text(path).splitlines():
        kind, *fields = line.split()
        values = dict(field.split("=", 1) for field in fields if "=" in field)
        if kind == "full" and "avg10" in values:
            return float(values["avg10"])
    return None


def _group(group: Path) -> GroupReading | None:
    limit, used = memory_limit_bytes(group), memory_used_bytes(group)
    if limit is None or used is None:
        return None
    return GroupReading(str(group), used, limit)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
