"""The search for the best division: exact, and fast where the tables let it be.

Every task takes one of its options; the sizes may add up to ``capacity`` at most. Wanted is, in this
order: the largest sum of gains, the smallest sum of changes, the larger size for the first task, then
for the second, and so on. All numbers are whole, so no order of evaluation can change the answer.

Workers are given a price (``controller.core.rules.planner.shadow_price``). At any price, what an option loses against the best
that its task could do, sizes paid for, is 0 or more; so is the price of every worker left idle; and the
best division is the one that loses least in all. So only options and partial divisions within a *gap*
of lost gain are looked at. If a division is found among them, no other can lose less: it is the
best, by proof. If none is, the gap is made wider; at the latest it reaches what some known division
loses. Where gains are nearly concave in the size the first gap leaves few options; where
nothing can be left out this is the plain recurrence, S(i, j) of the paper (``controller.core.rules.planner.partial_divisions``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from controller.core.rules.planner.options import IntArray, Options, common_unit
from controller.core.rules.planner.partial_divisions import (
    Bounds,
    PrefixTable,
    ScoreRow,
    SuffixTable,
    join,
)
from controller.core.rules.planner.shadow_price import find_shadow_price, reduced_gains

_FAR: Final = 2**62
"""Twice this is too much for 64 bits."""
GAP_GROWTH: Final = 4
"""By how much the gap grows."""


def best_division(tasks: Sequence[Options], capacity: int) -> tuple[int, ...] | None:
    """Return the size of every task in the best division; None where no division fits."""
    if any(not len(task.sizes) for task in tasks):
        return None
    if not tasks:
        return () if capacity >= 0 else None
    smallest = [int(task.sizes[0]) for task in tasks]
    room = capacity - sum(smallest)
    if room < 0:
        return None
    growing = [task.beyond_smallest(room) for task in tasks]
    unit = common_unit(growing)
    price = find_shadow_price(growing, unit, room // unit)
    priced = [PricedOptions.at(price.value, task, unit) for task in growing]
    gap = min(price.duality_gap, price.first_gap)
    while (found := _best_within(gap, priced, price.value, room // unit)) is None:
        gap = min(GAP_GROWTH * gap, price.duality_gap)
    return tuple(base + unit * size for base, size in zip(smallest, found, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class PricedOptions:
    """What a task may take, and what each option loses at a price.

    Attributes:
        sizes: In units, ascending.
        losses: Against the option that is worth most, 0 or more.
        changes: What to have little of among equal losses.
    """

    sizes: IntArray
    losses: IntArray
    changes: IntArray

    @classmethod
    def at(cls, price: int, options: Options, unit: int) -> "PricedOptions":
        """Return the options of a task, one at least, at a price per unit."""
        sizes = options.sizes // unit if unit > 1 else options.sizes
        values = reduced_gains(options.gains, sizes, price, int(sizes[-1]))
        # argmax is several times faster than max.
        return cls(sizes, values[values.argmax()] - values, options.changes)

    def within(self, gap: int) -> "PricedOptions":
        """Return the options that lose at most ``gap``."""
        (kept,) = (self.losses <= gap).nonzero()
        return PricedOptions(self.sizes[kept], self.losses[kept], self.changes[kept])


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """Lost gain first, then change: how one number holds both.

    Attributes:
        factor: More than any sum of changes.
        gap: The largest loss that is looked at.
    """

    factor: int
    gap: int

    @classmethod
    def of(cls, tasks: Iterable[PricedOptions], gap: int) -> "ScoreScale":
        """Return the scale for options of these tasks."""
        return cls(1 + sum(int(task.changes.max()) for task in tasks), gap)

    @property
    def limit(self) -> int:
        """The largest score within the gap."""
        return self.gap * self.factor + self.factor - 1

    @property
    def dtype(self) -> "np.dtype[np.int64]":
        """64 bits where they hold every score, else Python's numbers."""
        is_small = (self.gap + 1) * self.factor < _FAR
        return np.dtype(np.int64 if is_small else cast("type[np.int64]", object))

    def row(self, task: PricedOptions) -> ScoreRow:
        """Return the scores of a task's options."""
        return ScoreRow(task.sizes, task.losses.astype(self.dtype) * self.factor + task.changes)

    def idle_workers(self, price: int, most: int) -> SuffixTable:
        """Return the suffix behind the last task: workers left idle, ``most`` or those within the gap."""
        count = min(most, self.gap // price) if price else most
        if not count:  # the price may be beyond the gap then, and too large for the type
            return SuffixTable(0, np.zeros(1, self.dtype))
        return SuffixTable(0, np.arange(count + 1).astype(self.dtype) * (price * self.factor))


def _best_within(
    gap: int, tasks: Sequence[PricedOptions], price: int, capacity: int
) -> tuple[int, ...] | None:
    """Return the best of the divisions that lose at most ``gap``, in units; None if there is none."""
    kept = [task.within(gap) for task in tasks]
    sizes = [int(task.sizes[0]) for task in kept]
    open_ = [number for number, task in enumerate(kept) if len(task.sizes) > 1]
    # Where one option is left there is nothing to search: it takes its part of gap and capacity.
    for task, size in zip(kept, sizes, strict=True):
        if len(task.sizes) == 1:
            gap, capacity = gap - int(task.losses[0]), capacity - size
    found = _best_of(gap, [kept[number] for number in open_], price, capacity)
    if found is None:
        return None
    for number, size in zip(open_, found, strict=True):
        sizes[number] = size
    return tuple(sizes)


def _best_of(
    gap: int, kept: Sequence[PricedOptions], price: int, capacity: int
) -> tuple[int, ...] | None:
    """Return the best of the divisions of these options that lose at most ``gap``; None if there is none."""
    if gap < 0 or capacity < 0:
        return None
    if not kept:
        return () if price * capacity <= gap else None
    scale = ScoreScale.of(kept, gap)
    before = [(0, 0)]  # the fewest and the most workers of the tasks before each
    for task in kept:
        least, most = before[-1]
        before.append((least + int(task.sizes[0]), most + int(task.sizes[-1])))
    fewest, _ = before.pop()
    if fewest > capacity:
        return None
    suffix = scale.idle_workers(price, capacity - fewest)
    for task, (least, most) in zip(reversed(kept), reversed(before), strict=True):
        bounds = Bounds(capacity - most, capacity - least, scale.limit)
        longer = suffix.prepend(scale.row(task), bounds)
        if longer is None:
            return None
        suffix = longer
    return join(PrefixTable.empty(scale.dtype), suffix, capacity, scale.limit)
