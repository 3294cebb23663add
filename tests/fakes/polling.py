"""Waiting for a condition with a limit, for tests of real processes."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

PolledT = TypeVar("PolledT")
_MIN_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 0.3
_PAUSES_PER_CALL: Final = 3
"""A condition may take at most a fourth of a core from the processes that it waits for."""


def wait_until(condition: Callable[[], PolledT | None], *, limit_s: float) -> PolledT:
    """Call ``condition`` until it returns a true value, and return that value.

    A caller uses the returned value: the next call may answer otherwise, or too late. Fails after
    ``limit_s`` seconds.
    """
    began = now = time.monotonic()  # noqa: TID251 - real processes take real time
    while not (found := condition()):
        called, now = now, time.monotonic()  # noqa: TID251 - the same
        assert now < began + limit_s, f"not within {limit_s} s"
        time.sleep(min(max(_PAUSES_PER_CALL * (now - called), _MIN_PAUSE_S), _MAX_PAUSE_S))
        now = time.monotonic()  # noqa: TID251 - the same
    return found
