"""Which replicas a set of ranks can form.

``controller.core.rules.packing.slot_assignment`` decides which replicas a task keeps when its size
changes.
"""

import functools
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from controller.core.rules.placement import Placement, Worker
from nodeagent.protocol.ids import NodeId
from profiles.layout import Layout

NO_WORKER = Worker(NodeId(""), -1)
"""Marks the place of a missing rank of a replica."""

Replica = Sequence[int]
"""Its global ranks: stage by stage, and the tensor-parallel ranks of each stage in order."""


class ModelPart(NamedTuple):
    """One part of a model that is divided into ``tp`` x ``pp`` parts."""

    tp: int
    pp: int
    tp_rank: int
    pp_rank: int


def part_of(layout: Layout, global_rank: int) -> ModelPart:
    """Return the part of the model that a rank has."""
    return parts_of(layout)[global_rank]


@functools.lru_cache(maxsize=256)
def parts_of(layout: Layout) -> tuple[ModelPart, ...]:
    """Return the part of the model of each rank, by global rank."""
    # Ranks of equal parts share one object: comparing them takes no time.
    parts = [
        ModelPart(layout.tp, layout.pp, tp_rank, pp_rank)
        for pp_rank in range(layout.pp)
        for tp_rank in range(layout.tp)
    ]
    return tuple(
        parts[layout.pp_rank(rank) * layout.tp + layout.tp_rank(rank)]
        for rank in range(layout.num_workers)
    )


def living_replicas(layout: Layout, fit_ranks: Collection[int]) -> list[Replica]:
    """Return the replicas that ``fit_ranks`` can form, each rank in one at most.

    Args:
        layout: The present layout.
        fit_ranks: Global ranks that can train.

    Returns:
        For each replica its global ranks, in the order of the model's parts. First come the
        replicas that are whole. Then whole stages of broken ones are put together, so that the
        ranks of a tensor-parallel group stay side by side. Only if all that gives no replica,
        single ranks are put together: that replica is slow, but it has the state.
    """
    fit = frozenset(fit_ranks)
    whole = whole_replicas(layout, fit)
    found: list[Replica] = [ranks_of_replica(layout, replica) for replica in whole]
    broken = sorted(set(range(layout.dp)).difference(whole))
    groups = [
        [group for replica in broken if fit.issuperset(group := _stage_of(layout, replica, stage))]
        for stage in range(layout.pp)
    ]
    # zip stops at the stage with the fewest whole groups: a replica needs one of each stage.
    found += [[rank for group in stages for rank in group] for stages in zip(*groups, strict=False)]
    return found or _put_together(layout, fit_ranks)


def whole_replicas(layout: Layout, fit_ranks: Collection[int]) -> list[int]:
    """Return the replicas of which every rank is among ``fit_ranks``."""
    fit = frozenset(fit_ranks)
    return [
        replica for replica in range(layout.dp) if fit.issuperset(ranks_of_replica(layout, replica))
    ]


def ranks_of_replica(layout: Layout, replica: int) -> list[int]:
    """Return the global ranks of a replica, ascending."""
    tp, stage = layout.tp, layout.tp * layout.dp
    firsts = range(replica * tp, layout.num_workers, stage)
    return [rank for first in firsts for rank in range(first, first + tp)]


def place_replicas(layout: Layout, placement: Placement, replicas: Sequence[Replica]) -> Placement:
    """Return the placement of a layout that consists of exactly these replicas, in this order."""
    return tuple(
        placement[replica[stage * layout.tp + tp_rank]]
        # The order of global ranks: tp varies fastest, then dp, then pp.
        for stage in range(layout.pp)
        for replica in replicas
        for tp_rank in range(layout.tp)
    )


def with_waiting(
    layout: Layout,
    placement: Placement,
    waiting: Iterable[tuple[Worker, ModelPart]],
    limit: int | None = None,
) -> tuple[Layout, Placement]:
    """Return layout and placement of the task as if waiting ranks formed further replicas.

    The replicas that train come first. A part of a further replica that no waiting rank has is
    ``NO_WORKER`` in the placement.

    Args:
        layout: Layout of the generation that trains.
        placement: Its workers by global rank.
        waiting: Worker and model part of each waiting rank.
        limit: At most this many further replicas.
    """
    workers: dict[ModelPart, list[Worker]] = {}
    for worker, part in waiting:
        workers.setdefault(part, []).append(worker)
    # A replica has each part once, so waiting ranks of the same part need a replica each.
    num_more = max(map(len, workers.values()), default=0)
    if limit is not None:
        num_more = min(num_more, limit)
    wide = Layout(layout.tp, layout.pp, layout.dp + num_more)
    seats: dict[ModelPart, list[Worker]] = {part_of(wide, n): [] for n in range(wide.num_workers)}
    for rank, worker in enumerate(placement):
        seats[part_of(layout, rank)].append(worker)
    for part, each in seats.items():
        each.extend(workers.get(part, [])[:num_more])
        each.extend([NO_WORKER] * (wide.dp - len(each)))
    return wide, tuple(
        seats[part_of(wide, rank)][wide.dp_rank(rank)] for rank in range(wide.num_workers)
    )


def _stage_of(layout: Layout, replica: int, stage: int) -> list[int]:
    return ranks_of_replica(layout, replica)[stage * layout.tp : (stage + 1) * layout.tp]


def _put_together(layout: Layout, fit_ranks: Collection[int]) -> list[Replica]:
    cells = [(tp_rank, stage) for stage in range(layout.pp) for tp_rank in range(layout.tp)]
    # A rank can only replace a rank with the same part of the model.
    by_cell = [
        [rank for rank in sorted(fit_ranks) if (layout.tp_rank(rank), layout.pp_rank(rank)) == cell]
        for cell in cells
    ]
    return [list(ranks) for ranks in zip(*by_cell, strict=False)]
