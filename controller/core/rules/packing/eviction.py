"""Which held groups must move where not all can stay, so that the fewest ranks move.

Two half-empty nodes have no room for a group of two. One of the groups there has to move; the
question is which one. The answer is exact where of any two sizes one divides the other.

A node with f free workers has floor(f / s) *places* of size s. A group of size s or more takes
floor(size / s) of them. So the groups to place need a known number of places of each size. Smaller
groups that stay do not count.

If of any two sizes one divides the other, enough places of every size are also sufficient. A group
of a multiple of s takes the same number of places of size s on any node. So the positions of the
larger groups do not matter when size s is placed.

A kind that holds more groups than it needs has to give up the difference. So every node offers
options. Each has a number of ranks that move, of places gained, and of groups given up. The
cheapest combination that reaches the missing numbers is found node by node, with a table over all
numbers that may still be missing.

For other sizes (3 and 2) the places are a bound only. Each answer is checked by packing the sizes
into the remaining rooms, until one fits.

The packing is a depth-first search with memory. The largest nodes are filled first, each in every
way that leaves no room for another missing group. If the search fails after a node, the missing
groups are remembered and not tried there again. Whose groups these are does not matter here.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.packing.eviction_options import NEVER, EvictionOptions, divides_all
from controller.core.rules.packing.exhaustive import GroupKind

_MAX_ANSWERS: Final = 2_000
"""Number of answers that are checked where sizes do not divide each other."""

_MAX_PATTERNS: Final = 100_000
"""Number of ways to fill a node after which the search gives up."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """Which groups stay where they are, and where the others have room.

    Attributes:
        keeps: For every kind, how many of its groups stay on each node; None if no answer was
            found.
        places: For every node, how many groups of each size it gets besides. None if that need not
            be followed: the others have room if the largest are placed first.
        is_complete: Whether it is proven that no other answer lets more ranks stay.
    """

    keeps: Sequence[Mapping[int, int]] | None
    places: Sequence[dict[int, int]] | None
    is_complete: bool


def plan_eviction(
    kinds: Sequence[GroupKind], rooms: Sequence[int], known_staying: int | None
) -> Eviction:
    """Return which held groups stay, so that all groups have room and the most ranks stay.

    Args:
        kinds: The groups to place, and what each node holds of them.
        rooms: Free workers by node, those under held groups included.
        known_staying: Ranks that stay in a packing that is known already; None if none is known.

    Returns:
        An answer in which more than ``known_staying`` ranks stay. No answer (``keeps`` is None) if
        there is none (``is_complete``), or none was found in time.
    """
    need = Counter[int]()
    for kind in kinds:
        need[kind.size] += kind.count
    sizes = sorted(size for size, num in need.items() if num)
    if divides_all(sizes):
        if options := EvictionOptions.of(kinds, rooms, sizes):
            return _evict_exactly(options, known_staying)
        # Too many options to compare. If no group stays everything has room, so this is an answer
        # without a proof.
        nothing: list[dict[int, int]] = [{} for _ in kinds]
        return Eviction(nothing if known_staying is None else None, None, False)
    # Without regard to present places first: if not even that works, no eviction can help.
    anyhow, is_sure = _pack_sizes(rooms, need)
    if anyhow is None:
        return Eviction(None, None, is_sure)
    options = EvictionOptions.of(kinds, rooms, sizes)
    found = _evict_and_pack(options, rooms, need, known_staying) if options else None
    if found is None and known_staying is None:
        # No cheapest answer was proven in time. Any packing is better than none, so the first one
        # found is used.
        everything = [{v: len(stays) for v, stays in kind.stays.items()} for kind in kinds]
        return Eviction(everything, anyhow, False)
    return found or Eviction(None, None, False)


def has_places(kinds: Sequence[GroupKind], rooms: Sequence[int]) -> bool:
    """Return False only if no packing exists: some size has fewer places than groups need.

    True proves that there is one if of any two sizes one divides the other, else nothing.

    Args:
        kinds: The groups to place. What nodes hold of them does not count.
        rooms: Free workers by node, those under held groups included.
    """
    return all(
        sum(kind.count * (kind.size // size) for kind in kinds)
        <= sum(room // size for room in rooms)
        for size in {kind.size for kind in kinds}
    )


def _evict_exactly(options: EvictionOptions, known_staying: int | None) -> Eviction:
    """Return the cheapest answer. Sizes must divide each other."""
    loss = options.least_loss
    # The least loss is exact here, so a known packing with as few moves can't be beaten.
    if loss >= NEVER or (known_staying is not None and options.num_held - loss <= known_staying):
        return Eviction(None, None, True)
    answer = next(options.answers(loss))
    assert answer is not None, "the least loss has an answer"
    return Eviction(options.keeps(answer), None, True)


def _evict_and_pack(
    options: EvictionOptions,
    rooms: Sequence[int],
    need: Mapping[int, int],
    known_staying: int | None,
) -> Eviction | None:
    """Return the cheapest answer that can be packed; None if that takes too many attempts."""
    most = options.num_held - (0 if known_staying is None else known_staying + 1)
    num_tried = 0
    for loss in range(options.least_loss, most + 1):
        for answer in options.answers(loss):
            num_tried += 1
            if num_tried > _MAX_ANSWERS:
                return None
            if answer is None:
                continue
            keeps = options.keeps(answer)
            packed, is_sure = _pack_around(keeps, options.kinds, rooms, need)
            if packed is not None:
                return Eviction(keeps, packed, True)
            # Whether this answer can be packed is not decided. A dearer answer would then be called
            # the cheapest without proof.
            if not is_sure:
                return None
    return Eviction(None, None, True)


def _pack_around(
    keeps: Sequence[Mapping[int, int]],
    kinds: Sequence[GroupKind],
    rooms: Sequence[int],
    need: Mapping[int, int],
) -> tuple[list[dict[int, int]] | None, bool]:
    """Pack the moving groups into the remaining room. The result includes the groups that stay."""
    left, missing = list(rooms), Counter(need)
    kept: list[Counter[int]] = [Counter() for _ in rooms]
    for kind, by_node in zip(kinds, keeps, strict=True):
        for v, num in by_node.items():
            left[v] -= kind.size * num
            kept[v][kind.size] += num
            missing[kind.size] -= num
    packed, is_sure = _pack_sizes(left, missing)
    if packed is None:
        return None, is_sure
    return [dict(Counter(new) + old) for new, old in zip(packed, kept, strict=True)], True


def _pack_sizes(
    rooms: Sequence[int], need: Mapping[int, int]
) -> tuple[list[dict[int, int]] | None, bool]:
    """Return how many groups of each size every node gets, and whether the answer is certain.

    Args:
        rooms: Free workers by node, 0 or more.
        need: How many groups of each size are placed, by size; sizes are 1 or more.

    Returns:
        For every node, its groups by size. Over all nodes they are ``need``, and no node gets more
        workers than it has. With True, None means that there is no such packing. With False, there
        is always None: the search was given up after ``_MAX_PATTERNS`` fillings.
    """
    sizes = sorted((size for size, num in need.items() if num), reverse=True)
    order = sorted(range(len(rooms)), key=lambda v: -rooms[v])
    # Workers of each node and all following ones: a bound for the groups that can still be placed.
    rest = [*itertools.accumulate((rooms[v] for v in reversed(order)), initial=0)][::-1]
    left = tuple(need[size] for size in sizes)
    failed: set[tuple[int, tuple[int, ...]]] = set()
    ways = [_maximal_fillings(rooms[order[0]], sizes, left)] if order else []
    path: list[tuple[int, ...]] = []
    lefts = [left]
    num_tried = 0
    while any(lefts[-1]):
        filling = next(ways[-1], None) if ways else None
        if filling is None:
            if not path:
                return None, True
            # Success depends on the depth and the missing groups only, not on the way there. So one
            # failure settles both.
            failed.add((len(path), lefts.pop()))
            path.pop()
            ways.pop()
            continue
        num_tried += 1
        if num_tried > _MAX_PATTERNS:
            return None, False
        after = tuple(a - b for a, b in zip(lefts[-1], filling, strict=True))
        depth = len(path) + 1
        wanted = sum(size * num for size, num in zip(sizes, after, strict=True))
        if wanted > rest[depth] or (depth, after) in failed:
            continue
        if any(after) and depth == len(order):
            continue
        path.append(filling)
        lefts.append(after)
        ways.append(
            _maximal_fillings(rooms[order[depth]] if depth < len(order) else 0, sizes, after)
        )
    packed: list[dict[int, int]] = [{} for _ in rooms]
    for v, filling in zip(order, path, strict=False):
        packed[v] = {size: num for size, num in zip(sizes, filling, strict=True) if num}
    return packed, True


def _maximal_fillings(
    room: int, sizes: Sequence[int], left: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield the ways to fill a node that leave no room for a missing group, large groups first."""
    stack: list[tuple[tuple[int, ...], int]] = [((), room)]
    while stack:
        filling, free = stack.pop()
        i = len(filling)
        if i < len(sizes):
            most = min(left[i], free // sizes[i])
            stack += [((*filling, num), free - num * sizes[i]) for num in range(most + 1)]
        # A filling with room for one more missing group is dominated: adding the group leaves less
        # for the other nodes to take.
        elif all(
            free < size or num == missing
            for size, num, missing in zip(sizes, filling, left, strict=True)
        ):
            yield filling
