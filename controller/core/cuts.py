"""In-memory checkpoints that together are a state: one of every shard, all of one iteration.

Copies lie in the memory of nodes, so ranks of any place can hand them out.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from controller.core.parked import Shard
from nodeagent.protocol.regroup import HeldCopy, Position
from profiles.layout import Layout

Copies: TypeAlias = Mapping[tuple[int, int], Mapping[Shard, int]]
"""By iteration and number of shards, who can hand out which shard."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Copies of one iteration, one of every shard, with the rank that hands each out."""

    iteration: int
    num_shards: int
    holder_of: dict[Shard, int]


def copies_by_level(hands: Mapping[int, Position]) -> Copies:
    """Return the copies that ranks have told of; ``hands`` are by new rank."""
    found: dict[tuple[int, int], dict[Shard, int]] = {}
    for rank, position in sorted(hands.items()):
        for copy in position.copies:
            of_level = found.setdefault((copy.iteration, copy.num_shards), {})
            of_level.setdefault(_shard_of(copy), rank)
    return found


def newest_cut(copies: Copies, layout: Layout) -> Cut | None:
    """Return the newest iteration of which every shard has a copy."""
    for (iteration, num_shards), holder_of in sorted(copies.items(), reverse=True):
        needed = all_shards(layout, num_shards)
        if needed <= set(holder_of):
            return Cut(iteration, num_shards, {shard: holder_of[shard] for shard in needed})
    return None


def safest_iteration(hands: Mapping[int, Position], layout: Layout, newest: int) -> int:
    """Return the iteration up to ``newest`` whose copies are to be kept until newer ones are complete.

    That is the newest one of which two ranks have every shard, so that either may be lost; where there is
    none, the newest one of which every shard has a copy; 0 where there is none of that either.
    """
    num_by_level: dict[tuple[int, int], Counter[Shard]] = {}
    for position in hands.values():
        for copy in position.copies:
            if copy.iteration <= newest:
                of_level = num_by_level.setdefault((copy.iteration, copy.num_shards), Counter())
                of_level[_shard_of(copy)] += 1
    fewest = {
        (iteration, num_shards): min(nums[shard] for shard in all_shards(layout, num_shards))
        for (iteration, num_shards), nums in num_by_level.items()
    }
    found = [(num > 1, iteration) for (iteration, _), num in fewest.items() if num]
    return max(found, default=(False, 0))[1]


def all_shards(layout: Layout, num_shards: int) -> set[Shard]:
    """Return the shards of a state that is divided into so many at each (tp, pp)."""
    return {
        (tp, pp, number)
        for tp in range(layout.tp)
        for pp in range(layout.pp)
        for number in range(num_shards)
    }


def _shard_of(copy: HeldCopy) -> Shard:
    return copy.tp_rank, copy.pp_rank, copy.dp_rank
