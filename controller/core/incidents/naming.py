"""The fault of an incident: named, announced to operators, and counted against its node.

The one writer of ``Cause``, and of the link from a drill to its incident.
"""

from controller.core.incidents.incident_log import cover_nothing, hand_to_operator, open_incident
from controller.core.incidents.isolation import count_fault
from controller.core.rules.actions import Cure, FaultCase, Handling, choose
from controller.core.rules.diagnosis import Diagnosis, diagnose
from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Worker
from controller.core.state.cluster import ClusterState
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Severity


def name_fault(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> None:
    """Write the diagnosis into the incident and announce it."""
    root, action, cause = diagnosis.root, handling.action, incident.cause
    cause.status, cause.severity = diagnosis.status, diagnosis.severity
    if action == "reconfigure":
        cause.severity = Severity.SEV1
    cause.method, cause.reason = diagnosis.method, diagnosis.reason
    if handling.why:
        cause.reason += f"; {handling.why}"
    if root.node is not None:
        found = turn.state.nodes[root.node].findings.present.values()
        others = [one for one in found if one.first_line not in cause.reason]
        cause.reason += "".join(f"; meanwhile {one.probe}: {one.first_line}" for one in others)
    cause.node, cause.global_rank = root.node, root.global_rank
    cause.nodes = (root.node,) if root.node is not None else ()
    seen_at = incident.detected_at if incident.reopened_at is None else incident.reopened_at
    cause.fault_at = min(root.observed_at, seen_at)
    cause.action = action
    cause.decided_at = turn.at
    cause.is_drill = is_staged(turn, incident, root.node)
    where = f" on {root.node}" if root.node else ""
    turn.announce(
        "error", "incident", incident.name,
        f"{incident.cause.severity} {diagnosis.status}{where}: {incident.cause.reason}; action: {action}",
        status=str(diagnosis.status), severity=str(incident.cause.severity), task=incident.task,
        node=root.node, rank=root.global_rank, action=action, method=diagnosis.method,
        fault_at=incident.cause.fault_at, detected_at=incident.detected_at, log=root.log,
    )  # fmt: skip


def name_further_node(turn: Turn, incident: Incident, name: NodeId, reason: str) -> None:
    """A further node was lost together with the incident's node."""
    cause = incident.cause
    cause.nodes = (*cause.nodes, name)
    cause.reason += f"; {name}: {reason}"
    turn.announce(
        "error", "incident", incident.name,
        f"{cause.severity} {cause.status} on {', '.join(cause.nodes)}: {cause.reason};"
        f" action: {cause.action}",
        status=str(cause.status), severity=str(cause.severity), task=incident.task,
        node=cause.node, nodes=",".join(cause.nodes), action=cause.action, method=cause.method,
        fault_at=cause.fault_at, detected_at=incident.detected_at,
    )  # fmt: skip


def hand_over(turn: Turn, task: TaskState, evidence: Evidence) -> None:
    """Open an incident that no recovery cures: it is the operator's, and the task trains on.

    It covers no generation, so evidence of another fault is not taken for a part of it.
    """
    incident = open_incident(turn, task, evidence)
    cover_nothing(incident)
    diagnosis = diagnose([evidence])
    assert diagnosis is not None, "what is handed over is conclusive"
    name_fault(turn, incident, diagnosis, Handling("none"))
    hand_to_operator(incident)


def handle(
    turn: Turn,
    incident: Incident,
    diagnosis: Diagnosis,
    rank: RankState | None,
    last: Cure | None,
    *,
    is_counted: bool = True,
) -> Handling:
    """Choose the action for a fault, and note the fault in the record of its node.

    Without ``is_counted`` the fault is not counted against the node.
    """
    root, state = diagnosis.root, turn.state
    node = state.nodes[root.node] if root.node is not None and diagnosis.is_local else None
    worker = rank.worker if rank else None
    was_staged = is_staged(turn, incident, root.node)
    case = FaultCase(
        diagnosis=diagnosis,
        at=turn.at,
        worker=worker,
        node=node.spec.node if node else None,
        last=last,
        record=tuple(node.service.faults) if node else (),
        is_drill=was_staged,
        is_last_node=node is not None and _is_last(state, node.spec.node),
        has_other_gpus=node is not None and worker is not None and _has_others(turn, node, worker),
    )
    handling = choose(case, turn.policy)
    if node is not None and is_counted and (not was_staged or turn.policy.counts_drills):
        count_fault(turn, node, diagnosis.status, worker)
    return handling


def is_staged(turn: Turn, incident: Incident, node: NodeId | None) -> bool:
    """Return whether a drill explains an incident, and note that it does.

    That is a drill on the same node or task, at most ``Policy.drill_window_s`` before, that
    explains no other incident: what breaks there again is real.
    """
    if any(drill.incident == incident.name for drill in turn.state.drills.staged):
        return True
    for drill in turn.state.drills.staged:
        is_near = 0 <= incident.detected_at - drill.at <= turn.policy.drill_window_s
        is_there = drill.node == node or (drill.task is not None and drill.task in incident.covers)
        if not drill.incident and is_near and is_there:
            drill.incident = incident.name
            return True
    return False


def spend_drills(turn: Turn, incident: Incident, node: NodeId) -> None:
    """Let an incident explain the drills on ``node`` too: it has taken over their evidence."""
    for drill in turn.state.drills.staged:
        if drill.node == node and 0 <= turn.at - drill.at <= turn.policy.drill_window_s:
            drill.incident = drill.incident or incident.name


def _is_last(state: ClusterState, name: NodeId) -> bool:
    return not any(node.is_in_service and node.spec.node != name for node in state.nodes.values())


def _has_others(turn: Turn, node: NodeState, worker: Worker) -> bool:
    """Return whether the node has other workers that can serve."""
    slots = set(range(node.spec.num_workers)) - node.service.isolated_gpus.keys() - {worker.slot}
    if not _is_last(turn.state, node.spec.node):
        return bool(slots)
    tasks = [task for task in turn.state.tasks.values() if task.runs_on(node.spec.node)]
    return len(slots) >= sum(task.spec.smallest_size for task in tasks)
