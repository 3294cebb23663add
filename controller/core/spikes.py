"""Loss and gradient norm against their own level: a spike is five times as much, and stays.

The level is the median of the newest ``_WINDOW`` new iterations. One iteration above it is a hard
batch; from the second in a row on it is a spike. What is above is not taken into the level, so a
spike lasts until the figures come down, or the task does something else.
"""

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Literal

from controller.core.policy import Policy

_WINDOW: Final = 32
_NUM_KNOWN: Final = 8
"""Iterations that make a level. Training begins with the largest losses, which alarm nobody."""

SpikeChange = Literal["begins", "ends"]


@dataclass(slots=True)
class Levels:
    """The figures of one task's new iterations."""

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    num_high: int = 0
    """Iterations in a row that were above their level."""

    def take(self, loss: float, norm: float, policy: Policy) -> SpikeChange | None:
        """Take in a new iteration; return whether a spike begins or ends with it."""
        is_high = _is_high(loss, self.losses, policy) or _is_high(norm, self.norms, policy)
        num_high, self.num_high = self.num_high, self.num_high + 1 if is_high else 0
        if is_high:
            return "begins" if self.num_high == policy.spike_iterations else None
        for value, window in ((loss, self.losses), (norm, self.norms)):
            window.append(value)
            del window[:-_WINDOW]
        return "ends" if num_high >= policy.spike_iterations else None

    def describe(self, loss: float, norm: float) -> str:
        """Return the figures beside their levels, in words."""
        return (
            f"loss {loss:.4g} (level {median(self.losses):.4g}),"
            f" gradient norm {norm:.4g} (level {median(self.norms):.4g})"
        )


def _is_high(value: float, window: list[float], policy: Policy) -> bool:
    if len(window) < _NUM_KNOWN:
        return False
    level = median(window)
    return level > 0 and (math.isnan(value) or value >= policy.spike_factor * level)
