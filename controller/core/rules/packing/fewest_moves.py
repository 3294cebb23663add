"""How many tensor-parallel groups each node gets: the fewest ranks moved, then replicas spread.

Placements are compared by counts alone. A *group* is the ranks of one tensor-parallel group; groups of one
*kind* (one stage of a task) may stand for each other. With y groups of a kind on a node, so many of their ranks
stay as are held there, and every further group lets no more of its ranks stay than the one before. Wanted is

1. the most ranks that stay,
2. then the least *spread*: the number of ordered pairs of groups of one kind that share a failure domain, each
   with itself included; that is the sum over kinds and domains of the square of the number of groups. Groups of
   a kind are each other's data-parallel peers, so the loss of a domain takes few replicas of a task.

A kind for itself is placed best by taking one group after the other where it is worth most, since both parts
become less from group to group. The sum over all kinds, each placed as if it had the nodes for itself, is a
bound. Placing the kinds one after the other often attains it: then it is the best, by proof, in about as many
steps as there are nodes and groups. Where every rank stays that could, only what is missing is open, and is
searched for (``exhaustive``). Else everything is searched where that is small, and where it is not, which
groups give way is found exactly (``clearing``), and the spread is as good as it comes out.

Which workers the groups get is decided in ``controller.core.rules.placement``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.core.rules.packing.eviction import has_places, plan_eviction
from controller.core.rules.packing.exhaustive import DomainSite, GroupKind, search
from controller.core.rules.packing.greedy import GreedyPacking, kinds_without_surplus

_MAX_STEPS: Final = 10_000
"""A tenth or two of a second."""

Groups = tuple[Mapping[int, int], ...]
"""Groups by node, for every kind."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Groups by node, and what is proven about them.

    Attributes:
        groups: For every kind, groups by node.
        num_staying: Ranks that stay.
        spread: The smaller, the better.
        has_fewest_moves: Whether no packing lets more ranks stay.
        is_best: Whether, besides, none of those has a smaller spread.
    """

    groups: Groups
    num_staying: int
    spread: int
    has_fewest_moves: bool
    is_best: bool


@dataclass(frozen=True, slots=True)
class NoPacking:
    """There is none, or, where that is not proven, none was found."""

    is_proven: bool


def pack(
    kinds: Sequence[GroupKind], site: DomainSite, max_steps: int = _MAX_STEPS
) -> Packing | NoPacking:
    """Return the best packing of all groups of ``kinds``; ties go by the order of kinds and nodes.

    Args:
        kinds: What is to be placed.
        site: Where.
        max_steps: Partial packings that are looked at before the search for the least spread is given up.
    """
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
        if fill.num_staying == most:
            if least_spread is None:
                least_spread = _least_spread(kinds, site)
            if fill.spread == least_spread:
                return _packing(fill, has_fewest_moves=True, is_best=True)
    if best is not None and best.num_staying == most:
        return _spread_what_is_missing(kinds, site, best, max_steps)
    return _evict_or_search(kinds, site, best, max_steps)


def _orders(kinds: Sequence[GroupKind]) -> list[list[int]]:
    """Return the orders in which to serve kinds: as given, and the largest groups first."""
    given = list(range(len(kinds)))
    largest_first = sorted(given, key=lambda k: -kinds[k].size)
    return [given] if given == largest_first else [given, largest_first]


def _spread_what_is_missing(
    kinds: Sequence[GroupKind], site: DomainSite, best: GreedyPacking, max_steps: int
) -> Packing:
    """Return the best packing in which all that can stay does."""
    kept = GreedyPacking(kinds, site)
    kept.keep(kinds_without_surplus(kinds, site))
    missing = [
        replace(kind, count=kind.count - kept.num_placed(k), stays={})
        if kept.num_placed(k)
        else kind
        for k, kind in enumerate(kinds)
    ]
    rest = DomainSite(kept.rooms, site.domains)
    outcome = search(missing, rest, kept.by_domain, best.score_over(kept), max_steps)
    if outcome.groups is None:
        return _packing(best, has_fewest_moves=True, is_best=outcome.is_complete)
    for k, groups in enumerate(outcome.groups):
        kept.put_all(k, groups)
    return _packing(kept, has_fewest_moves=True, is_best=True)


def _evict_or_search(
    kinds: Sequence[GroupKind], site: DomainSite, best: GreedyPacking | None, max_steps: int
) -> Packing | NoPacking:
    """Return the best packing where not everything can stay, or the order of service was of no use."""
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
        fill = GreedyPacking(kinds, site, eviction)
        is_placed = fill.run(_orders(kinds)[-1])
        assert is_placed, "what was eviction has room for everything"
        if best is None or fill.score > best.score:
            best = fill
    if best is None:
        return NoPacking(is_proven=eviction.is_complete)
    return _packing(best, has_fewest_moves=eviction.is_complete, is_best=False)


def _least_spread(kinds: Sequence[GroupKind], site: DomainSite) -> int:
    """Return a bound of the spread of packings in which all that can stay does.

    What a kind needs of what it holds, it keeps; that leaves the others less room.
    """
    are_needed = kinds_without_surplus(kinds, site)
    kept = GreedyPacking(kinds, site)
    kept.keep(are_needed)
    total = 0
    for k in range(len(kinds)):
        alone = kept.copy_for(k)
        if k not in are_needed:
            alone.rooms = list(site.rooms)
            alone.keep([k])
        alone.add(k)
        total += alone.spread_of(k)
    return total


def _packing(fill: GreedyPacking, *, has_fewest_moves: bool, is_best: bool) -> Packing:
    return Packing(fill.groups, fill.num_staying, fill.spread, has_fewest_moves, is_best)
