"""Why this plan: how it would change with the inputs that nobody knows well, and what waiting costs.

The MTBF and the transition times are estimates. The plan is solved again with each of them smaller and larger;
what does not change it needs no better estimate.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from controller.core.cost import PlanTask
from controller.core.planner import Decision, solve

_FACTORS: Final = (0.01, 0.1, 0.5, 2.0, 10.0, 100.0)


def sensitivity(
    tasks: list[PlanTask], decision: Decision, *, num_workers: int, running_s: float
) -> list[dict[str, Any]]:
    """Return the plans that other estimates lead to; those that lead to the same plan are left out."""
    found = []
    for what, factor, others, horizon_s in _variants(tasks, running_s):
        other = solve(others, num_workers=num_workers, running_s=horizon_s, has_runner_up=False)
        differing = {
            name: workers
            for name, workers in other.assignments.items()
            if workers != decision.assignments[name]
        }
        if differing:
            found.append({"what": what, "factor": factor, "differs": differing})
    return found


def _variants(
    tasks: list[PlanTask], running_s: float
) -> Iterator[tuple[str, float, list[PlanTask], float]]:
    for factor in _FACTORS:
        yield "MTBF", factor, tasks, factor * running_s
    for factor in _FACTORS:
        slower = [replace(task, transition_s=factor * task.transition_s) for task in tasks]
        yield "transition time", factor, slower, running_s


def waiting(tasks: list[PlanTask], decision: Decision, num_workers: int) -> dict[str, float]:
    """Return what every minute costs until the plan is applied, while faulted tasks stand still.

    A task that goes on with its surviving replicas meanwhile loses less than this says.
    """
    training = [task for task in tasks if not task.is_faulted]
    present = sum(task.waf(task.workers) for task in training)
    num_idle = max(0, num_workers - sum(task.workers for task in training))
    return {
        "weighted_flop_per_min": max(0.0, 60.0 * (decision.waf_after - present)),
        "gpu_hours_per_min": num_idle / 60.0,
    }
