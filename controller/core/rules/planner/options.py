"""The sizes that a task may have, with gains and changes, as arrays of integers.

``controller.core.rules.planner.cost`` computes gains and changes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The sizes that one task may have. The arrays have one length.

    Attributes:
        sizes: Workers, ascending from 0 or from the smallest allowed size.
        gains: Worth of each size. Over all tasks together at most 2^53 in absolute value.
        changes: Cost of a change of size, 0 or more. Among equal gains the smaller cost wins.
    """

    sizes: IntArray
    gains: IntArray
    changes: IntArray

    def without(self, size: int) -> "Options":
        """Return all options except this size."""
        is_other = self.sizes != size
        return Options(self.sizes[is_other], self.gains[is_other], self.changes[is_other])

    def only(self, size: int) -> "Options":
        """Return this size alone."""
        is_it = self.sizes == size
        return Options(self.sizes[is_it], self.gains[is_it], self.changes[is_it])

    def beyond_smallest(self, room: int) -> "Options":
        """Return the options counted from the smallest size on, up to ``room`` more workers."""
        end = int(self.sizes.searchsorted(self.sizes[0] + room, side="right"))
        return Options(self.sizes[:end] - self.sizes[0], self.gains[:end], self.changes[:end])


def common_unit(tasks: Sequence[Options]) -> int:
    """Return the largest number that divides all sizes; 1 if all sizes are 0."""
    # With tp = 8 all sizes are multiples of 8. Counting in units of 8 makes every table 8 times
    # shorter.
    return math.gcd(*(size for task in tasks for size in task.sizes.tolist())) or 1


def score(tasks: Sequence[Options], sizes: Sequence[int]) -> tuple[int, int]:
    """Return the gain and the negated change of a division. A larger pair is a better division."""
    gain, change = 0, 0
    for task, size in zip(tasks, sizes, strict=True):
        place = int(task.sizes.searchsorted(size))
        gain, change = gain + int(task.gains[place]), change + int(task.changes[place])
    return gain, -change
