"""The planner's next problems, from the present state. See ``rules.planner.lookup``."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from controller.core.planning.problem import Available, plan_task, planned_tasks, worker_mtbf_s
from controller.core.rules.planner.cost import PlanTask, horizon_s
from controller.core.rules.planner.lookup import Loss, Outlook
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId


def outlook(turn: Turn) -> Outlook:
    """Return the planner's problem as it is now, and what may happen next.

    Tasks that were handed to the operator are queued: they take part when he asks for a plan.
    """
    planned = planned_tasks(turn, includes_held=False)
    held = [task for task in planned_tasks(turn, includes_held=True) if task not in planned]
    available = Available(turn, planned)
    losses = _losses(planned, available)
    rooms = sorted(loss.num_workers for loss in losses)
    fewest = available.num_workers - sum(rooms[-2:])
    longest_s = (
        horizon_s(worker_mtbf_s(turn.state, turn.policy), fewest) if fewest > 0 else math.inf
    )
    return Outlook(
        tasks=tuple(_seen(plan_task(turn, task), longest_s) for task in planned),
        queued=tuple(_seen(plan_task(turn, task), longest_s) for task in held),
        num_workers=available.num_workers,
        worker_mtbf_s=worker_mtbf_s(turn.state, turn.policy),
        losses=tuple(sorted(losses, key=lambda loss: (loss.num_workers, sorted(loss.faulted)))),
        joins=frozenset(node.spec.num_workers for node in turn.state.nodes.values()),
    )


def _seen(task: PlanTask, longest_s: float) -> PlanTask:
    """Return the task as the lookup table sees it: an end after every horizon does not count."""
    is_far = task.remaining_s is not None and task.remaining_s >= longest_s
    return replace(task, remaining_s=None) if is_far else task


def _losses(planned: Sequence[TaskState], available: Available) -> list[Loss]:
    """Return what the loss of each node takes."""
    num_blocked = Counter(worker.node for worker in available.blocked)
    faulted: dict[NodeId, set[TaskId]] = {node: set() for node in available.workers_by_node}
    for task in planned:
        parts = filter(None, (task.place, task.assignment.target))
        nodes = {node for part in parts for node in part.nodes}
        for node in nodes & faulted.keys():
            faulted[node].add(task.spec.task)
    return [
        Loss(count - num_blocked[node], frozenset(faulted[node]))
        for node, count in available.workers_by_node.items()
    ]
