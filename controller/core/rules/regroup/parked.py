"""A parked generation: where its ranks stand, and which of them go on as which new rank."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.protocol.regroup import Position, Resume
from profiles.layout import Layout

Shard = tuple[int, int, int]
"""(tp, pp, dp) of a part of the state; dp is 0 where every replica has all of it."""


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked generation.

    Attributes:
        layout: Its layout.
        num_micro_batches: Micro-batches of the global batch.
        positions: What its ranks reported, by global rank, also of ranks that do not go on.
        resume: How it had itself taken up training; None if that is not known.
        is_sharded: Whether the optimizer state is sharded over the replicas.
    """

    layout: Layout
    num_micro_batches: int
    positions: Mapping[int, Position]
    resume: Resume | None = None
    is_sharded: bool = False


@dataclass(frozen=True, slots=True)
class Survivor:
    """A parked rank that goes on at its (tp, pp). Its replica is that of the parked generation.

    Attributes:
        new_rank: Its global rank in the next generation.
        replica: Its replica in the parked one.
        new_replica: The same in the next.
        shard: The part of the state that it holds, if it holds any.
        num_shards: Into how many its (tp, pp) is divided by that.
        position: Where it stands.
    """

    new_rank: int
    replica: int
    new_replica: int
    shard: Shard
    num_shards: int
    position: Position

    @property
    def cell(self) -> tuple[int, int]:
        """(tp, pp): whose state and whose buckets are the same."""
        return self.shard[:2]


def survivors_of(parked: Parked, layout: Layout, continues: Mapping[int, int]) -> list[Survivor]:
    """Return the ranks that go on where what they hold is of use; ``continues`` is new by old."""
    old = parked.layout
    if (old.tp, old.pp) != (layout.tp, layout.pp):
        return []
    survivors = []
    for old_rank, new_rank in sorted(continues.items()):
        position = parked.positions.get(old_rank)
        cell = old.tp_rank(old_rank), old.pp_rank(old_rank)
        if position is None or cell != (layout.tp_rank(new_rank), layout.pp_rank(new_rank)):
            continue
        replica = old.dp_rank(old_rank)
        number, num_shards = 0, 1
        if parked.is_sharded:
            number, num_shards = position.shard or (replica, old.dp)
        new_replica = layout.dp_rank(new_rank)
        survivors.append(
            Survivor(new_rank, replica, new_replica, (*cell, number), num_shards, position)
        )
    return survivors


def new_ranks(survivors: Iterable[Survivor]) -> tuple[int, ...]:
    """Return their ranks in the new generation, sorted."""
    return tuple(sorted(survivor.new_rank for survivor in survivors))
