"""Why a task can't be at its target yet."""

from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn


def note_obstacle(turn: Turn, task: TaskState, target: Target) -> bool:
    """Show operators why the task can't be at ``target`` yet; return whether it can't."""
    task.lifecycle.explain(obstacle(turn, task, target))
    return bool(task.lifecycle.note)


def obstacle(turn: Turn, task: TaskState, target: Target) -> str:
    """Return why the task can't be at ``target`` yet, in words for operators; empty if it can."""
    if turn.state.num_usable(target.placement) < len(target.placement):
        missing = next(w for w in reversed(target.placement) if not turn.state.can_use(w))
        is_there = turn.state.nodes[missing.node].is_in_service
        return f"waits for {f'GPU {missing.slot} of ' if is_there else 'node '}{missing.node}"
    wanted = target.ranks.keys()
    for other in turn.state.tasks.values():
        if other is not task and not wanted.isdisjoint(other.occupied_workers):
            return f"waits for workers of {other.spec.task}"
    measurement, nodes = turn.state.measurements.current, turn.state.nodes
    run = measurement.run if measurement else None
    if run is not None and not wanted.isdisjoint(run.living.values()):
        return f"waits for workers of {run.task}"
    stray = next((w for w in target.placement if w in nodes[w.node].inventory.strays), None)
    return f"waits for measured ranks to end on {stray}" if stray else ""
