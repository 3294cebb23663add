"""Whether a rank is slower than its peers, by the duration of its own computing.

Peers are the other ranks of its pipeline stage, which do the same work. Waiting inside its replica
counts as the rank's own time. So with tensor parallelism all ranks of the slow replica are named.

A straggler takes more than ``late_factor`` times as long as its peers. The excess must delay the
whole iteration by as much. It must also exceed the usual spread of these ranks' iterations, which
is small on a dedicated machine and large on a shared one.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.policy import Policy

_NUM_SPREADS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Computing:
    """The duration of a rank's own computing, over its newest iterations, in seconds.

    Attributes:
        median_s: The median.
        spread_s: The median deviation from the median.
        waited_s: The median of the waiting for a core in one iteration; 0 if unknown.
    """

    median_s: float
    spread_s: float
    waited_s: float = 0.0

    @property
    def working_s(self) -> float:
        """The computing without the waiting for a core."""
        return max(0.0, self.median_s - self.waited_s)


class Peers:
    """The computing of the ranks of one pipeline stage.

    It is kept sorted, so that a median over all ranks but one takes no time that grows with the
    number of ranks. Every heartbeat of every node asks for some.
    """

    def __init__(self) -> None:
        self._medians_s: list[float] = []
        self._working_s: list[float] = []
        self._spreads_s: list[float] = []

    def add(self, one: Computing) -> None:
        """A rank computes like this."""
        insort(self._medians_s, one.median_s)
        insort(self._working_s, one.working_s)
        insort(self._spreads_s, one.spread_s)

    def remove(self, one: Computing) -> None:
        """A rank that was added computes like this no more."""
        del self._medians_s[bisect_left(self._medians_s, one.median_s)]
        del self._working_s[bisect_left(self._working_s, one.working_s)]
        del self._spreads_s[bisect_left(self._spreads_s, one.spread_s)]

    def has_others(self) -> bool:
        """Return whether a rank that was added has peers."""
        return len(self._medians_s) > 1

    def median_s(self, without: Computing) -> float:
        """Return the median over the peers of one rank that was added."""
        return _median_without(self._medians_s, without.median_s)

    def working_s(self, without: Computing) -> float:
        """Return the same of their computing without the waiting for a core."""
        return _median_without(self._working_s, without.working_s)

    def spread_s(self, without: Computing) -> float:
        """Return the same of the spread of their iterations."""
        return _median_without(self._spreads_s, without.spread_s)


def _median_without(values: Sequence[float], left_out: float) -> float:
    """Return the median of sorted values, of which there are two at least, but for one of them."""
    num, place = len(values) - 1, bisect_left(values, left_out)
    low, high = (num - 1) // 2, num // 2
    return (values[low + (low >= place)] + values[high + (high >= place)]) / 2


def is_straggler(own: Computing, peers: Peers, average_s: float, policy: Policy) -> bool:
    """Return whether a rank of a stage is slower than its peers. A rank without peers is not.

    ``average_s`` is the average duration of the task's iterations.
    """
    if not peers.has_others():
        return False
    # A rank that waited for a core is not slow: its node is busy with other work. The smaller of
    # both differences counts, so peers that waited make nobody a straggler either.
    peers_s = peers.median_s(own)
    least_s = (policy.late_factor - 1.0) * max(peers_s, average_s)
    if own.median_s - peers_s <= least_s:
        return False  # so it is nearly always, and the other medians take as long
    excess_s = min(own.median_s - peers_s, own.working_s - peers.working_s(own))
    return excess_s > max(least_s, _NUM_SPREADS * max(own.spread_s, peers.spread_s(own)))
