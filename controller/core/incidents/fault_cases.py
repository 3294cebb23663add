"""What the choice of a cure depends on, gathered from the state.

One thing is changed: a drill that explains the incident is noted as its explanation.
"""

from controller.core.incidents.failed_starts import is_failed_start, place_elsewhere
from controller.core.incidents.naming import is_staged
from controller.core.rules.actions import FaultCase, StartCase, TaskCase
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import has_broken_hardware
from controller.core.rules.failed_start import failed_starts
from controller.core.rules.placement import Worker
from controller.core.state.cluster import ClusterState
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId


def fault_case(
    turn: Turn,
    incident: Incident,
    diagnosis: Diagnosis,
    task: TaskState | None = None,
    rank: RankState | None = None,
) -> FaultCase:
    """Return the case of a fault.

    Args:
        turn: The event.
        incident: Its incident.
        diagnosis: Its name.
        task: The task that is to be cured; None for a fault of a node alone.
        rank: The rank at fault; None if no single one is.
    """
    root, state = diagnosis.root, turn.state
    node = state.nodes[root.node] if root.node is not None and diagnosis.is_local else None
    worker = rank.worker if rank else None
    return FaultCase(
        diagnosis=diagnosis,
        at=turn.at,
        worker=worker,
        node=node.spec.node if node else None,
        task=_task_case(turn, task, incident, diagnosis) if task else None,
        record=tuple(node.service.faults) if node else (),
        is_drill=is_staged(turn, incident, root.node),
        is_last_node=node is not None and _is_last(state, node.spec.node),
        has_other_gpus=node is not None and worker is not None and _has_others(turn, node, worker),
    )


def _task_case(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> TaskCase:
    faults, root, known = task.faults, diagnosis.root, incident.cause
    is_held_for = known.status is not None and known.status.facts.names_device
    return TaskCase(
        is_live=task.can_regroup or task.lifecycle.phase is TaskPhase.STOPPING,
        is_present=incident.covers.get(task.spec.task) == task.generation,
        last=faults.last_cure,
        num_recoveries=faults.num_recoveries + 1,
        needs_process=bool(task.limits.unsupported)
        or any(rank.is_broken or not rank.is_alive for rank in task.ranks.values()),
        start=_start_case(turn, task, incident, root.node) if is_failed_start(task, root) else None,
        accused=tuple(faults.accused),
        has_probe=root.node is not None and has_broken_hardware(incident.evidence, root.node),
        is_doubted=incident.state is IncidentState.HELD and known.action == "none" and is_held_for,
    )


def _start_case(turn: Turn, task: TaskState, incident: Incident, node: NodeId | None) -> StartCase:
    found, known = failed_starts(incident.evidence, task.generation), task.faults.failed_starts
    placement = place_elsewhere(turn, task, node) if node is not None else None
    can_move = placement is not None and task.assignment.can_move(task.layout)
    return StartCase(
        starts=(*known, *(start for start in found if start not in known)),
        has_trained=task.progress.trained_in is not None,
        has_room=placement is not None,
        elsewhere=sorted({worker.node for worker in placement})
        if placement is not None and can_move
        else (),
    )


def _is_last(state: ClusterState, name: NodeId) -> bool:
    return not any(node.is_in_service and node.spec.node != name for node in state.nodes.values())


def _has_others(turn: Turn, node: NodeState, worker: Worker) -> bool:
    """Return whether the node has other workers that can serve."""
    slots = set(range(node.spec.num_workers)) - node.service.isolated_gpus.keys() - {worker.slot}
    if not _is_last(turn.state, node.spec.node):
        return bool(slots)
    tasks = [task for task in turn.state.tasks.values() if task.runs_on(node.spec.node)]
    return len(slots) >= sum(task.spec.smallest_size for task in tasks)
