"""Whether a rank is slower than its peers, by the duration of its own computing.

Peers are the other ranks of its pipeline stage, which do the same work. Waiting inside its replica
counts as the rank's own time. So with tensor parallelism all ranks of the slow replica are named.

A straggler takes more than ``late_factor`` times as long as its peers. The excess must delay the
whole iteration by as much. It must also exceed the usual spread of these ranks' iterations, which
is small on a dedicated machine and large on a shared one.
"""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
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


def is_straggler(
    own: Computing, peers: Collection[Computing], average_s: float, policy: Policy
) -> bool:
    """Return whether a rank is slower than its peers. A rank without peers is not.

    ``average_s`` is the average duration of the task's iterations.
    """
    if not peers:
        return False
    peers_s = median_of(peers)
    # A rank that waited for a core is not slow: its node is busy with other work. The smaller of
    # both differences counts, so peers that waited make nobody a straggler either.
    excess_s = min(own.median_s - peers_s, own.working_s - median(peer.working_s for peer in peers))
    spread_s = max(own.spread_s, median(peer.spread_s for peer in peers))
    return excess_s > max(
        (policy.late_factor - 1.0) * max(peers_s, average_s), _NUM_SPREADS * spread_s
    )


def median_of(ranks: Collection[Computing]) -> float:
    """Return the median over at least one rank."""
    return median(rank.median_s for rank in ranks)
