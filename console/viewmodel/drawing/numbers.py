"""Numbers as operators read them: ages, rates, shares and times of day."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("", "k", "M", "G", "T", "P", "E")


def seconds(value: float) -> str:
    """Return a duration in at most six cells: ``0.4 s``, ``12 s``, ``3m05s``, ``2h07m``."""
    value = max(0.0, value)
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 100:
        return f"{whole} s"
    if whole < 6_000:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole // 60 % 60:02d}m"


def latency(value: float) -> str:
    """Return a duration that may be short, in milliseconds below one second."""
    return f"{max(0.0, value) * 1000:.0f} ms" if value < 0.9995 else seconds(value)


def short(value: float) -> str:
    """Return a quantity in at most four figures and a unit: ``812``, ``1.24k``, ``38.2M``."""
    step = 0
    while abs(value) >= 999.5 and step < len(_UNITS) - 1:
        value /= 1000
        step += 1
    if step == 0:
        return f"{value:.0f}"
    return f"{value:.2f}{_UNITS[step]}" if abs(value) < 10 else f"{value:.1f}{_UNITS[step]}"


def mebibytes(value: int) -> str:
    """Return a memory size in MiB or GiB."""
    size = value / 2**20
    return f"{size:.0f} MiB" if size < 1000 else f"{size / 1024:.1f} GiB"


def share(part: float, whole: float, nothing: str) -> str:
    """Return ``part`` of ``whole`` in per cent, or ``nothing`` where there is no whole."""
    return f"{100 * part / whole:.0f}%" if whole > 0 else nothing


def gpu_minutes(value: float) -> str:
    """Return an amount of GPU time: ``3.2 GPU-minutes``."""
    if value < 0.05:
        return "under 0.1 GPU-minutes"
    return f"{value:.1f} GPU-minutes" if value < 99.95 else f"{short(value)} GPU-minutes"


def clock(wall_s: float) -> str:
    """Return the time of day in UTC, ``14:02:11``, of seconds since the epoch."""
    day = int(wall_s) % 86_400
    return f"{day // 3600:02d}:{day // 60 % 60:02d}:{day % 60:02d}"


def date(wall_s: float) -> str:
    """Return the day in UTC, ``2026-11-28``, of seconds since the epoch."""
    return datetime.fromtimestamp(wall_s, tz=UTC).strftime("%Y-%m-%d")


def weight(value: float) -> str:
    """Return a task's weight without needless zeros."""
    return f"{value:g}"


def plural(count: int, noun: str) -> str:
    """Return ``1 node`` or ``3 nodes``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def sparkline(values: Mapping[int, float], width: int, levels: str) -> str:
    """Return values in the order of their keys as bars between their own least and greatest.

    If there are more values than ``width``, groups of equal size are averaged: the line shows the
    trend, not noise. A value that is not finite is shown as a gap.
    """
    series = [values[key] for key in sorted(values)]
    bars = min(width, len(series))
    means = [
        _mean(series[index * len(series) // bars : (index + 1) * len(series) // bars])
        for index in range(bars)
    ]
    finite = [mean for mean in means if abs(mean) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    return "".join(_bar(mean, low, high, levels) for mean in means)


def _mean(group: list[float]) -> float:
    return sum(value / len(group) for value in group)


def _bar(value: float, low: float, high: float, levels: str) -> str:
    if not abs(value) < float("inf"):
        return " "
    if high <= low:
        return levels[0]
    # Halved first: the difference of two huge losses may not be representable.
    position = (value / 2 - low / 2) / (high / 2 - low / 2)
    return levels[min(len(levels) - 1, int(position * len(levels)))]
