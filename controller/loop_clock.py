"""How long the event loop has run, without the time in which it stood still.

A process that is stopped, or whose machine sleeps, reads nothing. Nodes are not to blame for what
it did not read. So limits on other processes count the time in which this one was awake.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from controller.clock import Clock

_LOG: Final = logging.getLogger(__name__)
_TICK_S: Final = 0.1
_LONGEST_S: Final = 2 * _TICK_S
"""Of the time between two ticks no more is counted. Less is the usual delay of a busy loop."""
_TOLD_S: Final = 1.0
"""A pause of this length is announced."""
_NUM_ROUNDS: Final = 3
"""A round to read the sockets, one to decrypt, one for the task that waits for the message."""


class LoopClock(Clock):
    """The clock of the run, and the seconds in which the loop was awake, counted by ``run``.

    Args:
        clock: The clock of the run.
        on_pause: Called with the length in seconds of a pause that operators should know.
    """

    def __init__(
        self, clock: Clock, on_pause: Callable[[float], None] = lambda _seconds: None
    ) -> None:
        self._clock = clock
        self._on_pause = on_pause
        self._counted_s = 0.0
        self._ticked_at: float | None = None

    @override
    def now(self) -> float:
        return self._clock.now()

    @override
    def wall_s(self) -> float:
        return self._clock.wall_s()

    async def run(self) -> None:
        """Count until cancelled."""
        while True:
            now = asyncio.get_running_loop().time()
            if self._ticked_at is not None:
                gap_s = now - self._ticked_at
                self._counted_s += min(gap_s, _LONGEST_S)
                if gap_s - _TICK_S > _TOLD_S:
                    _LOG.warning("the event loop stood still: duration_s=%.3f", gap_s - _TICK_S)
                    self._on_pause(gap_s - _TICK_S)
            self._ticked_at = now
            await asyncio.sleep(_TICK_S)

    def awake_s(self) -> float:
        """Return for how many seconds the loop has run, since ``run`` began."""
        if self._ticked_at is None:
            return 0.0
        since_s = asyncio.get_running_loop().time() - self._ticked_at
        return self._counted_s + min(since_s, _LONGEST_S)

    async def catch_up(self) -> None:
        """Let the loop read what the sockets hold already."""
        for _ in range(_NUM_ROUNDS):
            await asyncio.sleep(0)
