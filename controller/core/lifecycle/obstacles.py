"""Why a task can't be at its target yet."""

from controller.core.state.task import TaskState
from controller.core.state.task_records import Obstacle, Target
from controller.core.state.turn import Turn


def note_obstacle(turn: Turn, task: TaskState, target: Target) -> bool:
    """Show operators why the task can't be at ``target`` yet; return whether it can't."""
    task.lifecycle.explain(obstacle(turn, task, target))
    return bool(task.lifecycle.note)


def obstacle(turn: Turn, task: TaskState, target: Target) -> str:
    """Return why the task can't be at ``target`` yet, in words for operators; empty if it can."""
    # A fleet that starts asks after every node that attaches. So the worker that was missing last
    # is looked at first.
    known = task.assignment.obstacle
    if known is None or known.target != target or not _stands(turn, known):
        known = _find(turn, task, target)
        task.assignment.note_obstacle(known)
    if known is not None:
        return _words(turn, known)
    return _measured_ranks(turn, target)


def _stands(turn: Turn, known: Obstacle) -> bool:
    if known.holder is None:
        return not turn.state.can_use(known.worker)
    return turn.state.can_use(known.worker) and turn.state.tasks[known.holder].holds(known.worker)


def _words(turn: Turn, known: Obstacle) -> str:
    if known.holder is not None:
        return f"waits for workers of {known.holder}"
    name, slot = known.worker
    is_there = turn.state.nodes[name].is_in_service
    return f"waits for {f'GPU {slot} of ' if is_there else 'node '}{name}"


def _find(turn: Turn, task: TaskState, target: Target) -> Obstacle | None:
    if turn.state.num_usable(target.placement) < len(target.placement):
        missing = next(w for w in reversed(target.placement) if not turn.state.can_use(w))
        return Obstacle(target, missing)
    wanted = target.ranks.keys()
    for other in turn.state.tasks.values():
        held = wanted & other.occupied_workers if other is not task else None
        if held:
            return Obstacle(target, min(held), other.spec.task)
    return None


def _measured_ranks(turn: Turn, target: Target) -> str:
    wanted = target.ranks.keys()
    measurement, nodes = turn.state.measurements.current, turn.state.nodes
    run = measurement.run if measurement else None
    if run is not None and not wanted.isdisjoint(run.living.values()):
        return f"waits for workers of {run.task}"
    stray = next((w for w in target.placement if w in nodes[w.node].inventory.strays), None)
    return f"waits for measured ranks to end on {stray}" if stray else ""
