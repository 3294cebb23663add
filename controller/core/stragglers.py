"""Which ranks of a task are slower than their peers, by the time that their own computing takes.

Peers are the ranks of one pipeline stage: they do the same work. What a rank waits for inside its
replica is part of its figure, so with tensor parallelism all ranks of the slow replica are named.
"""

from collections.abc import Iterable, Mapping
from statistics import median

from controller.core.policy import Policy
from profiles.layout import Layout


def find_stragglers(
    busy_s: Mapping[int, float], layout: Layout, average_s: float, policy: Policy
) -> tuple[int, ...]:
    """Return the ranks that take more than ``late_factor`` times what their peers take.

    It must matter too: the whole iteration has to be later by as much because of them.

    Args:
        busy_s: By global rank, seconds of its own computing, the median over some iterations.
        layout: Of their generation.
        average_s: The average iteration.
        policy: Says how much is late.
    """
    margin_s = (policy.late_factor - 1.0) * average_s
    found = []
    for number, own_s in sorted(busy_s.items()):
        peers_s = median_of_peers(number, busy_s, layout)
        if peers_s is not None and own_s > policy.late_factor * peers_s:
            found += [number] if own_s - peers_s > margin_s else []
    return tuple(found)


def median_of_peers(number: int, busy_s: Mapping[int, float], layout: Layout) -> float | None:
    """Return the median over the other ranks of the stage; None where there is no other."""
    stage = layout.pp_rank(number)
    peers: Iterable[float] = [
        seconds
        for other, seconds in busy_s.items()
        if other != number and layout.pp_rank(other) == stage
    ]
    return median(peers) if peers else None
