"""Periodic work of the agent, all at the same moments.

Waking up costs more than most of what is then done: the caches are cold, and a rank gives up its
core. So everything that looks again and again does so at multiples of its period on one clock, and
the agent wakes up once for all that is due.
"""

import asyncio
from typing import Final

_TOO_SOON: Final = 0.1
"""A moment that is nearer than this part of the period is the one that has just been slept for."""


async def next_beat(period_s: float) -> None:
    """Sleep until the next multiple of ``period_s`` seconds.

    Until the one after, if that is at hand.
    """
    await asyncio.sleep(until_beat(asyncio.get_running_loop().time(), period_s))


def until_beat(now_s: float, period_s: float) -> float:
    """Return the seconds from ``now_s`` to the moment that ``next_beat`` sleeps for."""
    left_s = period_s - now_s % period_s
    return left_s if left_s > _TOO_SOON * period_s else left_s + period_s
