"""The search for the best division. Exact, and fast where the throughput tables allow it.

Every task takes one of its options, and the sizes add up to ``capacity`` at most. The best division
has the largest sum of gains and, of those, the smallest sum of changes. Ties go to the larger size
for the first task, then for the second, and so on. All numbers are integers, so the order of
evaluation can't change the answer.

Workers get a price (``controller.core.rules.planner.shadow_price``). At any price an option *loses*
0 or more against the best option of its task, workers paid for. A worker left idle loses its price.
The best division is the one with the smallest total loss.

So the search looks only at options and partial divisions that lose at most a *gap*. If it finds a
division, no other division can lose less: this proves that it is the best. If it finds none, it
widens the gap, at most up to the loss of a known division.

If gains are nearly concave in the size, the first gap leaves few options. If nothing can be left
out, this is the plain recurrence S(i, j) of the paper
(``controller.core.rules.planner.partial_divisions``).
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
"""Twice this does not fit into 64 bits."""
GAP_GROWTH: Final = 4
"""Factor by which the gap grows."""


def best_division(tasks: Sequence[Options], capacity: int) -> tuple[int, ...] | None:
    """Return the size of every task in the best division.

    Args:
        tasks: The options of each task, in the order of their names.
        capacity: Number of workers.

    Returns:
        Sizes in the order of ``tasks``, at most ``capacity`` together; None if the smallest ones
        are more than that, or a task has no option.
    """
    if any(not len(task.sizes) for task in tasks):
        return None
    if not tasks:
        return () if capacity >= 0 else None
    smallest = [int(task.sizes[0]) for task in tasks]
    room = capacity - sum(smallest)
    if room < 0:
        return None
    # Counting from the smallest size on makes size 0 an option of every task. The price search
    # relies on it.
    growing = [task.beyond_smallest(room) for task in tasks]
    unit = common_unit(growing)
    price = find_shadow_price(growing, unit, room // unit)
    priced = [PricedOptions.at(price.value, task, unit) for task in growing]
    gap = min(price.duality_gap, price.first_gap)
    # The loop ends: a known division loses exactly the duality gap, so the search within that gap
    # finds one.
    while (found := _best_within(gap, priced, price.value, room // unit)) is None:
        gap = min(GAP_GROWTH * gap, price.duality_gap)
    return tuple(base + unit * size for base, size in zip(smallest, found, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class PricedOptions:
    """The options of a task, and the loss of each option at a price.

    Attributes:
        sizes: In units, ascending.
        losses: Loss against the best option of this task, 0 or more.
        changes: Cost of a change of size. Among equal losses the smaller cost wins.
    """

    sizes: IntArray
    losses: IntArray
    changes: IntArray

    @classmethod
    def at(cls, price: int, options: Options, unit: int) -> "PricedOptions":
        """Return the options of a task at a price per unit. There must be at least one option."""
        sizes = options.sizes // unit if unit > 1 else options.sizes
        values = reduced_gains(options.gains, sizes, price, int(sizes[-1]))
        # argmax is several times faster than max.
        return cls(sizes, values[values.argmax()] - values, options.changes)

    def within(self, gap: int) -> "PricedOptions":
        """Return the options that lose at most ``gap``."""
        # Losses add up and are never negative. An option that alone exceeds the gap can't be part
        # of a division within it.
        (kept,) = (self.losses <= gap).nonzero()
        return PricedOptions(self.sizes[kept], self.losses[kept], self.changes[kept])


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """Packs loss and change into one integer, so that comparing scores compares losses first.

    Attributes:
        factor: Larger than any sum of changes.
        gap: The largest loss that the search looks at.
    """

    factor: int
    gap: int

    @classmethod
    def of(cls, tasks: Iterable[PricedOptions], gap: int) -> "ScoreScale":
        """Return the scale for the options of these tasks."""
        return cls(1 + sum(int(task.changes.max()) for task in tasks), gap)

    @property
    def limit(self) -> int:
        """The largest score within the gap."""
        return self.gap * self.factor + self.factor - 1

    @property
    def dtype(self) -> "np.dtype[np.int64]":
        """int64 if it holds the sum of any two scores, else Python integers."""
        # The recurrence adds two scores of at most limit + 1 each, so the sum stays below 2^63.
        is_small = (self.gap + 1) * self.factor < _FAR
        return np.dtype(np.int64 if is_small else cast("type[np.int64]", object))

    def row(self, task: PricedOptions) -> ScoreRow:
        """Return the scores of a task's options."""
        return ScoreRow(task.sizes, task.losses.astype(self.dtype) * self.factor + task.changes)

    def idle_workers(self, price: int, most: int) -> SuffixTable:
        """Return the table behind the last task: the price of up to ``most`` idle workers.

        The table is shorter if ``most`` idle workers would exceed the gap.
        """
        count = min(most, self.gap // price) if price else most
        # The price may exceed the gap here, and then it may not fit into the type.
        if not count:
            return SuffixTable(0, np.zeros(1, self.dtype))
        return SuffixTable(0, np.arange(count + 1).astype(self.dtype) * (price * self.factor))


def _best_within(
    gap: int, tasks: Sequence[PricedOptions], price: int, capacity: int
) -> tuple[int, ...] | None:
    """Return the best division that loses at most ``gap``, in units; None if there is none."""
    kept = [task.within(gap) for task in tasks]
    sizes = [int(task.sizes[0]) for task in kept]
    open_ = [number for number, task in enumerate(kept) if len(task.sizes) > 1]
    # A task with one option left needs no search: deduct its loss and its size in advance.
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
    """Return the best division of these options that loses at most ``gap``; None if none does."""
    if gap < 0 or capacity < 0:
        return None
    if not kept:
        # All sizes are fixed, so the remaining workers stay idle. They cost their price.
        return () if price * capacity <= gap else None
    scale = ScoreScale.of(kept, gap)
    before = [(0, 0)]  # for each task, the fewest and the most workers of the tasks before it
    for task in kept:
        least, most = before[-1]
        before.append((least + int(task.sizes[0]), most + int(task.sizes[-1])))
    fewest, _ = before.pop()
    if fewest > capacity:
        return None
    suffix = scale.idle_workers(price, capacity - fewest)
    for task, (least, most) in zip(reversed(kept), reversed(before), strict=True):
        # Entries that the tasks in front can't complete to the full capacity are dropped. That
        # keeps the tables short where the gap has left few options.
        bounds = Bounds(capacity - most, capacity - least, scale.limit)
        longer = suffix.prepend(scale.row(task), bounds)
        if longer is None:
            return None
        suffix = longer
    return join(PrefixTable.empty(scale.dtype), suffix, capacity, scale.limit)
