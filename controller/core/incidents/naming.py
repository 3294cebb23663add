"""The fault of an incident: named, announced to operators, and counted against its node."""

from dataclasses import replace

from controller.core.incidents.incident_log import open_incident
from controller.core.incidents.isolation import count_fault
from controller.core.rules.actions import Cure, FaultCase, Handling, choose
from controller.core.rules.diagnosis import Diagnosis, diagnose
from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Worker
from controller.core.state.cluster import ClusterState
from controller.core.state.incident import Cause, Incident
from controller.core.state.node import NodeState
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Severity


def name_fault(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> None:
    """Write the diagnosis into the incident and announce it."""
    root, action = diagnosis.root, handling.action
    reason = "; ".join(filter(None, (diagnosis.reason, handling.why)))
    if root.node is not None:
        found = turn.state.nodes[root.node].findings.present.values()
        others = [one for one in found if one.first_line not in reason]
        reason += "".join(f"; meanwhile {one.probe}: {one.first_line}" for one in others)
    seen_at = incident.detected_at if incident.reopened_at is None else incident.reopened_at
    cause = Cause(
        fault_at=min(root.observed_at, seen_at),
        node=root.node,
        global_rank=root.global_rank,
        status=diagnosis.status,
        severity=Severity.SEV1 if action == "reconfigure" else diagnosis.severity,
        method=diagnosis.method,
        action=action,
        reason=reason,
        nodes=(root.node,) if root.node is not None else (),
        decided_at=turn.at,
        is_drill=is_staged(turn, incident, root.node),
    )
    incident.name_cause(cause)
    where = f" on {root.node}" if root.node else ""
    turn.announce(
        "error", "incident", incident.name,
        f"{cause.severity} {cause.status}{where}: {reason}; action: {action}",
        status=str(cause.status), severity=str(cause.severity), task=incident.task,
        node=root.node, rank=root.global_rank, action=action, method=diagnosis.method,
        fault_at=cause.fault_at, detected_at=incident.detected_at, log=root.log,
    )  # fmt: skip


def name_further_node(turn: Turn, incident: Incident, name: NodeId, reason: str) -> None:
    """A further node was lost together with the incident's node."""
    known = incident.cause
    cause = replace(known, nodes=(*known.nodes, name), reason=f"{known.reason}; {name}: {reason}")
    incident.name_cause(cause)
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
    incident.cover_nothing()
    diagnosis = diagnose([evidence])
    assert diagnosis is not None, "what is handed over is conclusive"
    name_fault(turn, incident, diagnosis, Handling("none"))
    incident.hand_to_operator()


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
            drill.explain(incident.name)
            return True
    return False


def spend_drills(turn: Turn, incident: Incident, node: NodeId) -> None:
    """Let an incident explain the drills on ``node`` too: it has taken over their evidence."""
    for drill in turn.state.drills.staged:
        if drill.node == node and 0 <= turn.at - drill.at <= turn.policy.drill_window_s:
            drill.explain(incident.name)


def _is_last(state: ClusterState, name: NodeId) -> bool:
    return not any(node.is_in_service and node.spec.node != name for node in state.nodes.values())


def _has_others(turn: Turn, node: NodeState, worker: Worker) -> bool:
    """Return whether the node has other workers that can serve."""
    slots = set(range(node.spec.num_workers)) - node.service.isolated_gpus.keys() - {worker.slot}
    if not _is_last(turn.state, node.spec.node):
        return bool(slots)
    tasks = [task for task in turn.state.tasks.values() if task.runs_on(node.spec.node)]
    return len(slots) >= sum(task.spec.smallest_size for task in tasks)
