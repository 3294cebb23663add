"""Changes of a task's phase. The one writer of ``Lifecycle``.

A change that the table in ``state.phases`` does not allow is a bug of the core and raises
``InvariantViolationError``.
"""

from controller.core.lifecycle.obstacles import obstacle
from controller.core.state.phases import TASK_CHANGES, TaskPhase, advance
from controller.core.state.task import TaskState
from controller.core.state.task_records import Parking, Target
from controller.core.state.turn import Turn


def _change(task: TaskState, phase: TaskPhase, note: str = "") -> None:
    lifecycle = task.lifecycle
    lifecycle.phase = advance(TASK_CHANGES, lifecycle.phase, phase, task.spec.task)
    lifecycle.note = note


def begin_starting(task: TaskState) -> None:
    """The next generation begins."""
    task.lifecycle.parking = None
    _change(task, TaskPhase.STARTING)


def begin_training(task: TaskState, note: str = "") -> None:
    """The generation is known to train."""
    _change(task, TaskPhase.RUNNING, note)


def begin_parking(
    turn: Turn,
    task: TaskState,
    *,
    broken: tuple[int, ...],
    at_boundary: bool,
    completes_copies: bool,
    note: str,
) -> Parking:
    """The ranks are ordered to park."""
    _change(task, TaskPhase.PARKING, note)
    task.lifecycle.parking = Parking(turn.at, at_boundary, broken, completes_copies)
    return task.lifecycle.parking


def begin_stopping(task: TaskState, note: str) -> None:
    """The ranks are ordered to end."""
    _change(task, TaskPhase.STOPPING, note)
    task.lifecycle.parking = None


def finish(task: TaskState) -> None:
    """The ranks have done all iterations, and are gone."""
    _change(task, TaskPhase.FINISHED)
    task.lifecycle.parking = None


def end_stopping(task: TaskState) -> None:
    """No rank of a stopping task is left."""
    _change(task, TaskPhase.WAITING)


def rest(task: TaskState) -> None:
    """Put a task without ranks where its intent says."""
    resting = {
        "run": TaskPhase.WAITING,
        "stop": TaskPhase.STOPPED,
        "hold": TaskPhase.HELD,
        "remove": TaskPhase.FINISHED,
    }[task.stopping.intent]
    phase = task.lifecycle.phase
    if phase is TaskPhase.FINISHED or phase is resting:
        return
    if phase is not TaskPhase.WAITING and resting is not TaskPhase.WAITING:
        _change(task, TaskPhase.WAITING)
    _change(task, resting)


def await_plan(task: TaskState, note: str) -> None:
    """A task without ranks is stopped until a plan gives it workers."""
    if task.lifecycle.phase is not TaskPhase.STOPPED:
        _change(task, TaskPhase.STOPPED)
    task.lifecycle.note = note


def note_obstacle(turn: Turn, task: TaskState, target: Target) -> bool:
    """Show operators why the task can't be at ``target`` yet; return whether it can't."""
    task.lifecycle.note = obstacle(turn, task, target) or ""
    return bool(task.lifecycle.note)
