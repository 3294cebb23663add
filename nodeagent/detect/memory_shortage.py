"""When a node is short of memory, before the kernel kills somebody for it.

Three signs: little memory is available, processes stand still waiting for memory (the kernel's
pressure-stall information), or a control group is at its limit. Two looks in a row must find it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.protocol.findings import NodeFinding

MIN_AVAILABLE_SHARE: Final = 0.03
MIN_AVAILABLE_BYTES: Final = 4 * 2**30
MAX_STALLED_PERCENT: Final = 20.0
MAX_GROUP_SHARE: Final = 0.97


@dataclass(frozen=True, slots=True)
class GroupReading:
    """Memory of one control group that has a limit.

    Attributes:
        name: Its directory.
        used_bytes: What can't be taken back at once.
        limit_bytes: The most it may use.
    """

    name: str
    used_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Memory of the node.

    Attributes:
        total_bytes: All of it; 0 if that can't be read.
        available_bytes: What could be used without swapping.
        stalled_percent: Share of the last ten seconds in which every process that could run waited
            for memory; None if the kernel does not say.
        groups: Control groups with a limit.
    """

    total_bytes: int
    available_bytes: int
    stalled_percent: float | None = None
    groups: tuple[GroupReading, ...] = ()


class MemoryDetector:
    """Takes one reading after another."""

    def __init__(self) -> None:
        self._standing = LastingConditions(num_to_begin=2, num_to_end=3)

    def take(self, reading: MemoryReading) -> list[NodeFinding]:
        """Return the pressure that has begun, and that which is over."""
        return self._standing.update(_judge(reading))


def _judge(reading: MemoryReading) -> Iterator[NodeFinding]:
    limit = min(MIN_AVAILABLE_BYTES, MIN_AVAILABLE_SHARE * reading.total_bytes)
    if reading.total_bytes and reading.available_bytes < limit:
        text = (
            f"{_mebibytes(reading.available_bytes)} of {_mebibytes(reading.total_bytes)} available"
        )
        yield _pressure("node", text, reading.available_bytes, limit)
    elif reading.stalled_percent is not None and reading.stalled_percent >= MAX_STALLED_PERCENT:
        text = f"all processes wait for memory {reading.stalled_percent:.0f} % of the time"
        yield _pressure("node", text, reading.stalled_percent, MAX_STALLED_PERCENT)
    for group in reading.groups:
        most = MAX_GROUP_SHARE * group.limit_bytes
        if group.used_bytes >= most:
            text = (
                f"control group {group.name}: {_mebibytes(group.used_bytes)} of"
                f" {_mebibytes(group.limit_bytes)} in use"
            )
            yield _pressure(group.name, text, group.used_bytes, most)


def _pressure(subject: str, text: str, value: float, limit: float) -> NodeFinding:
    return NodeFinding(
        probe="memory",
        sign="memory_pressure",
        subject=subject,
        text=text,
        value=value,
        limit=limit,
    )


def _mebibytes(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:.0f} MiB"
