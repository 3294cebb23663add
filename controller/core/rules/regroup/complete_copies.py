"""In-memory checkpoints that together are a state: one of every shard, all of one iteration.

HoldersByLevel lie in the memory of nodes, so ranks of any place can hand them out.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from controller.core.rules.regroup.parked import Shard
from nodeagent.protocol.regroup import HeldCopy, Position
from profiles.layout import Layout

HoldersByLevel: TypeAlias = Mapping[tuple[int, int], Mapping[Shard, int]]
"""By iteration and number of shards, who can hand out which shard."""


@dataclass(frozen=True, slots=True)
class CompleteCopies:
    """HoldersByLevel of one iteration, one of every shard, with the rank that positions each out."""

    iteration: int
    num_shards: int
    holder_of: dict[Shard, int]


def copies_by_level(positions: Mapping[int, Position]) -> HoldersByLevel:
    """Return the copies that ranks have told of; ``positions`` are by new rank."""
    found: dict[tuple[int, int], dict[Shard, int]] = {}
    for rank, position in sorted(positions.items()):
        for copy in position.copies:
            of_level = found.setdefault((copy.iteration, copy.num_shards), {})
            of_level.setdefault(_shard_of(copy), rank)
    return found


def newest_complete_copies(copies: HoldersByLevel, layout: Layout) -> CompleteCopies | None:
    """Return the newest iteration of which every shard has a copy."""
    for (iteration, num_shards), holder_of in sorted(copies.items(), reverse=True):
        needed = all_shards(layout, num_shards)
        if needed <= set(holder_of):
            return CompleteCopies(
                iteration, num_shards, {shard: holder_of[shard] for shard in needed}
            )
    return None


def iterations_to_keep(
    positions: Mapping[int, Position], layout: Layout, newest: int
) -> tuple[int, ...]:
    """Return the iterations up to ``newest`` whose copies are to be kept until newer ones are complete.

    That is, for each rank that may be lost next, the newest one of which the others have every shard. Where
    nobody can be spared, the newest one of which every shard has a copy.

    Returns:
        Newest first; empty where of no iteration every shard has a copy.
    """
    holders: defaultdict[tuple[int, int], defaultdict[Shard, set[int]]]
    holders = defaultdict(lambda: defaultdict(set))
    for rank, position in positions.items():
        for copy in position.copies:
            if copy.iteration <= newest:
                holders[copy.iteration, copy.num_shards][_shard_of(copy)].add(rank)
    complete: list[int] = []
    kept: list[int] = []
    exposed = set(positions)
    for (iteration, num_shards), holders_of in sorted(holders.items(), reverse=True):
        of_each = [holders_of[shard] for shard in all_shards(layout, num_shards)]
        if not all(of_each):
            continue
        are_alone = {rank for ranks in of_each if len(ranks) == 1 for rank in ranks}
        complete.append(iteration)
        if exposed - are_alone:
            kept.append(iteration)
        exposed &= are_alone
    return tuple(dict.fromkeys(kept or complete[:1]))


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
