"""Views of a measurement of a task's throughput."""

from typing import Literal

from pydantic import Field

from controller.api.view_base import LayoutView, View


class MeasuredSizeView(View):
    """One size of a measurement."""

    workers: int
    layout: LayoutView
    phase: Literal["waiting", "running", "measured", "failed", "skipped"]
    reason: str = ""
    """Why the size failed or was skipped."""
    iterations: int = 0
    """Iterations so far, with the warm-up; 0 unless the size runs."""
    iteration_s: float | None = None
    """Median after the warm-up."""
    flops_per_s: float | None = None


class MeasurementView(View):
    """A measurement of a task's throughput on idle workers: the present or the newest one."""

    name: str
    task: str
    num_iterations: int
    """Measured iterations at each size."""
    num_warm_up: int
    """Iterations before the measured ones."""
    ended: str = ""
    """Why no further size will run; empty while the measurement continues."""
    is_over: bool = False
    sizes: list[MeasuredSizeView] = Field(default_factory=list)
