"""Which replicas a task keeps when it changes size, and which of its ranks make one.

A rank that goes on keeps its place (tp, pp), because what its process holds is of no use at another.
So a task that shrinks gives up whole replicas, and one that has lost ranks puts together what is
left: whole replicas first, then those with the fewest holes, filled from the others where they have
the same stage. With one stage every tensor-parallel group is a replica, and the placement's own
rules serve (``controller.core.placement``).
"""

from collections.abc import Collection

from controller.core.placement import Placement, Worker
from nodeagent.protocol.ids import NodeId
from profiles.layout import Layout

NO_WORKER = Worker(NodeId(""), -1)
"""Stands where a rank has no worker yet; no node has it."""

_Chunk = tuple[Worker, ...]


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


def wish(old: Layout, placement: Placement, new: Layout, usable: Collection[Worker]) -> Placement:
    """Return the workers that ranks of the new layout would like to have, holes included.

    Args:
        old: Layout of ``placement``.
        placement: Where the task is.
        new: Layout that it shall have. With another tp or pp there is nothing to keep in order.
        usable: Workers that can be kept.
    """
    if (old.tp, old.pp) != (new.tp, new.pp) or old.pp == 1 or len(placement) != old.num_workers:
        return placement
    columns = [_column(old, placement, replica, usable) for replica in range(old.dp)]
    columns.sort(key=lambda column: column.count(None))
    kept, spare = columns[: new.dp], columns[new.dp :]
    kept += [[None] * old.pp for _ in range(new.dp - len(kept))]
    for column in kept:
        for stage in range(old.pp):
            donor = next((other for other in spare if column[stage] is None and other[stage]), None)
            if donor:
                column[stage], donor[stage] = donor[stage], None
    hole = (NO_WORKER,) * old.tp
    return tuple(
        worker for stage in range(new.pp) for column in kept for worker in column[stage] or hole
    )


def _column(
    layout: Layout, placement: Placement, replica: int, usable: Collection[Worker]
) -> list[_Chunk | None]:
    """Return the tensor-parallel groups of a replica by stage; None where one can't be kept."""
    chunks: list[_Chunk | None] = []
    for stage in range(layout.pp):
        start = (stage * layout.dp + replica) * layout.tp
        chunk = placement[start : start + layout.tp]
        chunks.append(chunk if all(worker in usable for worker in chunk) else None)
    return chunks
