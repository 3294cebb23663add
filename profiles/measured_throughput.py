"""Measured throughput, refined with every iteration: an exponentially weighted mean of their times.

The mean is one of seconds, because those are what is measured and averaged; T(t, x) is the model
FLOPs of an iteration over it. The first ``1 / NEWEST_SHARE`` iterations count alike, so that none
of them weighs more than those that follow; from then on each new one has ``NEWEST_SHARE`` of the
mean, and half of what is known is of the newest 14.
"""

from collections.abc import Iterable
from typing import Final

from profiles.layout import Layout
from profiles.table_file import LayoutRecord, TablePoint

NEWEST_SHARE: Final = 0.05


def refined(
    known: TablePoint | None, layout: Layout, iteration_s: float, num_iterations: int
) -> TablePoint:
    """Return the point of a size after ``num_iterations`` more, which took ``iteration_s`` each.

    What is known is forgotten where it was estimated, or measured in another layout: the table that
    the task runs by has this one. ``flops_per_s`` is that of one FLOP an iteration; see
    ``with_work``.
    """
    record = LayoutRecord(tp=layout.tp, pp=layout.pp, dp=layout.dp)
    mean_s, num_known = iteration_s, 0
    if known is not None and known.iteration_s is not None and known.layout == record:
        mean_s, num_known = known.iteration_s, known.iterations
    num = num_known + num_iterations
    share = max(1 - (1 - NEWEST_SHARE) ** num_iterations, num_iterations / num)
    mean_s += share * (iteration_s - mean_s)
    return TablePoint(
        workers=layout.num_workers,
        flops_per_s=1 / mean_s,
        layout=record,
        origin="measured",
        iterations=num,
        iteration_s=mean_s,
    )


def with_work(points: Iterable[TablePoint], flops_per_iteration: float) -> list[TablePoint]:
    """Return the points by size, with the FLOP/s of those that were timed."""
    return [
        point
        if point.iteration_s is None
        else point.model_copy(update={"flops_per_s": flops_per_iteration / point.iteration_s})
        for point in sorted(points, key=lambda point: point.workers)
    ]
