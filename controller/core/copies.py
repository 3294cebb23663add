"""Who holds the in-memory checkpoint of whose state.

A copy is of use when its owner is lost and nobody else has that state. So it lies on another node
than its owner's, if there is one, and with a rank that shares as few parallel groups with the owner
as possible, because faults travel along them. On a single node a copy protects against lost
processes only.

State that every replica has needs one copy per (tp, pp), and none with a rank that has that very
state itself. A shard of a sharded optimizer has a copy of its own.
"""

from collections.abc import Sequence

from controller.core.placement import Worker
from profiles.layout import Layout


def copy_holders(
    layout: Layout, placement: Sequence[Worker], *, is_sharded: bool
) -> tuple[int | None, ...]:
    """Return, by global rank, who holds the copies of its state; None where nobody has to, or can.

    Args:
        layout: Layout of the generation.
        placement: Worker of each global rank.
        is_sharded: Whether the optimizer state is sharded over the replicas.
    """
    num_held = [0] * layout.num_workers
    holders: list[int | None] = []
    for owner in range(layout.num_workers):
        holder = None
        if is_sharded or layout.dp_rank(owner) == 0:
            candidates = [
                rank
                for rank in range(layout.num_workers)
                if rank != owner and (is_sharded or _cell(layout, rank) != _cell(layout, owner))
            ]
            holder = min(
                candidates,
                key=lambda rank: (
                    placement[rank].node == placement[owner].node,
                    num_held[rank],
                    _num_shared_groups(layout, owner, rank),
                    (rank - owner) % layout.num_workers,
                ),
                default=None,
            )
        if holder is not None:
            num_held[holder] += 1
        holders.append(holder)
    return tuple(holders)


def _cell(layout: Layout, rank: int) -> tuple[int, int]:
    return layout.tp_rank(rank), layout.pp_rank(rank)


def _num_shared_groups(layout: Layout, one: int, other: int) -> int:
    """Two ranks share a parallel group if they differ in one coordinate only."""
    places = [
        (layout.tp_rank(rank), layout.pp_rank(rank), layout.dp_rank(rank)) for rank in (one, other)
    ]
    num_different = sum(a != b for a, b in zip(*places, strict=True))
    return int(num_different == 1)
