"""A parked generation: the positions of its ranks, and the ranks that continue."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodeagent.protocol.regroup import Position, Resume
from profiles.layout import Layout

Shard = tuple[int, int, int]
"""(tp, pp, dp) of a part of the state. dp is 0 if every replica has all of it."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked generation.

    Attributes:
        layout: Its layout.
        num_micro_batches: Micro-batches of the global batch.
        positions: Reported positions by global rank, including ranks that do not continue.
        resume: How this generation itself began; None if that is not known.
        is_sharded: Whether the optimizer state is sharded over the replicas.
    """

    layout: Layout
    num_micro_batches: int
    positions: Mapping[int, Position]
    resume: Resume | None = None
    is_sharded: bool = False


class Survivor(NamedTuple):
    """A parked rank that continues at the same (tp, pp).

    Attributes:
        new_rank: Its global rank in the next generation.
        replica: Its replica in the parked generation.
        new_replica: Its replica in the next generation.
        shard: The part of the state that it holds, if it holds any.
        num_shards: The number of shards at its (tp, pp).
        position: Its reported position.
    """

    new_rank: int
    replica: int
    new_replica: int
    shard: Shard
    num_shards: int
    position: Position

    @property
    def cell(self) -> tuple[int, int]:
        """(tp, pp). Ranks with the same cell have the same state and the same buckets."""
        return self.shard[:2]


def survivors_of(parked: Parked, layout: Layout, continues: Mapping[int, int]) -> list[Survivor]:
    """Return the ranks that continue at the same (tp, pp). ``continues`` is new by old rank."""
    old = parked.layout
    # With another tp or pp every rank has another part of the model, so no state can be used.
    if (old.tp, old.pp) != (layout.tp, layout.pp):
        return []
    survivors = []
    tp, stage_before, stage_after = old.tp, old.tp * old.dp, layout.tp * layout.dp
    for old_rank, new_rank in sorted(continues.items()):
        position = parked.positions.get(old_rank)
        cell = old_rank % tp, old_rank // stage_before
        if position is None or cell != (new_rank % tp, new_rank // stage_after):
            continue
        replica = old.dp_rank(old_rank)
        number, num_shards = 0, 1
        if parked.is_sharded:
            # A rank may hold a shard of an earlier division: its last generation may not have
            # formed completely. So its own report counts before its replica number.
            number, num_shards = position.shard or (replica, old.dp)
        new_replica = layout.dp_rank(new_rank)
        survivors.append(
            Survivor(new_rank, replica, new_replica, (*cell, number), num_shards, position)
        )
    return survivors


def new_ranks(survivors: Iterable[Survivor]) -> tuple[int, ...]:
    """Return the ranks of survivors in the new generation, sorted."""
    return tuple(sorted(survivor.new_rank for survivor in survivors))
