"""How many tensor-parallel groups each node gets: the fewest moved ranks, then the best spread.

Packings are compared by counts alone. A *group* is the ranks of one tensor-parallel group. Groups
of one *kind* (one stage of a task) are interchangeable. A group on a node keeps the ranks that are
held there. Each further group of the kind there keeps no more ranks than the one before. The best
packing has

1. the most ranks that stay,
2. of those, the least *spread*: ordered pairs of groups of one kind in one failure domain, each
   group paired with itself too. Per kind and domain this is the square of the number of groups.
   Groups of one kind are data-parallel peers, so with a small spread the loss of a domain costs a
   task few replicas.

For one kind alone the greedy choice is optimal: take one group after the other where it is worth
most. Both criteria shrink from group to group, so a later choice is never worth more. The sum over
all kinds, each placed as if it had all nodes for itself, is a bound for any packing.

``pack`` tries in this order:

1. Place the kinds one after the other. If the result attains the bound, it is the best.
2. If every rank stays that could, search for places for the missing groups only (``exhaustive``).
3. Else search all packings, if they are few.
4. Else find out exactly which groups must move (``eviction``). The spread is then not optimised.

``controller.core.rules.placement`` decides which workers the groups get.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.core.rules.packing.eviction import has_places, plan_eviction
from controller.core.rules.packing.exhaustive import DomainSite, GroupKind, search
from controller.core.rules.packing.greedy import GreedyPacking, kinds_without_surplus

_MAX_STEPS: Final = 10_000
"""Takes 0.1 to 0.2 seconds."""

Groups = tuple[Mapping[int, int], ...]
"""For every kind, its groups by node."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Groups by node, and the proofs about them.

    Attributes:
        groups: For every kind, groups by node.
        num_staying: Ranks that stay.
        spread: The smaller, the better.
        has_fewest_moves: Whether it is proven that no packing lets more ranks stay.
        is_best: Whether it is also proven that none of those has a smaller spread.
    """

    groups: Groups
    num_staying: int
    spread: int
    has_fewest_moves: bool
    is_best: bool


@dataclass(frozen=True, slots=True)
class NoPacking:
    """No packing exists; or, if not proven, none was found."""

    is_proven: bool


def pack(
    kinds: Sequence[GroupKind], site: DomainSite, max_steps: int = _MAX_STEPS
) -> Packing | NoPacking:
    """Return a packing of all groups: the best one, or the best that was found in time.

    Args:
        kinds: The groups to place, and what each node holds of them.
        site: The free workers of every node, those under held groups included, and its domain.
        max_steps: Limit for the search for the least spread, in partial packings.

    Returns:
        The packing with its proofs. ``NoPacking`` if not all groups were placed, with whether that
        is proven impossible. Ties go to the order of kinds and nodes.
    """
    # This condition is necessary and cheap to test. Without it the searches below would take their
    # full time to find nothing.
    if not has_places(kinds, site.rooms):
        return NoPacking(is_proven=True)
    most = sum(kind.most_staying(site.rooms) for kind in kinds)
    least_spread: int | None = None
    best: GreedyPacking | None = None
    for order in _orders(kinds):
        fill = GreedyPacking(kinds, site)
        if not fill.run(order):
            continue
        if best is None or fill.score > best.score:
            best = fill
        # The bound for the ranks that stay is attained, so nothing but the spread can be better.
        if fill.num_staying == most:
            if least_spread is None:
                least_spread = _least_spread(kinds, site)
            if fill.spread == least_spread:
                return _packing(fill, has_fewest_moves=True, is_best=True)
    if best is not None and best.num_staying == most:
        return _spread_what_is_missing(kinds, site, best, max_steps)
    return _evict_or_search(kinds, site, best, max_steps)


def _orders(kinds: Sequence[GroupKind]) -> list[list[int]]:
    """Return the orders in which kinds are placed: as given, and the largest groups first."""
    # The given order decides ties, so it comes first. Large groups first is the usual heuristic of
    # bin packing: small groups fit into the gaps that remain.
    given = list(range(len(kinds)))
    largest_first = sorted(given, key=lambda k: -kinds[k].size)
    return [given] if given == largest_first else [given, largest_first]


def _spread_what_is_missing(
    kinds: Sequence[GroupKind], site: DomainSite, best: GreedyPacking, max_steps: int
) -> Packing:
    """Return the best packing among those in which every rank stays that could."""
    kept = GreedyPacking(kinds, site)
    # A kind without surplus keeps all its groups in any packing with the fewest moves. So they are
    # fixed, and the search is about the rest only.
    kept.keep(kinds_without_surplus(kinds, site))
    missing = [
        replace(kind, count=kind.count - kept.num_placed(k), stays={})
        if kept.num_placed(k)
        else kind
        for k, kind in enumerate(kinds)
    ]
    rest = DomainSite(kept.rooms, site.domains)
    # The known packing is the bound to beat; its score is counted over the fixed part, as the
    # search's own.
    outcome = search(missing, rest, kept.by_domain, best.score_over(kept), max_steps)
    if outcome.groups is None:
        return _packing(best, has_fewest_moves=True, is_best=outcome.is_complete)
    for k, groups in enumerate(outcome.groups):
        kept.put_all(k, groups)
    return _packing(kept, has_fewest_moves=True, is_best=True)


def _evict_or_search(
    kinds: Sequence[GroupKind], site: DomainSite, best: GreedyPacking | None, max_steps: int
) -> Packing | NoPacking:
    """Return the best packing if not every rank can stay, or if no order of kinds worked."""
    nothing: tuple[Counter[int], ...] = tuple(Counter() for _ in kinds)
    outcome = search(kinds, site, nothing, best.score if best else None, max_steps)
    if outcome.groups is not None:
        fill = GreedyPacking(kinds, site)
        for k, groups in enumerate(outcome.groups):
            fill.put_all(k, groups)
        return _packing(fill, has_fewest_moves=True, is_best=True)
    if outcome.is_complete:
        if best is None:
            return NoPacking(is_proven=True)
        return _packing(best, has_fewest_moves=True, is_best=True)
    eviction = plan_eviction(kinds, site.rooms, best.num_staying if best else None)
    if eviction.keeps is not None:
        # Largest groups first: with sizes that divide each other this order always finds room.
        fill = GreedyPacking(kinds, site, eviction)
        is_placed = fill.run(_orders(kinds)[-1])
        assert is_placed, "after the eviction everything has room"
        # Equal moves are possible, and then the greedy packing may have the better spread.
        if best is None or fill.score > best.score:
            best = fill
    if best is None:
        return NoPacking(is_proven=eviction.is_complete)
    return _packing(best, has_fewest_moves=eviction.is_complete, is_best=False)


def _least_spread(kinds: Sequence[GroupKind], site: DomainSite) -> int:
    """Return a lower bound of the spread, over all packings in which every rank stays that could.

    A kind without surplus keeps all its groups. That leaves less room for the other kinds.
    """
    if min(site.domains) == max(site.domains):
        # In one domain every packing has the same spread.
        return sum(kind.cost(kind.count) for kind in kinds)
    are_needed = kinds_without_surplus(kinds, site)
    kept = GreedyPacking(kinds, site)
    kept.keep(are_needed)
    total = 0
    for k in range(len(kinds)):
        alone = kept.copy_for(k)
        # A kind with a surplus chooses which groups to keep. For a valid bound it gets all room, as
        # if it were alone.
        if k not in are_needed:
            alone.rooms = list(site.rooms)
            alone.keep([k])
        alone.add(k)
        total += alone.spread_of(k)
    return total


def _packing(fill: GreedyPacking, *, has_fewest_moves: bool, is_best: bool) -> Packing:
    return Packing(fill.groups, fill.num_staying, fill.spread, has_fewest_moves, is_best)
