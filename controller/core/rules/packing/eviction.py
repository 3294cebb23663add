"""Which held groups give way where not all can stay, so that the fewest ranks move: exact where sizes divide each other.

Two half-empty nodes have no room for a group of two. Somebody has to move, and the question is who.

A node with f free workers has floor(f / s) *places* of size s. A group of size s or more takes up floor(size / s)
of them, so what is to be placed needs so many places of size s in all, those of smaller groups that stay not
counted. Where of any two sizes one divides the other, having enough of every size is also sufficient: a group of a
multiple of s takes up the same number of places in whatever node it goes to, so it does not matter how the larger
groups were placed when the turn comes to size s. A kind that holds more groups than it needs has to give up the
difference. So every node offers options, each with a number of ranks that move, of places, and of groups given
up, and the cheapest options that together reach what is missing are found node by node, over all numbers that may
still be missing.

For other sizes (3 and 2) that is a bound, and each answer is checked by packing the sizes into the rooms that
are left, until one can be packed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.packing.bin_packing import pack_sizes
from controller.core.rules.packing.eviction_options import NEVER, EvictionOptions, divides_all
from controller.core.rules.packing.exhaustive import GroupKind

_MAX_ANSWERS: Final = 2_000
"""Answers that are checked where sizes do not divide each other."""


@dataclass(frozen=True, slots=True)
class Eviction:
    """What stays, and where the rest goes as far as that is of weight.

    Attributes:
        keeps: For every kind, the groups that may stay by node; None where nothing was found.
        places: For every node, the groups of each size that it gets; None where there is room for
            everything as long as the largest groups are placed first.
        is_complete: Whether nothing better exists.
    """

    keeps: Sequence[Mapping[int, int]] | None
    places: Sequence[dict[int, int]] | None
    is_complete: bool


def plan_eviction(
    kinds: Sequence[GroupKind], rooms: Sequence[int], known_staying: int | None
) -> Eviction:
    """Return which groups may stay so that the most ranks do and everything has room.

    Args:
        kinds: What is to be placed.
        rooms: Free workers by node.
        known_staying: Ranks that stay in a known packing; only a better one is looked for.
    """
    need = Counter[int]()
    for kind in kinds:
        need[kind.size] += kind.count
    sizes = sorted(size for size, num in need.items() if num)
    if divides_all(sizes):
        if offers := EvictionOptions.of(kinds, rooms, sizes):
            return _evict_exactly(offers, known_staying)
        # Where nothing stays, there is room for everything.
        nothing: list[dict[int, int]] = [{} for _ in kinds]
        return Eviction(nothing if known_staying is None else None, None, False)
    anyhow, is_sure = pack_sizes(rooms, need)
    if anyhow is None:
        return Eviction(None, None, is_sure)
    offers = EvictionOptions.of(kinds, rooms, sizes)
    found = _evict_and_pack(offers, rooms, need, known_staying) if offers else None
    if found is None and known_staying is None:
        everything = [{v: len(stays) for v, stays in kind.stays.items()} for kind in kinds]
        return Eviction(everything, anyhow, False)
    return found or Eviction(None, None, False)


def has_places(kinds: Sequence[GroupKind], rooms: Sequence[int]) -> bool:
    """Return whether there are enough places of every size: without, there is no packing."""
    return all(
        sum(kind.count * (kind.size // size) for kind in kinds)
        <= sum(room // size for room in rooms)
        for size in {kind.size for kind in kinds}
    )


def _evict_exactly(offers: EvictionOptions, known_staying: int | None) -> Eviction:
    loss = offers.least_loss
    if loss >= NEVER or (known_staying is not None and offers.num_held - loss <= known_staying):
        return Eviction(None, None, True)
    answer = next(offers.answers(loss))
    assert answer is not None, "the least loss has an answer"
    return Eviction(offers.keeps(answer), None, True)


def _evict_and_pack(
    offers: EvictionOptions,
    rooms: Sequence[int],
    need: Mapping[int, int],
    known_staying: int | None,
) -> Eviction | None:
    """Return the cheapest answer that can be packed; None where that takes too many attempts."""
    most = offers.num_held - (0 if known_staying is None else known_staying + 1)
    num_tried = 0
    for loss in range(offers.least_loss, most + 1):
        for answer in offers.answers(loss):
            num_tried += 1
            if num_tried > _MAX_ANSWERS:
                return None
            if answer is None:
                continue
            keeps = offers.keeps(answer)
            packed, is_sure = _pack_around(keeps, offers.kinds, rooms, need)
            if packed is not None:
                return Eviction(keeps, packed, True)
            if not is_sure:
                return None
    return Eviction(None, None, True)


def _pack_around(
    keeps: Sequence[Mapping[int, int]],
    kinds: Sequence[GroupKind],
    rooms: Sequence[int],
    need: Mapping[int, int],
) -> tuple[list[dict[int, int]] | None, bool]:
    """Pack what does not stay into the room that is left; what stays is in the answer too."""
    left, missing = list(rooms), Counter(need)
    kept: list[Counter[int]] = [Counter() for _ in rooms]
    for kind, by_node in zip(kinds, keeps, strict=True):
        for v, num in by_node.items():
            left[v] -= kind.size * num
            kept[v][kind.size] += num
            missing[kind.size] -= num
    packed, is_sure = pack_sizes(left, missing)
    if packed is None:
        return None, is_sure
    return [dict(Counter(new) + old) for new, old in zip(packed, kept, strict=True)], True
