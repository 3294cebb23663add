"""What the cluster's WAF was while this console looked, in steps of some seconds."""

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


def followed_trend(trend: Trend, view: ClusterView) -> Trend:
    """Return the trend with what a view shows. Views of the past change nothing."""
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
