"""Whether groups of some sizes fit into some nodes, where the sizes do not divide each other.

A depth-first search with memory. The largest nodes are filled first, each in every way that leaves
no room for another missing group. If the search fails after a node, the missing groups are
remembered and not tried there again. Whose groups these are does not matter here.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_MAX_PATTERNS: Final = 100_000
"""Number of ways to fill a node after which the search gives up."""


def pack_sizes(
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
