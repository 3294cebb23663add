"""The shadow price of a worker: at this price the tasks together buy about as many as there are.

At a given price every task takes the size with the largest gain after paying for its workers. The
sum of these gains, plus the price of the capacity, is an upper bound for every division. The price
is a Lagrange multiplier and the bound is its dual function.

The bound is convex in the price. The search for the lowest bound starts with a price that is too
low and one that is high enough. At a price that is too low the tasks take more workers than there
are. Each step evaluates the price where the two tangents meet.

A higher price never makes a task take more. So between two prices only the sizes between the two
choices have to be examined again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.core.rules.planner.options import IntArray, Options

_ABSENT: Final = -(2**61)
"""Gain of a padding column: below every real gain, and still far from the limit of 64 bits."""
_NARROW: Final = 64
"""Tables with fewer columns than this are not narrowed: copying them costs more than it saves."""


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """The price with the lowest bound that was found.

    Attributes:
        value: Gain per unit of workers, 0 or more.
        duality_gap: Bound minus the gain of a known division. The best division loses no more than
            this.
    """

    value: int
    duality_gap: int

    @property
    def first_gap(self) -> int:
        """The first gap to search: about the worth of one unit of workers."""
        # At least 1, because the search multiplies the gap until it is wide enough.
        return max(1, self.value)


@dataclass(frozen=True, slots=True)
class _DualPoint:
    """The choices of all tasks at one price, and their sums."""

    price: int
    gain: int
    size: int
    columns: IntArray

    def bound(self, capacity: int) -> int:
        """Return the upper bound for the gain of any division of ``capacity``."""
        # Each task's choice maximises gain minus price times size, and the sizes of a division sum
        # to at most the capacity. So no division gains more.
        return self.gain + self.price * (capacity - self.size)


def find_shadow_price(tasks: Sequence[Options], unit: int, capacity: int) -> ShadowPrice:
    """Return the price at which the bound is lowest, or close to the lowest. Any price is valid.

    Args:
        tasks: At least one task. Each begins with size 0.
        unit: Number that divides all sizes.
        capacity: In units; no size is larger.
    """
    window = _Window.of(tasks, unit)
    low = feasible = window.choices_at(0)
    points = [low]
    if low.size > capacity:
        # Price 0 needs more workers than there are. The other end of the interval is a price at
        # which every task takes its smallest size, which always fits.
        high = feasible = window.smallest()
        points.append(high)
    else:
        high = low
    while high.price - low.price > 1:
        price = (low.gain - high.gain) // (low.size - high.size)
        # Rounding down may land on an end of the interval. A step of 1 inside it guarantees
        # progress.
        if not low.price < price < high.price:
            price = low.price + 1 if price <= low.price else high.price - 1
        at = window.choices_at(price)
        points.append(at)
        # The bound is lowest here if the choices use the capacity exactly, because its slope is 0
        # then. It is also lowest if it lies on the two tangents: they meet in its corner.
        is_corner = at.size == capacity or at.bound(capacity) <= max(
            low.gain + price * (capacity - low.size), high.gain + price * (capacity - high.size)
        )
        # Choices that fit are a real division. The best of them gives the duality gap.
        if at.size <= capacity:
            feasible = max(feasible, at, key=lambda each: each.gain)
            high = at
        else:
            low = at
        if is_corner:
            break
        window.narrow(high.columns, low.columns)
    # The last price need not be the best one, so the lowest bound of all steps counts.
    best = min(points, key=lambda each: each.bound(capacity))
    return ShadowPrice(best.price, best.bound(capacity) - feasible.gain)


def reduced_gains(gains: IntArray, sizes: IntArray, price: int, largest: int) -> IntArray:
    """Return each gain minus the price of its workers, exactly.

    Args:
        gains: By option.
        sizes: By option, in units.
        price: For one unit.
        largest: No size is larger.

    Returns:
        64-bit integers, or Python integers where 64 bits are too few.
    """
    if price * largest < -_ABSENT:
        return gains - price * sizes
    exact: IntArray = gains - price * sizes.astype(object)
    return exact


class _Window:
    """The options that tasks can still choose between the two prices: a range of columns per task.

    Args:
        sizes: [tasks, columns] In units.
        gains: [tasks, columns]
        first: [tasks] Index of each range's first column among the task's options.
    """

    def __init__(self, sizes: IntArray, gains: IntArray, first: IntArray) -> None:
        self._sizes, self._gains, self._first = sizes, gains, first
        self._rows = np.arange(len(sizes))
        self._largest = int(sizes.max())

    @classmethod
    def of(cls, tasks: Sequence[Options], unit: int) -> "_Window":
        """Return a window over all options. Shorter rows are padded with options of no worth."""
        width = max(len(task.sizes) for task in tasks)
        sizes = np.zeros((len(tasks), width), np.int64)
        # A padding column has size 0 and a gain below all others, so no price makes it the best
        # choice.
        gains = np.full((len(tasks), width), _ABSENT)
        for row, task in enumerate(tasks):
            sizes[row, : len(task.sizes)] = task.sizes
            gains[row, : len(task.sizes)] = task.gains
        if unit > 1:
            sizes //= unit
        return cls(sizes, gains, np.zeros(len(tasks), np.int64))

    def smallest(self) -> _DualPoint:
        """Return the smallest size of each task, and a price at which each takes that size.

        Before: ``narrow`` was not called. It would have taken the smallest sizes away.
        """
        gains = self._gains[:, 0]
        # One more than the largest difference of gains: at this price not even one more unit pays
        # off.
        price = int((self._gains.max(axis=1) - gains).max()) + 1
        return _DualPoint(price, int(gains.sum()), 0, np.zeros_like(self._first))

    def choices_at(self, price: int) -> _DualPoint:
        """Return the best choice of every task at a price; of equal choices the smallest."""
        # argmax returns the first maximum, so of equal choices the smaller size. That keeps the
        # division more likely to fit.
        best = reduced_gains(self._gains, self._sizes, price, self._largest).argmax(axis=1)
        gain = int(self._gains[self._rows, best].sum())
        size = int(self._sizes[self._rows, best].sum())
        return _DualPoint(price, gain, size, self._first + best)

    def narrow(self, first: IntArray, last: IntArray) -> None:
        """Forget the options before ``first`` and after ``last`` of every task, both by index.

        After: ``choices_at`` answers as before for all prices between those of ``first`` and
        ``last``. Nothing is done where too few options would go to be worth the copy.
        """
        width, present = int((last - first).max()) + 1, self._sizes.shape[1]
        if present < _NARROW or 2 * width > present:
            return
        # Rows with a shorter range repeat their last column. A repeated option changes no maximum.
        columns = np.minimum(np.arange(width) + first[:, None], last[:, None])
        columns -= self._first[:, None]
        rows = self._rows[:, None]
        self._sizes, self._gains = self._sizes[rows, columns], self._gains[rows, columns]
        self._first = first
