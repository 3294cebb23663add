"""The clock of the process, the only place of the controller that reads the system's time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the runtime sees it; tests pass their own."""

    def now(self) -> float:
        """Return seconds since the controller's start; never decreases."""
        ...

    def wall_s(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        ...


class SystemClock:
    """The system's clock, counted from the moment of construction."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()  # noqa: TID251 - this is the Clock
        self.started_wall_s = self.wall_s()

    def now(self) -> float:
        """Return seconds since construction."""
        return time.monotonic() - self._start_s  # noqa: TID251 - this is the Clock

    def wall_s(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        return time.time()  # noqa: TID251 - this is the Clock
