"""How old a report is when it comes. The node's wall clock may be minutes off the controller's."""

from collections import deque
from typing import Final

_NUM_AGES: Final = 10
_STEP_S: Final = 5.0


class ReportAge:
    """Finds the age of a node's reports, from what its heartbeats show of its clock.

    The *age* of a heartbeat is its travel time less what the node's clock is ahead. The smallest of
    the newest ages has the least travel time, and counts for reports too.
    """

    def __init__(self) -> None:
        self._ages_s: deque[float] = deque(maxlen=_NUM_AGES)

    def take_heartbeat(self, sent_wall_s: float, received_wall_s: float) -> None:
        """Take in when a heartbeat was sent by the node's clock, and received by the own one."""
        age_s = received_wall_s - sent_wall_s
        if self._ages_s and age_s < min(self._ages_s) - _STEP_S:
            self._ages_s.clear()
        elif self._ages_s and age_s > max(self._ages_s) + _STEP_S:
            self._ages_s.clear()  # the node's clock was set back, or this machine stood still
        self._ages_s.append(age_s)

    def age_s(self, sent_wall_s: float, received_wall_s: float) -> float:
        """Return how long ago a report was made; 0 or more.

        Before the first heartbeat both clocks count as equal.
        """
        return max(0.0, received_wall_s - sent_wall_s - min(self._ages_s, default=0.0))
