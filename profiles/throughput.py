"""T(t, x): the achieved aggregate FLOP/s of a task on x workers, and the layout behind each x.

A table, not a curve: throughput is neither linear nor monotone in the number of workers, because
some counts fit a model badly (Unicron, arXiv 2401.00134, section 5). A size that is not listed
can't be used, so nothing is interpolated; size 0 (stopped) always can and achieves nothing. Tables
are data; how the numbers come about is said where they are kept.
"""

from bisect import bisect_left
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from profiles.layout import LARGEST, Layout
from profiles.rates import Rates

_MAX_FLOPS_PER_S: Final = 1e30
"""Far above any machine; keeps weight times FLOP/s times seconds inside a float."""


class ThroughputPoint(BaseModel):
    """One usable size of a task.

    Attributes:
        workers: Number of workers, x.
        flops_per_s: Achieved model FLOP/s of all of them together, T(t, x).
        layout: The parallel layout that achieves it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: int = Field(gt=0, le=LARGEST)
    flops_per_s: float = Field(gt=0, le=_MAX_FLOPS_PER_S, allow_inf_nan=False)
    layout: Layout

    @model_validator(mode="after")
    def _layout_uses_all_workers(self) -> "ThroughputPoint":
        if self.workers != self.layout.num_workers:
            raise ValueError(
                f"workers is {self.workers}, but {self.layout} makes {self.layout.num_workers}:"
                " workers must be tp x pp x dp"
            )
        return self


def _in_order(points: tuple[ThroughputPoint, ...]) -> tuple[ThroughputPoint, ...]:
    ordered = tuple(sorted(points, key=lambda point: point.workers))
    for earlier, later in pairwise(ordered):
        if earlier.workers == later.workers:
            raise ValueError(f"size {later.workers} is listed twice: list each size once")
    return ordered


class ThroughputTable(BaseModel):
    """All usable sizes of a task.

    Attributes:
        points: At least one, ascending by size in whatever order they were given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    points: Annotated[tuple[ThroughputPoint, ...], Field(min_length=1), AfterValidator(_in_order)]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Usable sizes but 0, ascending."""
        return tuple(point.workers for point in self.points)

    @cached_property
    def _layouts(self) -> dict[int, Layout]:
        return {point.workers: point.layout for point in self.points}

    @cached_property
    def rates(self) -> Rates:
        """The numbers alone."""
        return Rates.of(
            {point.workers: point.flops_per_s for point in self.points},
            {point.workers: point.layout.model for point in self.points},
        )

    @cached_property
    def _capped_rates(self) -> dict[int, Rates]:
        return {}

    def rates_up_to(self, max_workers: int | None) -> Rates:
        """Return the numbers of the sizes up to ``max_workers``; of all sizes if that is None."""
        if max_workers is None or max_workers >= self.sizes[-1]:
            return self.rates
        if max_workers not in self._capped_rates:
            points = [point for point in self.points if point.workers <= max_workers]
            self._capped_rates[max_workers] = Rates.of(
                {point.workers: point.flops_per_s for point in points},
                {point.workers: point.layout.model for point in points},
            )
        return self._capped_rates[max_workers]

    def flops_per_s(self, workers: int) -> float:
        """Return T(t, workers); 0.0 for 0 and for sizes that are not listed."""
        return self.rates.at(workers)

    def interim_flops_per_s(self, workers: int) -> float:
        """Return T(t, workers), for a size that is not listed in proportion to the next larger.

        Such a size is never planned for; a task runs with it after a loss, until a plan is applied.
        """
        place = bisect_left(self.sizes, workers)
        if place == len(self.sizes):
            return 0.0
        listed = self.sizes[place]
        return self.flops_per_s(listed) * workers / listed

    def layout(self, workers: int) -> Layout:
        """Return the best layout of a listed size.

        Raises:
            KeyError: The size is not listed.
        """
        return self._layouts[workers]
