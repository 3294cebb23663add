"""In-memory checkpoints that together make a whole state: one of every shard, of one iteration.

Copies lie in the memory of nodes, so a rank at any place of the model can hand one out.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from controller.core.rules.regroup.parked import Shard
from nodeagent.protocol.regroup import HeldCopy, Position
from profiles.layout import Layout

HoldersByLevel: TypeAlias = Mapping[tuple[int, int], Mapping[Shard, int]]
"""By iteration and number of shards, the rank that can hand out each shard."""


@dataclass(frozen=True, slots=True)
class CompleteCopies:
    """One copy of every shard, all of one iteration, each with the rank that hands it out."""

    iteration: int
    num_shards: int
    holder_of: dict[Shard, int]


def copies_by_level(positions: Mapping[int, Position]) -> HoldersByLevel:
    """Return, by iteration and number of shards, the rank that hands out the copy of each shard.

    Args:
        positions: Of the ranks that continue, by their ranks in the new generation.
    """
    found: dict[tuple[int, int], dict[Shard, int]] = {}
    for rank, position in sorted(positions.items()):
        for copy in position.copies:
            of_level = found.setdefault((copy.iteration, copy.num_shards), {})
            # Several ranks may hold the same copy. The lowest rank hands it out, so that all ranks
            # agree.
            of_level.setdefault(_shard_of(copy), rank)
    return found


def newest_complete_copies(copies: HoldersByLevel, layout: Layout) -> CompleteCopies | None:
    """Return the copies of the newest iteration of which every shard has a copy.

    Args:
        copies: The answer of ``copies_by_level``.
        layout: Layout of the new generation; it says which shards there are.

    Returns:
        One holder for each shard; None if no iteration has a copy of every shard.
    """
    for (iteration, num_shards), holder_of in sorted(copies.items(), reverse=True):
        # Copies with another number of shards divide the state in another way. They can't be
        # combined.
        if not may_be_complete(layout, num_shards, len(holder_of)):
            continue
        needed = all_shards(layout, num_shards)
        if needed <= set(holder_of):
            return CompleteCopies(
                iteration, num_shards, {shard: holder_of[shard] for shard in needed}
            )
    return None


def iterations_to_keep(
    positions: Mapping[int, Position], layout: Layout, newest: int
) -> tuple[int, ...]:
    """Return the iterations whose copies must be kept until newer ones are complete.

    One for each rank that may be lost next: the newest iteration of which all other ranks together
    have every shard. If there is none for any rank, the newest iteration of which there is a copy
    of every shard.

    Args:
        positions: Positions by new rank.
        layout: Layout of the new generation.
        newest: Newer iterations are ignored: the new generation begins at this one.

    Returns:
        Newest first; empty if no iteration has a copy of every shard.
    """
    holders: defaultdict[tuple[int, int], defaultdict[Shard, set[int]]]
    holders = defaultdict(lambda: defaultdict(set))
    for rank, position in positions.items():
        for copy in position.copies:
            if copy.iteration <= newest:
                holders[copy.iteration, copy.num_shards][_shard_of(copy)].add(rank)
    complete: list[int] = []
    kept: list[int] = []
    # The ranks whose loss would leave no complete copies among the iterations looked at so far.
    exposed = set(positions)
    for (iteration, num_shards), holders_of in sorted(holders.items(), reverse=True):
        if not may_be_complete(layout, num_shards, len(holders_of)):
            continue
        of_each = [holders_of[shard] for shard in all_shards(layout, num_shards)]
        if not all(of_each):
            continue
        # The only holder of a shard can't be lost without breaking this iteration.
        are_alone = {rank for ranks in of_each if len(ranks) == 1 for rank in ranks}
        complete.append(iteration)
        # The iteration protects against the loss of at least one more rank.
        if exposed - are_alone:
            kept.append(iteration)
        exposed &= are_alone
    # The same iteration may appear with two numbers of shards. Each is kept once.
    return tuple(dict.fromkeys(kept or complete[:1]))


def may_be_complete(layout: Layout, num_shards: int, num_found: int) -> bool:
    """Return whether ``num_found`` shards can be all of a state; a rank may claim any number."""
    return num_shards >= 1 and layout.tp * layout.pp * num_shards <= num_found


def all_shards(layout: Layout, num_shards: int) -> set[Shard]:
    """Return the shards of a state with ``num_shards`` shards at each (tp, pp)."""
    return set(each_shard(layout, num_shards))


def each_shard(layout: Layout, num_shards: int) -> Iterator[Shard]:
    """Yield the same in ascending order."""
    for tp in range(layout.tp):
        for pp in range(layout.pp):
            for number in range(num_shards):
                yield tp, pp, number


def _shard_of(copy: HeldCopy) -> Shard:
    return copy.tp_rank, copy.pp_rank, copy.dp_rank
