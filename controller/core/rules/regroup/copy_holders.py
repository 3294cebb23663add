"""Which rank holds the in-memory checkpoint of which other rank.

A copy is needed when its owner is lost and no other rank has that state. So it lies on another node
than its owner if possible. It lies with a rank that shares as few parallel groups with the owner as
possible, because faults spread along these groups. On a single node a copy protects against lost
processes only.

If the optimizer is not sharded, every replica has the same state. One copy per (tp, pp) is enough,
and a rank with the same (tp, pp) is no holder. If the optimizer is sharded, every shard has a copy
of its own.
"""

from collections import Counter
from collections.abc import Sequence

from controller.core.rules.placement import Worker
from profiles.layout import Layout


def copy_holders(
    layout: Layout, placement: Sequence[Worker], *, is_sharded: bool
) -> tuple[int | None, ...]:
    """Return the rank that holds the copies of each rank.

    Args:
        layout: Layout of the generation.
        placement: Worker of each global rank.
        is_sharded: Whether the optimizer state is sharded over the replicas.

    Returns:
        By global rank, another rank: on another node if there is one, then with as few copies as
        possible. None for a rank of which no copy is needed, or possible.
    """
    choice = _Choice(layout, placement, is_sharded=is_sharded)
    return tuple(
        choice.holder_of(owner) if is_sharded or layout.dp_rank(owner) == 0 else None
        for owner in range(layout.num_workers)
    )


class _Choice:
    """Chooses the holders one after the other, each the best in the order of ``_badness``.

    The search for a holder starts behind the owner and stops at a rank that can't be surpassed.
    """

    def __init__(self, layout: Layout, placement: Sequence[Worker], *, is_sharded: bool) -> None:
        self._layout = layout
        self._placement = placement
        self._is_sharded = is_sharded
        self._num_held = [0] * layout.num_workers
        self._num_with = Counter(self._num_held)
        """By number of copies, how many ranks hold that many."""
        # The fewest copies that a rank holds. Kept up to date in ``_note``, because a minimum over
        # all ranks for each owner would make the choice quadratic.
        self._fewest = 0
        is_one_node = len({worker.node for worker in placement}) == 1
        # If only one of tp, pp and dp is larger than 1, all ranks share one group.
        is_one_group = sum(size > 1 for size in (layout.tp, layout.pp, layout.dp)) == 1
        self._least = is_one_node, int(is_one_group)

    def holder_of(self, owner: int) -> int | None:
        """Return the holder of a rank's copies; None if no rank can hold them."""
        num_ranks = self._layout.num_workers
        holder, least = None, (self._least[0], self._fewest, self._least[1])
        badness = (True, num_ranks + 1, 2)
        # Starting behind the owner spreads the holders evenly, and usually finds the best one
        # within a few steps.
        for distance in range(1, num_ranks):
            rank = (owner + distance) % num_ranks
            # A rank at the same (tp, pp) has the same state anyway, unless it is sharded.
            is_useful = self._is_sharded or self._cell(rank) != self._cell(owner)
            if is_useful and (found := self._badness(owner, rank)) < badness:
                holder, badness = rank, found
                # The lower bound is attained: no rank further on is better.
                if badness == least:
                    break
        if holder is not None:
            self._note(holder)
        return holder

    def _badness(self, owner: int, rank: int) -> tuple[bool, int, int]:
        is_same_node = self._placement[rank].node == self._placement[owner].node
        num_shared = _num_shared_groups(self._layout, owner, rank)
        # Another node first: that protects against the loss of a node. Then an even load, because
        # copies take memory. Shared groups decide last.
        return is_same_node, self._num_held[rank], num_shared

    def _note(self, holder: int) -> None:
        self._num_with[self._num_held[holder]] -= 1
        self._num_held[holder] += 1
        self._num_with[self._num_held[holder]] += 1
        if not self._num_with[self._fewest]:
            self._fewest += 1

    def _cell(self, rank: int) -> tuple[int, int]:
        return self._layout.tp_rank(rank), self._layout.pp_rank(rank)


def _num_shared_groups(layout: Layout, one: int, other: int) -> int:
    """Return how many parallel groups two ranks share: 1 if they differ in one coordinate only."""
    places = [
        (layout.tp_rank(rank), layout.pp_rank(rank), layout.dp_rank(rank)) for rank in (one, other)
    ]
    num_different = sum(a != b for a, b in zip(*places, strict=True))
    return int(num_different == 1)
