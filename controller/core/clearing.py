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

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.core.filling import pack_sizes
from controller.core.packing_search import Kind

_MAX_OPTIONS: Final = 5_000
"""Of one node; more than 2^8 takes a node with more than eight kinds of groups."""
_MAX_TABLE: Final = 10_000_000
"""Numbers in all tables."""
_MAX_ANSWERS: Final = 2_000
"""Answers that are checked where sizes do not divide each other."""
_NEVER: Final = 2**40

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cleared:
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


def clear(kinds: Sequence[Kind], rooms: Sequence[int], known_staying: int | None) -> Cleared:
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
        if offers := _Offers.of(kinds, rooms, sizes):
            return _clear_exactly(offers, known_staying)
        # Where nothing stays, there is room for everything.
        nothing: list[dict[int, int]] = [{} for _ in kinds]
        return Cleared(nothing if known_staying is None else None, None, False)
    anyhow, is_sure = pack_sizes(rooms, need)
    if anyhow is None:
        return Cleared(None, None, is_sure)
    offers = _Offers.of(kinds, rooms, sizes)
    found = _clear_and_pack(offers, rooms, need, known_staying) if offers else None
    if found is None and known_staying is None:
        everything = [{v: len(stays) for v, stays in kind.stays.items()} for kind in kinds]
        return Cleared(everything, anyhow, False)
    return found or Cleared(None, None, False)


