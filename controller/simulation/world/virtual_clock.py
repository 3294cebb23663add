"""Virtual time: runs scheduled actions in order, without sleeping."""

import heapq
import itertools
from collections.abc import Callable
from typing import Final

Callback = Callable[[], None]
_NUM_REPORTS: Final = 200


class VirtualClock:
    """Seconds since the start. Actions due at the same time run in the order of their calls."""

    def __init__(self, on_progress: Callable[[float], None] = lambda _done: None) -> None:
        """Create the clock; ``on_progress`` gets the fraction of the run that is done."""
        self.now_s = 0.0
        self._on_progress = on_progress
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Callback]] = []

    def at(self, at_s: float, action: Callback) -> None:
        """Run ``action`` at ``at_s``, or now if that time has passed."""
        heapq.heappush(self._queue, (max(at_s, self.now_s), next(self._order), action))

    def after(self, delay_s: float, action: Callback) -> None:
        """Run ``action`` after ``delay_s`` seconds."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Run all actions that are due until ``until_s``."""
        reported_s, step_s = 0.0, until_s / _NUM_REPORTS
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._queue)
            action()
            if self.now_s >= reported_s + step_s:
                reported_s = self.now_s
                self._on_progress(self.now_s / until_s)
        self.now_s = until_s
