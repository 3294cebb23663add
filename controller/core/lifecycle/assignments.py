"""Where a task is to run: its target, and where it continues meanwhile.

The one writer of ``Assignment``.
"""

from collections.abc import Callable

from controller.core.rules.placement import Placement
from controller.core.state.plan import TaskChange
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from profiles.layout import Layout


def follow(task: TaskState, change: TaskChange) -> None:
    """A plan says where the task is to run."""
    task.assignment.target, task.assignment.interim = change.target, None


def start_at(task: TaskState, layout: Layout, placement: Placement) -> None:
    """The task is to start there, as its first size says."""
    task.assignment.target, task.assignment.interim = Target(layout, placement), None


def move(task: TaskState, placement: Placement) -> bool:
    """Have the task start elsewhere with its layout, without a plan; return whether it can.

    A plan that has given it another layout meanwhile comes first.
    """
    target = task.assignment.target
    if target is None or target.layout != task.layout:
        return False
    task.assignment.target, task.assignment.interim = Target(target.layout, placement), None
    return True


def stay(task: TaskState) -> None:
    """The task is to run where it is."""
    task.assignment.target = task.place


def lose_target(task: TaskState) -> None:
    """The task can't run at its target: a plan has to say where it is to run."""
    task.assignment.target = None


def lose_everything(task: TaskState) -> None:
    """The task is to run nowhere until an operator decides."""
    task.assignment.target = task.assignment.interim = None


def withdraw_interim(task: TaskState, is_out: Callable[[Target], bool]) -> None:
    """Give the interim place up if a part of it is out of service."""
    interim = task.assignment.interim
    if interim is not None and is_out(interim):
        task.assignment.interim = None


def settle_for(task: TaskState, place: Target | None, fewest: int) -> Target | None:
    """Have the task continue at ``place`` meanwhile, if that has enough workers; return it then."""
    if place is None or place.layout.num_workers < fewest:
        return None
    task.assignment.interim = place
    return place


def arrive(task: TaskState, place: Target) -> None:
    """A generation begins at ``place``; a smaller interim place grants nothing."""
    assignment = task.assignment
    if place is assignment.target:
        assignment.granted, assignment.interim = place.layout, None
