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
        models: [sizes] How the layout of each size splits the model (``Layout.model``); None if no
            layouts are known.
    """

    sizes: NDArray[np.int64]
    flops_per_s: NDArray[np.float64]
    models: NDArray[np.int64] | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether sizes and rates are the same."""
        if self is other or not isinstance(other, Rates):
            return self is other
        if self.models is None or other.models is None:
            has_same_models = self.models is other.models
        else:
            has_same_models = np.array_equal(self.models, other.models)
        return (
            has_same_models
            and np.array_equal(self.sizes, other.sizes)
            and np.array_equal(self.flops_per_s, other.flops_per_s)
        )

    def __hash__(self) -> int:
        """Return a number that equal rates share."""
        return hash((self.sizes.tobytes(), self.flops_per_s.tobytes()))

    @classmethod
    def of(
        cls, rate_by_size: Mapping[int, float], model_by_size: Mapping[int, int] | None = None
    ) -> "Rates":
        """Return the rates of a mapping from workers to FLOP/s; both mappings have equal keys."""
        sizes = np.fromiter(rate_by_size.keys(), np.int64, len(rate_by_size))
        rates = np.fromiter(rate_by_size.values(), np.float64, len(rate_by_size))
        order = np.argsort(sizes)
        sizes = sizes[order]
        models = None
        if model_by_size is not None:
            models = np.fromiter((model_by_size[size] for size in sizes.tolist()), np.int64)
        return cls(sizes, rates[order], models)

    def at(self, workers: int) -> float:
        """Return T(t, workers); 0.0 for 0 and for sizes that are not listed."""
        place = self._place(workers)
        return 0.0 if place is None else float(self.flops_per_s[place])

    def model_at(self, workers: int) -> int | None:
        """Return the model of a size; None for sizes that are not listed or have no layout."""
        place = self._place(workers)
        return None if place is None or self.models is None else int(self.models[place])

    def _place(self, workers: int) -> int | None:
        place = int(self.sizes.searchsorted(workers))
        is_listed = place < len(self.sizes) and self.sizes[place] == workers
        return place if is_listed else None
