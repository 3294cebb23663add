"""Problems for the planner, made from a seed: many tasks on one cluster, tables of three kinds.

Every multiple of the unit is listed, up to the whole cluster. *smooth*: FLOP/s grow ever more
slowly with the workers. *noisy*: the same, each entry off by 5 % (one standard deviation), so
neither concave nor monotone. *plateaus*: they grow at every fourth to thirty-second entry only, as
where a layout has to divide the batch.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from controller.core.rules.planner.cost import PlanTask, horizon_s
from nodeagent.protocol.ids import TaskId
from profiles.rates import Rates

Kind = Literal["smooth", "noisy", "plateaus"]

_NOISE: Final = 0.05
_STEPS: Final = (4, 8, 16, 32)
_FLOPS_PER_S: Final = (1e14, 2.5e14)
"""Of one worker, where it works alone."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem.

    Attributes:
        tasks: The tasks. Together they held all workers before one unit was lost.
        num_workers: The workers that are left.
        running_s: D_running, seconds.
    """

    tasks: list[PlanTask]
    num_workers: int
    running_s: float


def make_instance(
    kind: Kind, *, num_workers: int, unit: int, num_tasks: int, mtbf_hours: float, seed: int = 1
) -> Instance:
    """Return the instance of a seed: one unit of workers was lost and faulted the first task."""
    source = np.random.default_rng(seed)
    sizes = np.arange(unit, num_workers + 1, unit)
    shares = source.dirichlet(np.full(num_tasks, 4.0)) * num_workers
    tasks = [
        PlanTask(
            name=TaskId(f"task-{number:03d}"),
            weight=float(source.uniform(0.5, 2.0)),
            rates=Rates(sizes, _flops_per_s(kind, sizes, num_workers / num_tasks, source)),
            workers=int(share // unit) * unit,
            min_workers=unit,
            is_faulted=number == 0,
            transition_s=float(source.uniform(20.0, 120.0)),
        )
        for number, share in enumerate(shares)
    ]
    num_left = num_workers - unit
    return Instance(tasks, num_left, horizon_s(3600.0 * mtbf_hours, num_left))


def with_floors(instance: Instance, unit: int) -> Instance:
    """Return the instance with every task kept running at half a fair share at least."""
    least = instance.num_workers // len(instance.tasks) // 2 // unit * unit
    tasks = [
        replace(task, keeps_running=True, min_workers=max(unit, least)) for task in instance.tasks
    ]
    return replace(instance, tasks=tasks)


def _flops_per_s(
    kind: Kind, sizes: np.ndarray, mean_size: float, source: np.random.Generator
) -> np.ndarray:
    half = mean_size * source.uniform(0.5, 8.0)
    rates = source.uniform(*_FLOPS_PER_S) * sizes / (1.0 + sizes / half)
    if kind == "noisy":
        return np.maximum(rates * (1.0 + _NOISE * source.standard_normal(len(sizes))), 0.0)
    if kind == "plateaus":
        step = int(source.choice(_STEPS))
        return rates[np.arange(len(sizes)) // step * step]
    return rates
