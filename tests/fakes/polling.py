"""Waiting for a condition with a limit, for tests of real processes."""

import time
from collections.abc import Callable
from typing import TypeVar

PolledT = TypeVar("PolledT")


def wait_until(condition: Callable[[], PolledT | None], *, limit_s: float) -> PolledT:
    """Call ``condition`` until it returns a true value, and return that value.

    A caller uses the returned value: the next call may answer otherwise, or too late. Fails after
    ``limit_s`` seconds.
    """
    deadline = time.monotonic() + limit_s  # noqa: TID251 - real processes take real time
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {limit_s} s"  # noqa: TID251 - the same
        time.sleep(0.02)
    return found
