"""The search for the best division: exact, and fast where the tables let it be.

Every task takes one of its options; the sizes may add up to ``capacity`` at most. Wanted is, in this
order: the largest sum of gains, the smallest sum of changes, the larger size for the first task, then
for the second, and so on. All numbers are whole, so no order of evaluation can change the answer.

Workers are given a price (a Lagrange multiplier). At any price, what an option loses against the best
that its task could do, sizes paid for, is 0 or more; so is the price of every worker left idle; and the
best division is the one that loses least in all. So only options and partial divisions within a *gap*
of lost gain are looked at. If a division is found among them, no other can lose less: it is the
best, by proof. If none is, the gap is made wider; at the latest it reaches what some known division
loses. Where gains are nearly concave in the size the first gap leaves few options; where
nothing can be left out this is the plain recurrence, S(i, j) of the paper, on arrays.

What gains and changes are is decided in ``controller.core.cost``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Scores: TypeAlias = Whole
"""Lost gain and change in one number each; where 64 bits do not hold it, arrays of Python's numbers."""

_FAR: Final = 2**62
"""Twice this is too much for 64 bits; half of it is more than all gains together."""
_WIDER: Final = 4
"""By how much the gap grows."""


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What one task may take; arrays of one length.

    Attributes:
        sizes: Workers, ascending from 0 or from the smallest size that it may have.
        gains: What each size is worth, at most 2^53 in absolute value over all tasks together.
        changes: What to have little of among equal gains, 0 or more.
    """

    sizes: Whole
    gains: Whole
    changes: Whole

    def without(self, size: int) -> "Options":
        """Return all options but one."""
        is_other = self.sizes != size
        return Options(self.sizes[is_other], self.gains[is_other], self.changes[is_other])

    def beyond_smallest(self, room: int) -> "Options":
        """Return the options in terms of workers beyond the smallest size, at most ``room``."""
        end = int(np.searchsorted(self.sizes, self.sizes[0] + room, side="right"))
        return Options(self.sizes[:end] - self.sizes[0], self.gains[:end], self.changes[:end])


def best_division(tasks: Sequence[Options], capacity: int) -> tuple[int, ...] | None:
    """Return the size of every task in the best division; None where no division fits."""
    if any(not len(task.sizes) for task in tasks):
        return None
    smallest = [int(task.sizes[0]) for task in tasks]
    room = capacity - sum(smallest)
    if room < 0:
        return None
    if not tasks:
        return ()
    growing = [task.beyond_smallest(room) for task in tasks]
    unit = int(np.gcd.reduce([np.gcd.reduce(task.sizes) for task in growing])) or 1
    search = _Search.at_best_price(growing, unit, room // unit)
    gap = search.first_gap()
    while (found := search.within(gap)) is None:
        gap = min(_WIDER * gap, search.known_loss)
    return tuple(base + unit * size for base, size in zip(smallest, found, strict=True))


@dataclass(slots=True)
class _Price:
    """What the tasks take at one price of a worker."""

    price: int
    gain: int
    size: int

    def bound(self, capacity: int) -> int:
        """No division gains more than this."""
        return self.gain + self.price * (capacity - self.size)


class _Search:
    """The options of all tasks, padded to one length, and what each loses at a price.

    Args:
        tasks: The options, each beginning with size 0.
        unit: Workers that all sizes are multiples of.
        capacity: In units; no size is larger.
    """

    def __init__(self, tasks: Sequence[Options], unit: int, capacity: int) -> None:
        self._capacity = capacity
        self._changes = [task.changes for task in tasks]
        self._num = [len(task.sizes) for task in tasks]
        width = max(self._num)
        self._sizes = np.zeros((len(tasks), width), np.int64)
        self._gains = np.full((len(tasks), width), -_FAR // 2)
        for row, task in enumerate(tasks):
            self._sizes[row, : self._num[row]] = task.sizes // unit
            self._gains[row, : self._num[row]] = task.gains
        self._rows = np.arange(len(tasks))
        self._price = 0
        self.known_loss = 0
        self._losses = self._gains

    @classmethod
    def at_best_price(cls, tasks: Sequence[Options], unit: int, capacity: int) -> "_Search":
        """Return the search at the price where the bound is lowest, or close to it."""
        search = cls(tasks, unit, capacity)
        free = search._at(0)
        fitting = dearest = search._dearest()
        tried = [free, dearest]
        low, high = free, dearest
        if free.size <= capacity:
            fitting = high = low = free
        while high.price - low.price > 1:
            price = (low.gain - high.gain) // (low.size - high.size)
            if not low.price < price < high.price:
                price = low.price + 1 if price <= low.price else high.price - 1
            at = search._at(price)
            tried.append(at)
            is_corner = at.bound(capacity) <= max(
                low.gain + price * (capacity - low.size), high.gain + price * (capacity - high.size)
            )
            if at.size <= capacity:
                fitting = max(fitting, at, key=lambda each: each.gain)
                high = at
            else:
                low = at
            if is_corner:
                break
        best = min(tried, key=lambda each: each.bound(capacity))
        search._set_price(best.price)
        search.known_loss = best.bound(capacity) - fitting.gain
        return search

    def first_gap(self) -> int:
        """Return where to begin: about what one unit of workers is worth."""
        return min(self.known_loss, max(1, self._price))

    def within(self, gap: int) -> list[int] | None:
        """Return the best of the divisions that lose at most ``gap``; None if there is none."""
        kept = [np.flatnonzero(row <= gap) for row in self._losses]
        sizes = [self._sizes[row, options] for row, options in enumerate(kept)]
        changes = [change[options] for change, options in zip(self._changes, kept, strict=True)]
        # Lost gain first, then change: one number holds both.
        scale = 1 + sum(int(change.max()) for change in changes)
        is_small = (gap + 1) * scale < _FAR
        dtype = np.int64 if is_small else cast("type[np.int64]", object)
        scores = [
            self._losses[row, options].astype(dtype) * scale + change
            for row, (options, change) in enumerate(zip(kept, changes, strict=True))
        ]
        limit = gap * scale + scale - 1
        layers = self._fill(sizes, scores, limit, scale)
        if layers is None:
            return None
        return self._read(sizes, scores, layers, limit)

    def _fill(
        self, sizes: list[Whole], scores: list[Scores], limit: int, scale: int
    ) -> "list[_Layer] | None":
        """Return, from each task on, the least score by workers given; None where nothing is within."""
        first = [int(size[0]) for size in sizes]
        last = [int(size[-1]) for size in sizes]
        num_idle = self._capacity - sum(first)
        if num_idle < 0:
            return None
        if self._price:
            num_idle = min(num_idle, limit // scale // self._price)
        idle = np.arange(num_idle + 1).astype(scores[0].dtype) * (self._price * scale)
        layer = _Layer(0, idle)
        layers = [layer]
        for row in range(len(sizes) - 1, -1, -1):
            # What the tasks before may take bounds what is left.
            most = self._capacity - sum(first[:row])
            least = self._capacity - sum(last[:row])
            next_layer = layer.before(sizes[row], scores[row], least, most, limit)
            if next_layer is None:
                return None
            layer = next_layer
            layers.append(layer)
        layers.reverse()
        return layers if layer.begin <= self._capacity < layer.end else None

    def _read(
        self, sizes: list[Whole], scores: list[Scores], layers: "list[_Layer]", limit: int
    ) -> list[int] | None:
        left, chosen = self._capacity, []
        for row in range(len(sizes)):
            least, rest = layers[row].score(left), layers[row + 1]
            if least > limit:
                return None
            fits = (left - sizes[row] >= rest.begin) & (left - sizes[row] < rest.end)
            size = sizes[row][fits]
            attains = scores[row][fits] + rest.scores[left - size - rest.begin] == least
            taken = int(size[attains][-1])
            chosen.append(taken)
            left -= taken
        return chosen

    def _at(self, price: int) -> _Price:
        best = (self._gains - price * self._sizes).argmax(axis=1)
        return _Price(
            price,
            int(self._gains[self._rows, best].sum()),
            int(self._sizes[self._rows, best].sum()),
        )

    def _dearest(self) -> _Price:
        """Return the price at which no task takes more than its smallest size."""
        smallest = self._gains[:, 0]
        top = int((self._gains.max(axis=1) - smallest).max())
        return _Price(top + 1, int(smallest.sum()), 0)

    def _set_price(self, price: int) -> None:
        worth = self._gains - price * self._sizes
        self._losses = worth.max(axis=1, keepdims=True) - worth
        self._price = price


@dataclass(slots=True)
class _Layer:
    """Least scores by the number of workers given, from ``begin`` on; too large where none is within."""

    begin: int
    scores: Scores

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def score(self, workers: int) -> int:
        """Return the least score with this many workers."""
        return int(self.scores[workers - self.begin])

    def before(
        self, sizes: Whole, scores: Scores, least: int, most: int, limit: int
    ) -> "_Layer | None":
        """Return the layer with one more task; what is out of bounds or over ``limit`` is dropped."""
        begin, end = self.begin + int(sizes[0]), self.end + int(sizes[-1])
        total = np.full(end - begin, limit + 1, self.scores.dtype)
        width = len(self.scores)
        for size, score in zip((sizes - sizes[0]).tolist(), scores.tolist(), strict=True):
            part = total[size : size + width]
            np.minimum(part, self.scores + score, out=part)
        low, high = max(least - begin, 0), min(most + 1 - begin, len(total))
        total = total[low:high] if low < high else total[:0]
        is_within = np.flatnonzero(total <= limit)
        if not len(is_within):
            return None
        trimmed = total[is_within[0] : is_within[-1] + 1]
        trimmed[trimmed > limit] = limit + 1
        return _Layer(begin + low + int(is_within[0]), trimmed)
