"""What the cluster's WAF was, in steps of some seconds: while this console looked, or before."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.api.views import ClusterView

STEP_S: Final = 5.0
KEPT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class WafStep:
    """The lowest and the newest WAF of a step, as shares of the full cluster.

    ``at`` is when the step began, seconds since the start of the run.
    """

    at: float
    low: float
    last: float


Trend = tuple[WafStep, ...]


def past_trend(wafs: Sequence[tuple[float, float]], now: float) -> Trend:
    """Return the trend until an instant of a playback.

    Args:
        wafs: Times at which the WAF changed, in order, and its share from then on.
        now: The instant.
    """
    place = bisect_right(wafs, (now, math.inf))
    if place == 0:
        return ()
    steps, at = list[WafStep](), now // STEP_S * STEP_S
    while place > 0 and at > now - KEPT_S and at + STEP_S > wafs[0][0]:
        low = last = wafs[place - 1][1]
        while place > 0 and wafs[place - 1][0] >= at:
            low, place = min(low, wafs[place - 1][1]), place - 1
        if place > 0:
            low = min(low, wafs[place - 1][1])
        steps.append(WafStep(at, low, last))
        at -= STEP_S
    return tuple(reversed(steps))


def followed_trend(trend: Trend, view: ClusterView) -> Trend:
    """Return the trend with what a view shows. Older views change nothing."""
    if view.waf_full <= 0.0:
        return trend
    share = max(0.0, view.waf / view.waf_full)
    at = view.now // STEP_S * STEP_S
    if trend and at < trend[-1].at:
        return trend
    if trend and at == trend[-1].at:
        newest = replace(trend[-1], low=min(trend[-1].low, share), last=share)
        return (*trend[:-1], newest)
    kept = tuple(step for step in trend if step.at > at - KEPT_S)
    return (*kept, WafStep(at, share, share))
