"""Whether a rank is slower than its peers, by the time that its own computing takes.

Peers are the other ranks of its pipeline stage: they do the same work. What a rank waits for inside
its replica is part of its figure, so with tensor parallelism all ranks of the slow replica are named.

A straggler takes more than ``late_factor`` times what its peers take. That must matter: the whole
iteration has to be later by as much because of it. And it must stand out from what iterations of
these ranks differ by anyway, which is little on a machine of one's own and much on a shared one.
"""

from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
from typing import Final

from controller.core.rules.policy import Policy

_NUM_SPREADS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Computing:
    """How long a rank's own computing takes, over its newest iterations, seconds.

    Attributes:
        median_s: The median.
        spread_s: The median difference from that.
    """

    median_s: float
    spread_s: float


def is_straggler(
    own: Computing, peers: Collection[Computing], average_s: float, policy: Policy
) -> bool:
    """Return whether a rank is slower than its peers; one without peers is not.

    ``average_s`` is the average iteration of the task.
    """
    if not peers:
        return False
    peers_s = median_of(peers)
    excess_s = own.median_s - peers_s
    spread_s = max(own.spread_s, median(peer.spread_s for peer in peers))
    return excess_s > max(
        (policy.late_factor - 1.0) * max(peers_s, average_s), _NUM_SPREADS * spread_s
    )


def median_of(ranks: Collection[Computing]) -> float:
    """Return the median over ranks, of which there is at least one."""
    return median(rank.median_s for rank in ranks)
