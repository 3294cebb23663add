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
    """The system's clock, counted from the moment of construction, or from an earlier one."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()  # noqa: TID251 - this is the Clock
        self.started_wall_s = self.wall_s()

    def go_on(self, started_wall_s: float, newest: float) -> None:
        """Count on from where another clock began, which has shown ``newest`` already.

        Both processes' wall clocks may differ; the time that is shown never decreases all the same.
        """
        earlier_s = max(self.started_wall_s - started_wall_s, newest - self.now())
        if earlier_s > 0:
            self._start_s -= earlier_s
        self.started_wall_s = started_wall_s

    def now(self) -> float:
        """Return seconds since the start."""
        return time.monotonic() - self._start_s  # noqa: TID251 - this is the Clock

    def wall_s(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        return time.time()  # noqa: TID251 - this is the Clock
