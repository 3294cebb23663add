"""Reads from the core's state whether the next drill can begin. Pure."""

from collections.abc import Mapping

from controller.core.state.cluster import ClusterState
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from nodeagent.protocol.ids import Generation, NodeId, TaskId

_OPEN = frozenset({IncidentState.DETECTED, IncidentState.DECIDED, IncidentState.ACTING})


def why_not_ready(state: ClusterState) -> str | None:
    """Return why the cluster is not ready for a drill; None if it is."""
    for node in state.nodes.values():
        if node.contact.condition is not NodeCondition.HEALTHY:
            return f"{node.spec.node} is {node.contact.condition}"
        if node.service.isolated or node.service.isolated_gpus:
            return f"{node.spec.node} is isolated"
    for task in state.tasks.values():
        if task.lifecycle.phase is not TaskPhase.RUNNING:
            return f"{task.spec.task} is {task.lifecycle.phase}"
        if len(task.living_ranks) != task.spec.workers:
            return f"{task.spec.task} has {len(task.living_ranks)} of {task.spec.workers} workers"
    for incident in state.incidents.all:
        if incident.state in _OPEN:
            return f"{incident.name} is {incident.state}"
    plan = state.plans.pending() or state.plans.executing()
    return f"{plan.name} is {plan.state}" if plan else None


def iterations(state: ClusterState) -> dict[TaskId, int]:
    """Return the newest committed iteration of each task."""
    return {name: task.progress.iteration for name, task in state.tasks.items()}


def generations(state: ClusterState) -> dict[TaskId, Generation]:
    """Return the generation of each task."""
    return {name: task.generation for name, task in state.tasks.items()}


def have_advanced(state: ClusterState, since: Mapping[TaskId, int], num_iterations: int) -> bool:
    """Return whether every task has committed ``num_iterations`` more than in ``since``."""
    return all(
        task.progress.iteration >= since[name] + num_iterations
        for name, task in state.tasks.items()
    )


def why_stalled(
    state: ClusterState, since: Mapping[TaskId, int], before: Mapping[TaskId, Generation]
) -> str:
    """Return which task stalled or started a new generation; empty if no task did."""
    for name, task in state.tasks.items():
        if task.progress.iteration <= since[name]:
            return f"{name} does not advance"
        if task.generation != before[name]:
            return f"{name} started a new generation"
    return ""


def lost_nodes(state: ClusterState) -> list[NodeId]:
    """Return the lost nodes, which an operator would restore."""
    return [
        name for name, node in state.nodes.items() if node.contact.condition is NodeCondition.LOST
    ]


def isolated_nodes(state: ClusterState) -> list[NodeId]:
    """Return the isolated nodes in contact, which an operator would uncordon."""
    return [
        name
        for name, node in state.nodes.items()
        if (node.service.isolated or node.service.isolated_gpus)
        and node.contact.condition is NodeCondition.HEALTHY
    ]
