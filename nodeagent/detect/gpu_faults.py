"""What readings of a node's GPUs mean. Tested with made-up readings: no GPU was broken.

Counts are compared with the first reading, so that what happened before the agent started is not
reported; a row remap that is pending or has failed is a state, and reported whenever it is found,
and so is an NVLink that was active. Heat and throttling must be found in ``NUM_HOT_LOOKS`` looks in
a row: a short peak is normal. A value that a look does not give is taken to be what it was: silence
is no cure.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from nodeagent.detect.lasting_conditions import LastingConditions
from nodeagent.protocol.findings import FindingSign, NodeFinding

NUM_HOT_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU. A value that the GPU does not offer, or not now, is None.

    Attributes:
        index: Its number on the node.
        bus: Its PCI address.
        is_lost: The driver says that it is lost.
        num_uncorrectable: Uncorrectable memory errors since the driver was loaded.
        is_remap_pending: A faulty memory row is replaced at the next reset.
        is_remap_failed: A faulty memory row could not be replaced.
        is_link_active: NVLinks by number.
        num_link_errors: Replays and recoveries of all NVLinks.
        temperature_c: Now.
        slowdown_c: Temperature at which the hardware slows down.
        throttled_by: Why the clock is held down, as far as it is no normal reason; none: it is not.
    """

    index: int
    bus: str
    is_lost: bool = False
    num_uncorrectable: int | None = None
    is_remap_pending: bool | None = None
    is_remap_failed: bool | None = None
    is_link_active: Mapping[int, bool] = field(default_factory=dict)
    num_link_errors: int | None = None
    temperature_c: int | None = None
    slowdown_c: int | None = None
    throttled_by: tuple[str, ...] | None = None

    @property
    def subject(self) -> str:
        """How findings call it."""
        return f"GPU {self.index}"


class GpuDetector:
    """Takes readings of all GPUs of the node."""

    def __init__(self) -> None:
        self._last: dict[str, GpuReading] = {}
        self._subjects: set[str] = set()
        self._links: dict[str, set[int]] = {}
        self._states = LastingConditions()
        self._heat = LastingConditions(num_to_begin=NUM_HOT_LOOKS, num_to_end=NUM_HOT_LOOKS)

    def take(self, readings: Sequence[GpuReading]) -> list[NodeFinding]:
        """Return what has changed since the last call."""
        lost = [reading for reading in readings if reading.is_lost]
        alive = [
            _completed(reading, self._last.get(reading.bus, reading))
            for reading in readings
            if not reading.is_lost
        ]
        events = [
            finding for now in alive for finding in _events(self._last.get(now.bus, now), now)
        ]
        states = [_finding(one, "gpu_lost", "the driver says that it is lost") for one in lost]
        for now in alive:
            self._last[now.bus] = now
            states += [*_remaps(now), *self._broken_links(now)]
        heat = [finding for now in alive for finding in _heat(now)]
        missing = self._subjects - {reading.subject for reading in readings}
        self._subjects |= {reading.subject for reading in readings}
        states += _not_listed(missing)
        unread = missing | {reading.subject for reading in lost}
        return events + self._states.update(states, unread) + self._heat.update(heat, unread)

    def _broken_links(self, now: GpuReading) -> Iterator[NodeFinding]:
        was_active = self._links.setdefault(now.bus, set())
        was_active |= {link for link, is_active in now.is_link_active.items() if is_active}
        broken = [link for link in sorted(was_active) if not now.is_link_active.get(link, True)]
        if broken:
            links = ", ".join(map(str, broken))
            text = f"NVLink {links} was active and is not"
            yield _finding(now, "gpu_nvlink", text, len(broken))


def _completed(now: GpuReading, before: GpuReading) -> GpuReading:
    """Return ``now`` with what only ``before`` says."""
    known = {
        each.name: getattr(before, each.name)
        for each in fields(now)
        if getattr(now, each.name) is None
    }
    if before.is_link_active.keys() - now.is_link_active.keys():
        known["num_link_errors"] = before.num_link_errors  # the sum over fewer links is another
    links = {**before.is_link_active, **now.is_link_active}
    return replace(now, **known, is_link_active=links)


def _events(before: GpuReading, now: GpuReading) -> Iterator[NodeFinding]:
    """Yield what happened between two readings."""
    if (num_new := _rise(before.num_uncorrectable, now.num_uncorrectable)) > 0:
        text = f"{num_new} new uncorrectable memory errors, {now.num_uncorrectable} in all"
        yield _event(_finding(now, "gpu_ecc", text, num_new))
    if (num_new := _rise(before.num_link_errors, now.num_link_errors)) > 0:
        text = f"{num_new} new replays and recoveries of NVLinks"
        yield _event(_finding(now, "gpu_link_errors", text, num_new))


def _remaps(now: GpuReading) -> Iterator[NodeFinding]:
    if now.is_remap_failed:
        yield _finding(now, "gpu_row_remap", "a faulty memory row could not be replaced")
    elif now.is_remap_pending:
        yield _finding(now, "gpu_row_remap", "a faulty memory row is replaced at the next reset")


def _heat(now: GpuReading) -> Iterator[NodeFinding]:
    if now.temperature_c is not None and now.slowdown_c and now.temperature_c >= now.slowdown_c:
        text = f"{now.temperature_c} C, it slows down at {now.slowdown_c} C"
        yield _finding(now, "gpu_hot", text, now.temperature_c, now.slowdown_c)
    if now.throttled_by:
        text = f"the clock is held down: {', '.join(now.throttled_by)}"
        yield _finding(now, "gpu_throttled", text)


def _finding(
    reading: GpuReading,
    sign: FindingSign,
    text: str,
    value: float | None = None,
    limit: float | None = None,
) -> NodeFinding:
    return NodeFinding(
        probe="gpu",
        sign=sign,
        subject=reading.subject,
        text=f"{reading.subject} ({reading.bus}): {text}",
        value=value,
        limit=limit,
    )


def _not_listed(subjects: Collection[str]) -> list[NodeFinding]:
    """Return the finding that NVML no longer lists these GPUs, if there are any."""
    if not subjects:
        return []
    text = f"NVML no longer lists {', '.join(sorted(subjects))}"
    return [NodeFinding(probe="gpu", sign="unreadable", subject="NVML", text=text)]


def _event(finding: NodeFinding) -> NodeFinding:
    return finding.model_copy(update={"is_event": True})


def _rise(before: int | None, now: int | None) -> int:
    return 0 if before is None or now is None else now - before
