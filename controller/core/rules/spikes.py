"""Spikes of loss and gradient norm: five times their own level, in more than one iteration.

The level is the median of the newest ``_WINDOW`` new iterations. One iteration above it is a hard
batch. From the second in a row on it is a spike. Values above the limit do not enter the level, so
a spike lasts until the values come down or the task is restarted. A value that is not finite is
above any level.
"""

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

from controller.core.rules.policy import Policy

_WINDOW: Final = 32
_NUM_KNOWN: Final = 8
"""Iterations that make a level. Training begins with the largest losses, which are no alarm."""

SpikeChange = Literal["begins", "ends"]


@dataclass(slots=True)
class Levels:
    """Loss and gradient norm of one task's new iterations."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    num_high: int = 0
    """Iterations in a row that were above their level."""

    def take(self, loss: float | None, norm: float | None, policy: Policy) -> SpikeChange | None:
        """Add a new iteration; return whether a spike begins or ends with it."""
        is_high = _is_high(loss, self.losses, policy) or _is_high(norm, self.norms, policy)
        num_high, self.num_high = self.num_high, self.num_high + 1 if is_high else 0
        if is_high:
            return "begins" if self.num_high == policy.spike_iterations else None
        for value, window in ((loss, self.losses), (norm, self.norms)):
            if value is not None and math.isfinite(value):
                window.append(value)
                del window[:-_WINDOW]
        return "ends" if num_high >= policy.spike_iterations else None

    def describe(self, loss: float | None, norm: float | None) -> str:
        """Return the values beside their levels, in words."""
        figures = (("loss", loss, self.losses), ("gradient norm", norm, self.norms))
        return ", ".join(
            f"{name} {value:.4g}" + (f" (level {median(window):.4g})" if window else "")
            for name, value, window in figures
            if value is not None
        )


def _is_high(value: float | None, window: list[float], policy: Policy) -> bool:
    if value is None or len(window) < _NUM_KNOWN:
        return value is not None and not math.isfinite(value)
    level = median(window)
    return not math.isfinite(value) or (level > 0 and value >= policy.spike_factor * level)
