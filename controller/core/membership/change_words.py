"""What changes of a cluster file do, as a line for each: before they are taken in, and after."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import assert_never

from controller.core.events import (
    MembershipChange,
    NodeAdded,
    NodeRemoved,
    PolicyChanged,
    TaskAdded,
    TaskChanged,
    TaskRemoved,
)
from controller.core.membership.node_membership import tasks_on
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from controller.core.state.task_orders import changed_settings

_SETTINGS = frozenset(
    {"weight", "min_workers", "max_workers", "keeps_running", "workers", "num_iterations"}
)
"""Settings of a task whose values fit into a line."""


def lines_of(
    changes: Iterable[MembershipChange], state: ClusterState, policy: Policy
) -> Iterator[str]:
    """Yield what each change will do to the state as it is now."""
    for change in changes:
        match change:
            case PolicyChanged():
                yield from _policy(policy, change.policy)
            case NodeAdded():
                yield _node_added(change.spec, state)
            case NodeRemoved():
                then = (
                    f", once {', '.join(there)} is elsewhere"
                    if (there := tasks_on(state, change.node))
                    else ""
                )
                yield f"node {change.node} leaves{then}"
            case TaskAdded():
                yield f"task {change.spec.task} joins, for {change.spec.workers} workers"
            case TaskChanged():
                yield _task_changed(change.spec, state.tasks[change.spec.task])
            case TaskRemoved():
                yield f"task {change.task} leaves: its ranks save a checkpoint and end"
            case _:
                assert_never(change)


def _policy(before: Policy, after: Policy) -> Iterator[str]:
    for each in fields(Policy):
        old, new = getattr(before, each.name), getattr(after, each.name)
        if each.name == "approvals" and old != new:
            rules = "; ".join(rule.in_words for rule in after.approvals)
            yield f"policy approvals: {rules or 'none any more'}"
        elif old != new:
            yield f"policy {each.name}: {_value(old)} -> {_value(new)}"


def _node_added(spec: NodeSpec, state: ClusterState) -> str:
    known, workers = state.nodes.get(spec.node), f"{spec.num_workers} workers"
    if known is None or known.contact.condition is NodeCondition.REMOVED:
        return f"node {spec.node} joins, with {workers}"
    if known.membership.is_leaving:
        return f"node {spec.node} stays after all"
    names = {"address", "num_workers", "failure_domain", "training_address", "training_interface"}
    changed = sorted(name for name in names if getattr(known.spec, name) != getattr(spec, name))
    what = ", ".join(
        f"{name} {_value(getattr(known.spec, name))} -> {_value(getattr(spec, name))}"
        for name in changed
    )
    return f"node {spec.node}: {what or 'is reached in another way'}"


def _task_changed(spec: TaskSpec, task: TaskState) -> str:
    before = task.of_file()
    parts = [
        f"{each.name} {_value(getattr(before, each.name))} -> {_value(getattr(spec, each.name))}"
        for each in fields(TaskSpec)
        if each.name in _SETTINGS and getattr(before, each.name) != getattr(spec, each.name)
    ]
    parts += [
        f"another {each.name}"
        for each in fields(TaskSpec)
        if each.name not in _SETTINGS and getattr(before, each.name) != getattr(spec, each.name)
    ]
    ended = set(task.orders.marks) & changed_settings(before.limits, spec.limits)
    parts += [
        f"the order of {task.orders.marks[name].actor} about {name} ends" for name in sorted(ended)
    ]
    if task.orders.submitted is not None:
        parts.append("belongs to the cluster file from now on")
    later = (
        "" if before.takes_effect_at_once(spec) else "; from its next start with new processes on"
    )
    return f"task {spec.task}: {', '.join(parts)}{later}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case None | "":
            return "none"
        case _:
            return str(value)
