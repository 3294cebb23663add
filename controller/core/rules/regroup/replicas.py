"""Which of its replicas a task still has, and which of its ranks make one.

Which it gets when it changes size is told in ``controller.core.rules.packing.slot_assignment``.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from controller.core.rules.placement import Placement, Worker
from nodeagent.protocol.ids import NodeId
from profiles.layout import Layout

NO_WORKER = Worker(NodeId(""), -1)
"""Stands where a replica lacks a rank."""

Replica = Sequence[int]
"""Its global ranks: stage by stage, and the tensor-parallel ranks of each in their order."""


class ModelPart(NamedTuple):
    """A part of the model: which one, of a model that is divided into ``tp`` x ``pp``."""

    tp: int
    pp: int
    tp_rank: int
    pp_rank: int


def part_of(layout: Layout, global_rank: int) -> ModelPart:
    """Return the part of the model that a rank has."""
    return ModelPart(layout.tp, layout.pp, layout.tp_rank(global_rank), layout.pp_rank(global_rank))


def living_replicas(layout: Layout, fit_ranks: Collection[int]) -> list[Replica]:
    """Return the replicas that ``fit_ranks`` make: whole ones, and such as are put together.

    What is left of broken replicas makes further ones stage by stage, so that ranks that were near each
    other in their tensor-parallel group stay together. If there would be none, rank by rank: a replica
    that is slow still has the state.
    """
    whole = whole_replicas(layout, fit_ranks)
    found: list[Replica] = [ranks_of_replica(layout, replica) for replica in whole]
    broken = [replica for replica in range(layout.dp) if replica not in whole]
    groups = [
        [
            group
            for replica in broken
            if set(group := _stage_of(layout, replica, stage)) <= set(fit_ranks)
        ]
        for stage in range(layout.pp)
    ]
    found += [[rank for group in stages for rank in group] for stages in zip(*groups, strict=False)]
    return found or _put_together(layout, fit_ranks)


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


def place_replicas(layout: Layout, placement: Placement, replicas: Sequence[Replica]) -> Placement:
    """Return the placement of a layout that consists of these replicas alone, in this order."""
    return tuple(
        placement[replica[stage * layout.tp + tp_rank]]
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
    """Return what a task holds if those that wait are counted as parts of up to ``limit`` further replicas.

    Seats of these that nobody has are ``NO_WORKER``.
    """
    workers: dict[ModelPart, list[Worker]] = {}
    for worker, part in waiting:
        workers.setdefault(part, []).append(worker)
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
    by_cell = [
        [rank for rank in sorted(fit_ranks) if (layout.tp_rank(rank), layout.pp_rank(rank)) == cell]
        for cell in cells
    ]
    return [list(ranks) for ranks in zip(*by_cell, strict=False)]
