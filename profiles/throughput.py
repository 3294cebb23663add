"""Throughput tables T(t, x): the achieved aggregate FLOP/s of a task on x workers.

A table lists the sizes that a task can use, each with its best layout. A size that is not listed
can't be used; size 0 (stopped) always can and achieves nothing. Tables are data; how the numbers
come about is said where they are kept.
"""

import math

from pydantic import BaseModel, ConfigDict, model_validator

from profiles.layout import Layout


class ThroughputPoint(BaseModel):
    """One usable size of a task."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: int
    flops_per_s: float
    layout: Layout

    @model_validator(mode="after")
    def _is_consistent(self) -> "ThroughputPoint":
        if self.workers != self.layout.num_workers:
            raise ValueError(f"{self.workers} workers do not make the layout {self.layout}")
        if not (math.isfinite(self.flops_per_s) and self.flops_per_s > 0):
            raise ValueError(f"flops_per_s {self.flops_per_s} is not a positive number")
        return self


class ThroughputTable(BaseModel):
    """All usable sizes of a task, ascending."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: tuple[ThroughputPoint, ...]

    @model_validator(mode="after")
    def _has_each_size_once(self) -> "ThroughputTable":
        sizes = self.sizes
        if len(set(sizes)) != len(sizes):
            raise ValueError("a size is listed twice")
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """Usable sizes but 0, ascending."""
        return tuple(sorted(point.workers for point in self.points))

    def flops_per_s(self, workers: int) -> float:
        """Return T(t, workers); 0.0 for sizes that are not listed."""
        point = self._find(workers)
        return point.flops_per_s if point else 0.0

    def layout(self, workers: int) -> Layout:
        """Return the best layout of a listed size.

        Raises:
            KeyError: The size is not listed.
        """
        point = self._find(workers)
        if point is None:
            raise KeyError(workers)
        return point.layout

    def _find(self, workers: int) -> ThroughputPoint | None:
        return next((point for point in self.points if point.workers == workers), None)
