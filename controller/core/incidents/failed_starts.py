"""Starts that fail before an iteration: when their cause is named, and where the ranks may start.

Whose fault such a start is, is decided in ``controller.core.rules.actions``.
"""

from typing import Final

from controller.core.rules.evidence import Evidence
from controller.core.rules.failed_start import (
    alike,
    failed_starts,
    is_exit_code,
    likeness,
)
from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from controller.core.state.incident import Incident
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId

PEERS_WAIT_S: Final = 2.0
"""How long a failed start waits for ranks on other nodes that may fail alike."""

_ENOUGH_NODES: Final = 2
"""Nodes that fail alike: a third one would say nothing more."""


def is_failed_start(task: TaskState, root: Evidence) -> bool:
    """Return whether the present generation never trained, and the program says what is wrong."""
    is_own = bool(root.own_words) and root.node is not None
    return is_own and task.progress.trained_in != task.generation


def may_fail_alike(turn: Turn, task: TaskState, incident: Incident, root: Evidence) -> bool:
    """Return whether ranks on other nodes may be about to fail like the root of an incident.

    They have started at the same time. So the cause of a failed start is named a moment later:
    what fails on every node is no fault of the first one. An exit code alone is not waited for: it
    says too little.
    """
    if is_exit_code(root.own_words) or not is_failed_start(task, root):
        return False
    if turn.at - incident.detected_at >= PEERS_WAIT_S:
        return False
    same = alike(failed_starts(incident.evidence, task.generation), likeness(root.own_words))
    has_peers = any(
        rank.worker.node != root.node and (task.spec.is_command or rank.position is None)
        for rank in task.living_ranks.values()
    )
    return has_peers and len({start.node for start in same}) < _ENOUGH_NODES


def place_elsewhere(turn: Turn, task: TaskState, node: NodeId) -> Placement | None:
    """Return free workers for the same layout without ``node``; None if there are too few.

    Ranks on other nodes stay where they are.
    """
    if task.layout is None or task.assignment.target is None:
        return None
    num_workers = {
        name: each.spec.num_workers
        for name, each in turn.state.nodes.items()
        if each.is_in_service and name != node
    }
    domains = {name: turn.state.nodes[name].spec.failure_domain for name in num_workers}
    found = place(
        {task.spec.task: task.layout},
        {task.spec.task: task.placement},
        num_workers,
        layouts_before={task.spec.task: task.layout},
        blocked={each for each in _blocked(turn, task) if each.node in num_workers},
        domains=domains,
    )
    return None if isinstance(found, Unplaceable) else found[task.spec.task]


def _blocked(turn: Turn, task: TaskState) -> set[Worker]:
    """Return the workers that the task may not get."""
    others = [each for each in turn.state.tasks.values() if each is not task]
    nodes, measurement = turn.state.nodes, turn.state.measurements.current
    run = measurement.run if measurement is not None else None
    return {
        *(worker for each in others for worker in each.occupied_workers),
        *(
            worker
            for each in others
            if each.assignment.target is not None
            for worker in each.assignment.target.placement
        ),
        *(Worker(name, slot) for name in nodes for slot in nodes[name].service.isolated_gpus),
        *(worker for node in nodes.values() for worker in node.inventory.strays),
        *(run.living.values() if run is not None else ()),
    }
