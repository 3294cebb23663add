"""The price of a worker at which the tasks together buy about as many as there are.

At a price, every task takes the size that is worth most, workers paid for. What all take is worth, and what
the workers are that they leave or lack, bounds every division from above (a Lagrange multiplier and its dual
function). The bound is convex in the price, so the lowest is found between a price that is too low, where
tasks take more than there is, and one that is high enough: at each step where the two tangents meet.

The larger the price, the smaller the size that a task takes. So between two prices only the sizes between
those taken at either have to be looked at again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.core.rules.planner.options import IntArray, Options

_ABSENT: Final = -(2**61)
"""Worth less than anything, and still far from the end of 64 bits."""
_NARROW: Final = 64
"""Fewer columns than this cost as little as none."""


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """The best price.

    Attributes:
        value: Gain per unit of workers, 0 or more.
        duality_gap: What a division that was met on the way loses against the bound; the best loses no more.
    """

    value: int
    duality_gap: int

    @property
    def first_gap(self) -> int:
        """Where to begin: about what one unit of workers is worth."""
        return max(1, self.value)


@dataclass(frozen=True, slots=True)
class _DualPoint:
    """What the tasks take at one price of a worker."""

    price: int
    gain: int
    size: int
    columns: IntArray

    def bound(self, capacity: int) -> int:
        """No division gains more than this."""
        return self.gain + self.price * (capacity - self.size)


def find_shadow_price(tasks: Sequence[Options], unit: int, capacity: int) -> ShadowPrice:
    """Return the price at which the bound is lowest, or close to it.

    Args:
        tasks: One or more, each beginning with size 0.
        unit: Workers that all sizes are multiples of.
        capacity: In units; no size is larger.
    """
    window = _Window.of(tasks, unit)
    low = feasible = window.choices_at(0)
    points = [low]
    if low.size > capacity:
        high = feasible = window.smallest()
        points.append(high)
    else:
        high = low
    while high.price - low.price > 1:
        price = (low.gain - high.gain) // (low.size - high.size)
        if not low.price < price < high.price:
            price = low.price + 1 if price <= low.price else high.price - 1
        at = window.choices_at(price)
        points.append(at)
        is_corner = at.size == capacity or at.bound(capacity) <= max(
            low.gain + price * (capacity - low.size), high.gain + price * (capacity - high.size)
        )
        if at.size <= capacity:
            feasible = max(feasible, at, key=lambda each: each.gain)
            high = at
        else:
            low = at
        if is_corner:
            break
        window.narrow(high.columns, low.columns)
    best = min(points, key=lambda each: each.bound(capacity))
    return ShadowPrice(best.price, best.bound(capacity) - feasible.gain)


def reduced_gains(gains: IntArray, sizes: IntArray, price: int, largest: int) -> IntArray:
    """Return what options are worth, workers paid for; Python's numbers where 64 bits do not hold them.

    No size is larger than ``largest``.
    """
    if price * largest < -_ABSENT:
        return gains - price * sizes
    exact: IntArray = gains - price * sizes.astype(object)
    return exact


class _Window:
    """The options that can still be taken: a part of each task's, side by side.

    Args:
        sizes: [tasks, columns] In units.
        gains: [tasks, columns]
        first: [tasks] Where each part begins among the task's options.
    """

    def __init__(self, sizes: IntArray, gains: IntArray, first: IntArray) -> None:
        self._sizes, self._gains, self._first = sizes, gains, first
        self._rows = np.arange(len(sizes))
        self._largest = int(sizes.max())

    @classmethod
    def of(cls, tasks: Sequence[Options], unit: int) -> "_Window":
        """Return all options; a task with fewer than others has worthless ones after them."""
        width = max(len(task.sizes) for task in tasks)
        sizes = np.zeros((len(tasks), width), np.int64)
        gains = np.full((len(tasks), width), _ABSENT)
        for row, task in enumerate(tasks):
            sizes[row, : len(task.sizes)] = task.sizes
            gains[row, : len(task.sizes)] = task.gains
        if unit > 1:
            sizes //= unit
        return cls(sizes, gains, np.zeros(len(tasks), np.int64))

    def smallest(self) -> _DualPoint:
        """Return the smallest sizes, and a price at which no task takes more; all options are there."""
        gains = self._gains[:, 0]
        price = int((self._gains.max(axis=1) - gains).max()) + 1
        return _DualPoint(price, int(gains.sum()), 0, np.zeros_like(self._first))

    def choices_at(self, price: int) -> _DualPoint:
        """Return what is worth most at a price, the smallest of equals."""
        best = reduced_gains(self._gains, self._sizes, price, self._largest).argmax(axis=1)
        gain = int(self._gains[self._rows, best].sum())
        size = int(self._sizes[self._rows, best].sum())
        return _DualPoint(price, gain, size, self._first + best)

    def narrow(self, first: IntArray, last: IntArray) -> None:
        """Keep the options from ``first`` to ``last`` of every task, where that spares much."""
        width, present = int((last - first).max()) + 1, self._sizes.shape[1]
        if present < _NARROW or 2 * width > present:
            return
        columns = np.minimum(np.arange(width) + first[:, None], last[:, None])
        columns -= self._first[:, None]
        rows = self._rows[:, None]
        self._sizes, self._gains = self._sizes[rows, columns], self._gains[rows, columns]
        self._first = first