def has_places(kinds: Sequence[Kind], rooms: Sequence[int]) -> bool:
    """Return whether there are enough places of every size: without, there is no packing."""
    return all(
        sum(kind.count * (kind.size // size) for kind in kinds)
        <= sum(room // size for room in rooms)
        for size in {kind.size for kind in kinds}
    )


def divides_all(sizes: Sequence[int]) -> bool:
    """Return whether of any two sizes, ascending, one divides the other."""
    return all(large % small == 0 for small, large in itertools.pairwise(sizes))


def _clear_exactly(offers: "_Offers", known_staying: int | None) -> Cleared:
    loss = offers.least_loss
    if loss >= _NEVER or (known_staying is not None and offers.num_held - loss <= known_staying):
        return Cleared(None, None, True)
    answer = next(offers.answers(loss))
    assert answer is not None, "the least loss has an answer"
    return Cleared(offers.keeps(answer), None, True)


def _clear_and_pack(
    offers: "_Offers", rooms: Sequence[int], need: Mapping[int, int], known_staying: int | None
) -> Cleared | None:
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
                return Cleared(keeps, packed, True)
            if not is_sure:
                return None
    return Cleared(None, None, True)


def _pack_around(
    keeps: Sequence[Mapping[int, int]],
    kinds: Sequence[Kind],
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


@dataclass(frozen=True, slots=True)
class _Option:
    """What a node may give up.

    Attributes:
        loss: Ranks that move.
        gains: Places of every size, then groups given up of every kind that holds too many.
        keeps: Groups that stay, by kind.
    """

    loss: int
    gains: tuple[int, ...]
    keeps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Offers:
    """What the nodes may give up, and how much they have to.

    Attributes:
        kinds: What is to be placed.
        num_held: Ranks that stay if nobody gives up anything.
        missing: Of each gain, how much the nodes are short of where they give up the least.
        options: By node, what is beyond that; ascending by loss.
        tables: From each node on, the least loss by what is still missing.
    """

    kinds: Sequence[Kind]
    num_held: int
    missing: tuple[int, ...]
    options: Sequence[Sequence[_Option]]
    tables: Sequence[Table]

    @classmethod
    def of(
        cls, kinds: Sequence[Kind], rooms: Sequence[int], sizes: Sequence[int]
    ) -> "_Offers | None":
        """Return the offers; None where they are too many."""
        surplus = [k for k, kind in enumerate(kinds) if kind.num_held(rooms) > kind.count]
        need = [
            *(sum(kind.count * (kind.size // size) for kind in kinds) for size in sizes),
            *(kinds[k].num_held(rooms) - kinds[k].count for k in surplus),
        ]
        held = sum(sum(kind.usable_stays(v, rooms[v])) for kind in kinds for v in kind.stays)
        options: list[list[_Option]] = []
        for v, room in enumerate(rooms):
            found = _options_of(v, room, kinds, sizes, surplus)
            if found is None:
                return None
            options.append(found)
            need = [n - min(o.gains[i] for o in found) for i, n in enumerate(need)]
        missing = tuple(max(0, n) for n in need)
        # Where sizes do not divide each other, more counts than the gains.
        prune = divides_all(sizes)
        useful = [_over_least(found, missing, prune=prune) for found in options]
        tables = _tables(useful, missing)
        return cls(kinds, held, missing, useful, tables) if tables else None

    @property
    def least_loss(self) -> int:
        """Fewest ranks that must move; ``_NEVER`` or more where nothing helps."""
        return int(self.tables[0][self.missing])

    def answers(self, loss: int) -> Iterator[list[_Option] | None]:
        """Yield the choices of one option per node that lose so many ranks and reach what is missing.

        None stands for one that loses fewer: it may take many of them to come to the next.
        """
        stack: list[tuple[int, tuple[int, ...], int, _Chain]] = [(0, self.missing, loss, None)]
        while stack:
            node, missing, left, chain = stack.pop()
            if node == len(self.options):
                yield None if left else _unchained(chain)
                continue
            for option in reversed(self.options[node]):
                after = tuple(max(0, m - g) for m, g in zip(missing, option.gains, strict=True))
                if self.tables[node + 1][after] <= left - option.loss:
                    stack.append((node + 1, after, left - option.loss, (chain, option)))

    def keeps(self, answer: Sequence[_Option]) -> list[dict[int, int]]:
        """Return the groups that stay by node, for every kind."""
        keeps: list[dict[int, int]] = [{} for _ in self.kinds]
        for v, option in enumerate(answer):
            for k, num in option.keeps.items():
                keeps[k][v] = num
        return keeps


_Chain = tuple["_Chain", _Option] | None


def _unchained(chain: _Chain) -> list[_Option]:
    answer: list[_Option] = []
    while chain:
        chain, option = chain
        answer.append(option)
    return answer[::-1]


def _options_of(
    v: int, room: int, kinds: Sequence[Kind], sizes: Sequence[int], surplus: Sequence[int]
) -> list[_Option] | None:
    """Return every way to give up held groups of a node; groups that are alike give way in one order."""
    alike: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for k, kind in enumerate(kinds):
        for stay in kind.usable_stays(v, room):
            alike[(kind.size, stay, k if k in surplus else -1)].append(k)
    if math.prod(len(each) + 1 for each in alike.values()) > _MAX_OPTIONS:
        return None
    options: list[_Option] = []
    for nums in itertools.product(*(range(len(each) + 1) for each in alike.values())):
        loss, given_up = 0, Counter[int]()
        kept, used = Counter[int](), Counter[int]()
        for ((size, stay, _), each), num in zip(alike.items(), nums, strict=True):
            kept.update(each[: len(each) - num])
            given_up.update(each[len(each) - num :])
            used[size] += size * (len(each) - num)
            loss += stay * num
        if used.total() > room:
            continue
        places = (
            (room - sum(num for small, num in used.items() if small < size)) // size
            for size in sizes
        )
        gains = (*places, *(given_up[k] for k in surplus))
        options.append(_Option(loss, gains, dict(kept)))
    return options


def _over_least(
    options: Sequence[_Option], missing: tuple[int, ...], *, prune: bool
) -> list[_Option]:
    """Return the options by loss, with what they gain over the least; perhaps only those that nothing beats."""
    base = [min(option.gains[i] for option in options) for i in range(len(missing))]
    useful: list[_Option] = []
    for option in sorted(options, key=lambda option: option.loss):
        gains = tuple(
            min(gain - least, most)
            for gain, least, most in zip(option.gains, base, missing, strict=True)
        )
        is_beaten = prune and any(
            all(g <= h for g, h in zip(gains, other.gains, strict=True)) for other in useful
        )
        if not is_beaten:
            useful.append(_Option(option.loss, gains, option.keeps))
    return useful


def _tables(options: Sequence[Sequence[_Option]], missing: tuple[int, ...]) -> list[Table] | None:
    """Return, from each node on, the least loss for everything that may be missing."""
    shape = tuple(num + 1 for num in missing)
    num_open = sum(len(each) > 1 or each[0].loss > 0 for each in options)
    if math.prod(shape) * (num_open + 1) > _MAX_TABLE:
        return None
    table = np.full(shape, _NEVER)
    table[(0,) * len(shape)] = 0
    tables = [table]
    for each in reversed(options):
        if len(each) > 1 or each[0].loss:
            ways = [
                option.loss
                + table[
                    np.ix_(
                        *(
                            np.maximum(np.arange(num) - gain, 0)
                            for num, gain in zip(shape, option.gains, strict=True)
                        )
                    )
                ]
                for option in each
            ]
            table = np.minimum.reduce(ways)
        tables.append(table)
    return tables[::-1]
