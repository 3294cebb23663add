"""Virtual time: things to do in their order, and nothing sleeps."""

import heapq
import itertools
from collections.abc import Callable

Action = Callable[[], None]


class VirtualClock:
    """Seconds since the beginning. What is due at one moment is done in the order it was asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Action]] = []

    def at(self, at_s: float, action: Action) -> None:
        """Do ``action`` at a time; one that has passed is now."""
        heapq.heappush(self._queue, (max(at_s, self.now_s), next(self._order), action))

    def after(self, delay_s: float, action: Action) -> None:
        """Do ``action`` after some seconds."""
        self.at(self.now_s + delay_s, action)

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._queue)
            action()
        self.now_s = until_s
