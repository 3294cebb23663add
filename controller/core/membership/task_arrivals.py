"""Tasks that join, change and leave.

Before anything has started, all tasks are placed together at their first sizes. Later a new task is
stopped until a plan gives it workers: that is what moves workers between tasks, and needs an
approval unless policy grants it. A task that does not fit is not refused. It waits for room.
"""

from collections.abc import Mapping

from controller.core.lifecycle.start_stop import stop
from controller.core.rules.placement import Placement, Unplaceable, place
from controller.core.specs import TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import AT_REST, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NO_GENERATION, TaskId
from profiles.layout import Layout


def add_task(turn: Turn, spec: TaskSpec) -> None:
    """A task joins, or comes back after it was removed."""
    former = turn.state.tasks.get(spec.task)
    if former is not None and former.has_left:
        former = None
    if former is not None and not former.membership.is_removed:
        change_task(turn, spec)
        return
    if former is not None:
        former.membership.rejoin(spec)
        stop(turn, former, is_graceful=former.stopping.is_graceful, intent="stop", note="restarts")
        turn.announce("info", "task_added", spec.task, "belongs to the cluster again, once stopped")
        return
    task = turn.state.put_task(spec)
    if has_nothing_started(turn.state):
        place_first(turn)
        return
    _await_plan(turn, task, "a plan has to give it workers")
    turn.announce("info", "task_added", spec.task, f"wants {spec.workers} workers: a plan decides")
    turn.want_plan(spec.task, f"{spec.task} was added")


def place_first(turn: Turn) -> None:
    """Give tasks that have never started a place at their first sizes, as many as fit."""
    state = turn.state
    available = {
        name: node.spec.num_workers
        for name, node in state.nodes.items()
        if node.contact.condition is not NodeCondition.REMOVED
        and not node.membership.is_leaving
        and node.upkeep.takes_new
    }
    domains = {name: node.spec.failure_domain for name, node in state.nodes.items()}
    tasks = [task for task in state.tasks.values() if task.is_wanted]
    layouts: dict[TaskId, Layout] = {}
    placements: Mapping[TaskId, Placement] = {}
    for task in tasks:
        name, spec = task.spec.task, task.spec
        tried = layouts | {name: spec.table.layout(spec.workers)}
        found = place(tried, {}, available, domains=domains)
        if isinstance(found, Unplaceable):
            task.assignment.follow(None)
            _await_plan(turn, task, found.reason)
        else:
            layouts, placements = tried, found
    for task in tasks:
        name = task.spec.task
        if name in placements:
            task.assignment.follow(Target(layouts[name], placements[name]))
            stop(turn, task, is_graceful=False, intent="run", note="")


def _await_plan(turn: Turn, task: TaskState, note: str) -> None:
    stop(turn, task, is_graceful=False, intent="stop", note=note)
    task.lifecycle.await_plan(note)


def settle_specs(turn: Turn) -> None:
    """Let tasks without ranks become what they were changed to, or added again as."""
    for task in turn.state.tasks.values():
        membership, phase = task.membership, task.lifecycle.phase
        if membership.next_spec is None or phase not in AT_REST:
            continue
        was_rejoining, name = membership.is_rejoining, task.spec.task
        task.take_next_spec()
        target = task.assignment.target
        if not task.is_wanted:
            continue
        if was_rejoining:
            turn.want_plan(name, f"{name} was added")
        elif target is not None and not task.spec.has_layout(target.layout):
            task.assignment.lose_target()
            seen = f"{name} can't run with {target.layout} any more"
            turn.want_plan(name, seen)


def change_task(turn: Turn, spec: TaskSpec) -> None:
    """The file gives a task other settings: a plan may divide the workers in another way."""
    task = turn.state.tasks[spec.task]
    before, was_submitted = task.spec, task.orders.submitted is not None
    task.orders.adopt()
    if was_submitted and spec == task.of_file():
        text = "belongs to the cluster file from now on"
        turn.announce("info", "task_changed", spec.task, text)
        return
    if task.change_spec(spec.with_limits(task.orders.over(spec.limits))):
        text = "its settings have changed"
    else:
        text = "its program has changed: the next start with new processes takes it"
    turn.announce("info", "task_changed", spec.task, text)
    if has_nothing_started(turn.state):
        place_first(turn)
    elif before != task.spec and task.is_wanted and not task.has_settled:
        turn.want_plan(spec.task, f"the settings of {spec.task} changed")


def remove_task(turn: Turn, name: TaskId) -> None:
    """A task is to end. If it trains, it saves a checkpoint first."""
    task = turn.state.tasks.get(name)
    if task is None or task.membership.is_removed:
        return
    task.membership.leave()
    task.assignment.follow(None)
    is_graceful = task.lifecycle.phase is TaskPhase.RUNNING or (
        task.lifecycle.phase is TaskPhase.STOPPING and task.stopping.is_graceful
    )
    turn.announce("info", "task_removed", name, "is removed: its ranks are stopped")
    stop(turn, task, is_graceful=is_graceful, intent="remove", note="it was removed")
    if has_nothing_started(turn.state):
        place_first(turn)


def has_nothing_started(state: ClusterState) -> bool:
    """Return whether no node was ever in contact, and no task has ever had a generation."""
    return all(task.generation == NO_GENERATION for task in state.tasks.values()) and all(
        node.contact.agent_id is None for node in state.nodes.values()
    )
