"""Which of its replicas a task still has, and which of its ranks make one.

Which it gets when it changes size is told in ``controller.core.packing.seating``.
"""

from collections.abc import Collection

from controller.core.placement import Placement
from profiles.layout import Layout


def whole_replicas(layout: Layout, fit_ranks: Collection[int]) -> list[int]:
    """Return the replicas of which every rank is among ``fit_ranks``."""
    return [
        replica
        for replica in range(layout.dp)
        if all(rank in fit_ranks for rank in ranks_of_replica(layout, replica))
    ]


def ranks_of_replica(layout: Layout, replica: int) -> list[int]:
    """Return the global ranks of a replica, ascending."""
    return [rank for rank in range(layout.num_workers) if layout.dp_rank(rank) == replica]


def keep_replicas(layout: Layout, placement: Placement, replicas: list[int]) -> Placement:
    """Return the placement of a layout that consists of these replicas alone, in this order."""
    return tuple(
        placement[stage * layout.tp * layout.dp + replica * layout.tp + tp_rank]
        for stage in range(layout.pp)
        for replica in replicas
        for tp_rank in range(layout.tp)
    )
