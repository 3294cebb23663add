"""What a task may take of the workers, in whole numbers: sizes, gains and changes.

What gains and changes are is decided in ``controller.core.rules.planner.cost``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """What one task may take; arrays of one length.

    Attributes:
        sizes: Workers, ascending from 0 or from the smallest size that it may have.
        gains: What each size is worth, at most 2^53 in absolute value over all tasks together.
        changes: What to have little of among equal gains, 0 or more.
    """

    sizes: IntArray
    gains: IntArray
    changes: IntArray

    def without(self, size: int) -> "Options":
        """Return all options but one."""
        is_other = self.sizes != size
        return Options(self.sizes[is_other], self.gains[is_other], self.changes[is_other])

    def beyond_smallest(self, room: int) -> "Options":
        """Return the options in terms of workers beyond the smallest size, at most ``room``."""
        end = int(self.sizes.searchsorted(self.sizes[0] + room, side="right"))
        return Options(self.sizes[:end] - self.sizes[0], self.gains[:end], self.changes[:end])


def common_unit(tasks: Sequence[Options]) -> int:
    """Return the largest number of workers that all sizes are multiples of; 1 if all are 0."""
    return int(np.gcd.reduce([np.gcd.reduce(task.sizes) for task in tasks])) or 1


def score(tasks: Sequence[Options], sizes: Sequence[int]) -> tuple[int, int]:
    """Return gain and, negated, change of a division: the larger, the better."""
    gain, change = 0, 0
    for task, size in zip(tasks, sizes, strict=True):
        place = int(task.sizes.searchsorted(size))
        gain, change = gain + int(task.gains[place]), change + int(task.changes[place])
    return gain, -change
