"""T(t, x) as numbers alone: which sizes a task can have, and what it achieves with each.

Tables of a large cluster list thousands of sizes, so these are arrays. The layouts behind the sizes
are in ``profiles.throughput``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """The usable sizes of one task, and the aggregate FLOP/s of each.

    Attributes:
        sizes: [sizes] Workers, ascending, each 1 or more.
        flops_per_s: [sizes] T(t, x).
    """

    sizes: NDArray[np.int64]
    flops_per_s: NDArray[np.float64]

    def __eq__(self, other: object) -> bool:
        """Return whether sizes and rates are the same."""
        if self is other or not isinstance(other, Rates):
            return self is other
        return np.array_equal(self.sizes, other.sizes) and np.array_equal(
            self.flops_per_s, other.flops_per_s
        )

    def __hash__(self) -> int:
        """Return a number that equal rates share."""
        return hash((self.sizes.tobytes(), self.flops_per_s.tobytes()))

    @classmethod
    def of(cls, rate_by_size: Mapping[int, float]) -> "Rates":
        """Return the rates of a mapping from workers to FLOP/s."""
        sizes = np.fromiter(rate_by_size.keys(), np.int64, len(rate_by_size))
        rates = np.fromiter(rate_by_size.values(), np.float64, len(rate_by_size))
        order = np.argsort(sizes)
        return cls(sizes[order], rates[order])

    def at(self, workers: int) -> float:
        """Return T(t, workers); 0.0 for 0 and for sizes that are not listed."""
        place = int(self.sizes.searchsorted(workers))
        if place == len(self.sizes) or self.sizes[place] != workers:
            return 0.0
        return float(self.flops_per_s[place])
