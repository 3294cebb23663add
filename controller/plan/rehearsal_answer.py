"""The plan that a cluster's core would propose, as JSON: objective, terms and placements."""

import math
import time
from typing import Any

from controller.core.rehearsal import Rehearsal, Supposition, rehearse
from controller.core.rules.planner.cost import PlanTask, earned, forgone, gain
from controller.core.rules.policy import Policy
from controller.core.state.cluster import ClusterState
from controller.core.state.task_records import Target


def rehearsal_answer(
    state: ClusterState, policy: Policy, at: float, supposition: Supposition, *, has_problem: bool
) -> dict[str, Any]:
    """Call ``rehearse`` with these arguments; return the answer and the time that it took.

    With ``has_problem`` the answer holds the planner's problem too.

    Raises:
        ImpossibleError: The supposed change is impossible.
    """
    begin_s = time.perf_counter()
    rehearsal = rehearse(state, policy, at, supposition)
    answer = as_json(rehearsal) | {"solve_s": time.perf_counter() - begin_s}
    return answer | {"problem": problem_of(rehearsal)} if has_problem else answer


def as_json(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the answer with the keys of ``unicron plan solve`` and those that only a cluster has.

    Quantities are FLOP/s, FLOP and seconds. A placement lists the worker of each global rank as
    ``NODE:WORKER``, for instance ``n1:0``.
    """
    plan, running_s = rehearsal.plan, rehearsal.running_s
    sizes = {task.name: _size(rehearsal.after[task.name]) for task in rehearsal.tasks}
    return {
        "supposed": str(rehearsal.supposition),
        "changes_anything": plan is not None,
        "objective": math.fsum(gain(t, sizes[t.name], running_s) for t in rehearsal.tasks),
        "waf_before": math.fsum(task.waf(task.workers) for task in rehearsal.tasks),
        "waf_after": math.fsum(task.waf(sizes[task.name]) for task in rehearsal.tasks),
        "workers": rehearsal.num_workers,
        "running_s": running_s,
        "assignments": {task.name: sizes[task.name] for task in rehearsal.tasks},
        "tasks": [_task(rehearsal, task, sizes[task.name]) for task in rehearsal.tasks],
        "left_alone": dict(rehearsal.left_alone),
        "why": plan.why if plan else rehearsal.why_none,
        "steps": list(plan.steps) if plan else [],
    }


def problem_of(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return the planner's problem in the format of the files of ``unicron plan solve``."""
    return {
        "workers": rehearsal.num_workers,
        "running_s": rehearsal.running_s,
        "tasks": [
            {
                "name": task.name,
                "weight": task.weight,
                "workers": task.workers,
                "faulted": task.is_faulted,
                "min_workers": task.min_workers,
                "transition_s": task.transition_s,
                "remaining_s": task.remaining_s,
                "keeps_running": task.keeps_running,
                "layout_change_s": task.layout_change_s,
                "layout_change_sizes": _layout_change_sizes(task),
                "throughput": {
                    str(size): task.rates.at(size) for size in task.rates.sizes.tolist()
                },
            }
            for task in rehearsal.tasks
        ],
    }


def _task(rehearsal: Rehearsal, task: PlanTask, workers: int) -> dict[str, Any]:
    before, after = rehearsal.before[task.name], rehearsal.after[task.name]
    change = rehearsal.plan.changes[task.name] if rehearsal.plan else None
    return {
        "name": task.name,
        "workers_before": task.workers,
        "workers": workers,
        "faulted": task.is_faulted,
        "moves": change is not None and change.moves,
        "transition_s": task.transition_to_s(workers),
        "waf_before": task.waf(task.workers),
        "waf_after": task.waf(workers),
        "earned": earned(task, workers, rehearsal.running_s),
        "forgone": forgone(task, workers),
        "layout_before": str(before.layout) if before else None,
        "layout": str(after.layout) if after else None,
        "placement_before": _placement(before),
        "placement": _placement(after),
    }


def _layout_change_sizes(task: PlanTask) -> list[int]:
    if task.layout_change_s is None or task.model is None or task.rates.models is None:
        return []
    return [int(size) for size in task.rates.sizes[task.rates.models != task.model]]


def _size(target: Target | None) -> int:
    return target.layout.num_workers if target else 0


def _placement(target: Target | None) -> list[str]:
    return [f"{worker.node}:{worker.slot}" for worker in target.placement] if target else []
