"""Waiting for a condition with a limit, for tests of real processes."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, limit_s: float) -> None:
    """Return once ``condition`` holds; fail after ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s  # noqa: TID251 - real processes take real time
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s"  # noqa: TID251 - the same
        time.sleep(0.02)
