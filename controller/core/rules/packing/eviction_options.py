"""The groups that each node could give up, and the cheapest options that give the others room."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.core.rules.packing.exhaustive import GroupKind

_MAX_OPTIONS: Final = 5_000
"""Limit for the options of one node. Only a node with more than eight kinds can exceed it."""
_MAX_TABLE: Final = 10_000_000
"""Limit for the numbers in all tables together."""
NEVER: Final = 2**40
"""A loss above that of any answer."""

Table = NDArray[np.int64]


def divides_all(sizes: Sequence[int]) -> bool:
    """Return whether each size divides the next larger one. ``sizes`` ascend."""
    return all(large % small == 0 for small, large in itertools.pairwise(sizes))


@dataclass(frozen=True, slots=True)
class NodeEviction:
    """One set of the groups that a node holds, given up together.

    Attributes:
        loss: Ranks that would stay there and have to move.
        gains: What that gives: first the places of each size on the node afterwards, then, for each
            kind that holds more groups than it needs, how many of them are given up.
        keeps: For each kind, how many of its groups stay on the node.
    """

    loss: int
    gains: tuple[int, ...]
    keeps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class EvictionOptions:
    """What each node could give up, and how much all nodes must give up together.

    An answer takes one option of every node. It suffices if, for each gain, the sum over the nodes
    is ``missing`` or more.

    Attributes:
        kinds: The groups to place.
        num_held: Ranks that stay if no group is given up.
        missing: How much more of each gain is needed than all nodes give with their least option.
        options: For each node, its options, with gains counted beyond its least; ascending by loss.
        tables: For each node, the least loss of it and all later nodes, by what is still missing.
    """

    kinds: Sequence[GroupKind]
    num_held: int
    missing: tuple[int, ...]
    options: Sequence[Sequence[NodeEviction]]
    tables: Sequence[Table]

    @classmethod
    def of(
        cls, kinds: Sequence[GroupKind], rooms: Sequence[int], sizes: Sequence[int]
    ) -> "EvictionOptions | None":
        """Return the options of all nodes; None if they, or the tables over them, are too large.

        Args:
            kinds: The groups to place, and what each node holds of them.
            rooms: Free workers by node, those under held groups included.
            sizes: The sizes of which places must suffice, ascending.
        """
        # A kind with a surplus has to give up the difference, even if there were room for all.
        surplus = [k for k, kind in enumerate(kinds) if kind.num_held(rooms) > kind.count]
        need = [
            *(sum(kind.count * (kind.size // size) for kind in kinds) for size in sizes),
            *(kinds[k].num_held(rooms) - kinds[k].count for k in surplus),
        ]
        held = sum(sum(kind.usable_stays(v, rooms[v])) for kind in kinds for v in kind.stays)
        options: list[list[NodeEviction]] = []
        for v, room in enumerate(rooms):
            found = _options_of(v, room, kinds, sizes, surplus)
            if found is None:
                return None
            options.append(found)
            # Every node gains at least its minimum, whatever it chooses. Counting only what goes
            # beyond it keeps the tables small.
            need = [n - min(o.gains[i] for o in found) for i, n in enumerate(need)]
        missing = tuple(max(0, n) for n in need)
        # If sizes do not divide each other, gains do not say everything about an option: a
        # dominated option may be the only one that can be packed.
        prune = divides_all(sizes)
        useful = [_over_least(found, missing, prune=prune) for found in options]
        tables = _tables(useful, missing)
        return cls(kinds, held, missing, useful, tables) if tables else None

    @property
    def least_loss(self) -> int:
        """Fewest ranks that must move; ``NEVER`` or more if no combination is sufficient."""
        return int(self.tables[0][self.missing])

    def answers(self, loss: int) -> Iterator[list[NodeEviction] | None]:
        """Yield each choice of one option per node that suffices and loses ``loss`` ranks.

        In between, None is yielded for each choice that loses fewer ranks, so that the caller can
        count steps and stop: there may be many of them before the next answer.
        """
        stack: list[tuple[int, tuple[int, ...], int, _Chosen]] = [(0, self.missing, loss, None)]
        while stack:
            node, missing, left, chosen = stack.pop()
            if node == len(self.options):
                yield None if left else _in_node_order(chosen)
                continue
            for option in reversed(self.options[node]):
                after = tuple(max(0, m - g) for m, g in zip(missing, option.gains, strict=True))
                # The table holds the exact least loss of the remaining nodes, so the search enters
                # no branch without an answer.
                if self.tables[node + 1][after] <= left - option.loss:
                    stack.append((node + 1, after, left - option.loss, (chosen, option)))

    def keeps(self, answer: Sequence[NodeEviction]) -> list[dict[int, int]]:
        """Return the groups that stay by node, for every kind."""
        keeps: list[dict[int, int]] = [{} for _ in self.kinds]
        for v, option in enumerate(answer):
            for k, num in option.keeps.items():
                keeps[k][v] = num
        return keeps


_Chosen = tuple["_Chosen", NodeEviction] | None
"""The options chosen so far, as a linked list: branches of the search share their beginning."""


def _in_node_order(chosen: _Chosen) -> list[NodeEviction]:
    answer: list[NodeEviction] = []
    while chosen:
        chosen, option = chosen
        answer.append(option)
    return answer[::-1]


def _options_of(
    v: int, room: int, kinds: Sequence[GroupKind], sizes: Sequence[int], surplus: Sequence[int]
) -> list[NodeEviction] | None:
    """Return every way to give up held groups of a node; None if there are too many."""
    alike: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for k, kind in enumerate(kinds):
        for stay in kind.usable_stays(v, room):
            # Groups with the same size, the same staying ranks and no surplus are interchangeable.
            # Giving them up in one order only avoids equal options. A kind with a surplus counts by
            # itself, because its gain differs.
            alike[(kind.size, stay, k if k in surplus else -1)].append(k)
    if math.prod(len(each) + 1 for each in alike.values()) > _MAX_OPTIONS:
        return None
    options: list[NodeEviction] = []
    for nums in itertools.product(*(range(len(each) + 1) for each in alike.values())):
        loss, given_up = 0, Counter[int]()
        kept, used = Counter[int](), Counter[int]()
        for ((size, stay, _), each), num in zip(alike.items(), nums, strict=True):
            kept.update(each[: len(each) - num])
            given_up.update(each[len(each) - num :])
            used[size] += size * (len(each) - num)
            loss += stay * num
        # A remnant of a group counts with its full size, so the groups that stay may not fit
        # together.
        if used.total() > room:
            continue
        # Only smaller groups that stay reduce the places of a size. Larger ones are part of the
        # need, which counts them too.
        places = (
            (room - sum(num for small, num in used.items() if small < size)) // size
            for size in sizes
        )
        gains = (*places, *(given_up[k] for k in surplus))
        options.append(NodeEviction(loss, gains, dict(kept)))
    return options


def _over_least(
    options: Sequence[NodeEviction], missing: tuple[int, ...], *, prune: bool
) -> list[NodeEviction]:
    """Return the options by loss, with their gains beyond the least.

    With ``prune``, dominated options are left out.
    """
    base = [min(option.gains[i] for option in options) for i in range(len(missing))]
    # Ascending by loss, so an option can only be dominated by one that is already in the list.
    useful: list[NodeEviction] = []
    for option in sorted(options, key=lambda option: option.loss):
        gains = tuple(
            # More than the missing number is of no value, and would only make dominated options
            # look different.
            min(gain - least, most)
            for gain, least, most in zip(option.gains, base, missing, strict=True)
        )
        is_beaten = prune and any(
            all(g <= h for g, h in zip(gains, other.gains, strict=True)) for other in useful
        )
        if not is_beaten:
            useful.append(NodeEviction(option.loss, gains, option.keeps))
    return useful


def _tables(
    options: Sequence[Sequence[NodeEviction]], missing: tuple[int, ...]
) -> list[Table] | None:
    """Return, from each node on, the least loss for every combination of missing numbers."""
    shape = tuple(num + 1 for num in missing)
    # A node with one free option changes no table, so it costs no memory.
    num_open = sum(len(each) > 1 or each[0].loss > 0 for each in options)
    if math.prod(shape) * (num_open + 1) > _MAX_TABLE:
        return None
    table = np.full(shape, NEVER)
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
