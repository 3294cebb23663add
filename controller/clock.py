"""The clock of the process: the only module of the controller that reads the system's time."""

import time
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """Time as the runtime sees it. Tests pass their own."""

    def now(self) -> float:
        """Return seconds since the start of the run; never decreases."""
        ...

    def wall_s(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        ...


class SystemClock(Clock):
    """The system's clock, counted from its construction or from the start of an earlier clock."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()  # noqa: TID251 - this is the Clock
        self.started_wall_s = self.wall_s()

    def continue_from(self, started_wall_s: float, newest: float) -> None:
        """Count from the start of an earlier controller's clock, which has shown ``newest`` before.

        The wall clocks of the two processes may differ. The time never decreases all the same.
        """
        earlier_s = max(self.started_wall_s - started_wall_s, newest - self.now())
        if earlier_s > 0:
            self._start_s -= earlier_s
        self.started_wall_s = started_wall_s

    @override
    def now(self) -> float:
        return time.monotonic() - self._start_s  # noqa: TID251 - this is the Clock

    @override
    def wall_s(self) -> float:
        return time.time()  # noqa: TID251 - this is the Clock
