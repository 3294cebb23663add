"""When a network link changes its state, and when training traffic stops.

A change between two looks is seen by its count, so a flap of milliseconds is not missed. A link
that carried traffic while ranks ran, and carries next to none for ``NUM_SILENT`` looks though the
same ranks run, has no traffic.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.protocol.findings import NodeFinding

MIN_TRAFFIC_BYTES_PER_S: Final = 1e6
"""A link counts as carrying training above this; clocks, logs and heartbeats stay below."""
SILENT_SHARE: Final = 0.001
NUM_SILENT: Final = 2


@dataclass(frozen=True, slots=True)
class LinkReading:
    """One network link: an Ethernet interface or a port of an InfiniBand device.

    Attributes:
        name: ``eth0``, or ``mlx5_0/1``.
        is_up: Whether it has a carrier, or is active.
        num_changes: How often that changed since the link was made, or how often it went down; None
            if nobody counts.
        num_bytes: Bytes that it has received and sent.
        state: In the kernel's words.
    """

    name: str
    is_up: bool
    num_changes: int | None
    num_bytes: int
    state: str = ""


@dataclass(slots=True)
class _Traffic:
    """How much a link carried while the ranks of now were running."""

    ranks: frozenset[int]
    highest_bytes_per_s: float = 0.0


class NetworkDetector:
    """Takes readings of all links of the node."""

    def __init__(self) -> None:
        self._links: dict[str, LinkReading] = {}
        self._traffic: dict[str, _Traffic] = {}
        self._silence = LastingConditions(num_to_begin=NUM_SILENT)
        self._taken_at_s = 0.0

    def take(
        self, readings: Iterable[LinkReading], rank_pids: frozenset[int], now_s: float
    ) -> list[NodeFinding]:
        """Return the changes since the last call.

        Args:
            readings: All links, each once. What is there at the first call is the normal state.
            rank_pids: The ranks that run on this node.
            now_s: Seconds of a monotonic clock.
        """
        links = {reading.name: reading for reading in readings}
        old, self._links = self._links, links
        span_s, self._taken_at_s = now_s - self._taken_at_s, now_s
        found = [
            finding
            for name, before in old.items()
            if (finding := _change(before, links.get(name))) is not None
        ]
        return found + self._silence.update(self._silent(old, links, rank_pids, span_s))

    def _silent(
        self,
        old: Mapping[str, LinkReading],
        new: Mapping[str, LinkReading],
        rank_pids: frozenset[int],
        span_s: float,
    ) -> list[NodeFinding]:
        self._traffic = {name: one for name, one in self._traffic.items() if name in new}
        found = []
        for name in new.keys() & old.keys():
            traffic = self._traffic.get(name)
            if traffic is None or traffic.ranks != rank_pids:
                # What other ranks carried is no measure; these have yet to show theirs.
                self._traffic[name] = _Traffic(rank_pids)
                continue
            bytes_per_s = (new[name].num_bytes - old[name].num_bytes) / span_s
            traffic.highest_bytes_per_s = max(traffic.highest_bytes_per_s, bytes_per_s)
            usual = traffic.highest_bytes_per_s
            is_used = bool(rank_pids) and usual >= MIN_TRAFFIC_BYTES_PER_S
            if is_used and bytes_per_s < SILENT_SHARE * usual:
                found.append(_no_traffic(name, bytes_per_s, usual))
        return found


def _change(before: LinkReading, now: LinkReading | None) -> NodeFinding | None:
    if now is None:
        return _changed(before.name, f"{before.name}: the device is gone", 1, is_over=False)
    num_changes = (now.num_changes or 0) - (before.num_changes or 0)
    if num_changes <= 0 and now.is_up == before.is_up:
        return None
    num_changes = max(num_changes, 1)
    state = "up" if now.is_up else "down"
    times = "once" if num_changes == 1 else f"{num_changes} times"
    text = f"{now.name}: the link changed {times}, it is {state} now"
    finding = _changed(now.name, text, num_changes, is_over=now.is_up and not before.is_up)
    # Up before and after: it was down in between, and is not any more.
    return finding.model_copy(update={"is_event": now.is_up and before.is_up})


def _changed(name: str, text: str, num_changes: int, *, is_over: bool) -> NodeFinding:
    return NodeFinding(
        probe="network",
        sign="link_changed",
        subject=name,
        text=text,
        value=num_changes,
        is_over=is_over,
    )


def _no_traffic(name: str, bytes_per_s: float, usual: float) -> NodeFinding:
    return NodeFinding(
        probe="network",
        sign="no_traffic",
        subject=name,
        text=f"{name}: {bytes_per_s:.0f} B/s, it has carried {usual / 1e6:.1f} MB/s for these ranks",
        value=bytes_per_s,
        limit=SILENT_SHARE * usual,
    )
