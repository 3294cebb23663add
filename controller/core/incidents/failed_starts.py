"""Starts that fail before an iteration: the program's fault, or that of its node.

A second node shows which. So ranks whose start failed are started on another node if one has
free workers, before anything is isolated. A program that fails there alike is held, and no node is
blamed. ``controller.core.rules.failed_start`` has the rules.
"""

from typing import Final

from controller.core.incidents.naming import handle
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.rules.failed_start import (
    alike,
    failed_starts,
    is_exit_code,
    is_of_program,
    likeness,
)
from controller.core.rules.placement import Placement, Unplaceable, Worker, place
from controller.core.state.incident import Incident
from controller.core.state.rank import RankState
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


def has_trained(task: TaskState) -> bool:
    """Return whether the program has ever trained here."""
    return task.progress.trained_in is not None


def why_program_fails(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> str:
    """Note a failed start; return why it is the program's fault, or nothing if it may be a node's.

    The text is for operators: what failed, where, and what to mend.
    """
    root = diagnosis.root
    if root.node is None or not is_failed_start(task, root):
        return ""
    task.faults.note_failed_starts(failed_starts(incident.evidence, task.generation))
    same = alike(task.faults.failed_starts, likeness(root.own_words))
    can_move = _place_elsewhere(turn, task, root.node) is not None
    if not is_of_program(same, has_trained=has_trained(task), can_move=can_move):
        return ""
    nodes = sorted({start.node for start in same})
    num_times = len({start.generation for start in same})
    where = f"alike on {', '.join(nodes)}"
    if len(nodes) == 1:
        where = f"{num_times} times alike on {nodes[0]}, and no other node has free workers"
    never = "" if has_trained(task) else " and has never committed an iteration"
    log = f" (log: {root.log} on {root.node})" if root.log else ""
    return (
        f"its start failed {where}{never}, so no node is blamed; the task is held: mend the program,"
        f" its command or its data{log}, then propose a plan"
    )


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


def handle_of_task(
    turn: Turn,
    task: TaskState,
    incident: Incident,
    diagnosis: Diagnosis,
    rank: RankState | None,
) -> Handling:
    """Choose the action for a fault of a task: a second node is tried before one is isolated.

    A program that has never trained is tried elsewhere at once, and no fault is counted.
    """
    root, is_start = diagnosis.root, is_failed_start(task, diagnosis.root)
    is_counted = has_trained(task) or not is_start
    handling = handle(turn, incident, diagnosis, rank, task.faults.last_cure, is_counted=is_counted)
    if is_start and handling.action == "reconfigure" and len(nodes := _nodes_alike(task, root)) > 1:
        return Handling("restart", f"it fails alike on {', '.join(nodes)}: none is isolated")
    is_tried = is_start and (handling.action == "reconfigure" or not is_counted)
    if not is_tried or root.node is None or not (where := _start_elsewhere(turn, task, root.node)):
        return handling
    stays = f"{root.node} stays a suspect, and " if is_counted else ""
    return Handling("restart", f"{stays}a second node is tried first: it starts on {where}")


def _nodes_alike(task: TaskState, root: Evidence) -> list[NodeId]:
    """Return the nodes on which starts have failed like ``root``."""
    same = alike(task.faults.failed_starts, likeness(root.own_words))
    return sorted({start.node for start in same})


def _start_elsewhere(turn: Turn, task: TaskState, node: NodeId) -> str:
    """Have the ranks on ``node`` start on other nodes next; return where, or nothing if nowhere."""
    placement = _place_elsewhere(turn, task, node)
    if placement is None or not task.assignment.move(placement, task.layout):
        return ""
    return ", ".join(sorted({worker.node for worker in placement}))


def _place_elsewhere(turn: Turn, task: TaskState, node: NodeId) -> Placement | None:
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
