"""The fault of an incident: named, announced to operators, and counted against its node."""

from dataclasses import replace

from controller.core.incidents.incident_log import open_incident
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis, diagnose
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Cause, Incident
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Severity


def cause_of(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> Cause:
    """Return the cause of an incident as its diagnosis has it, with its cure."""
    root, action = diagnosis.root, handling.paper_action
    node = None if handling.blames_program else root.node
    reason = "; ".join(filter(None, (diagnosis.reason, handling.why)))
    if node is not None:
        found = turn.state.nodes[node].findings.present.values()
        others = [one for one in found if one.first_line not in reason]
        reason += "".join(f"; meanwhile {one.probe}: {one.first_line}" for one in others)
    seen_at = incident.detected_at if incident.reopened_at is None else incident.reopened_at
    return Cause(
        fault_at=min(root.observed_at, seen_at),
        node=node,
        global_rank=root.global_rank,
        status=diagnosis.status,
        severity=Severity.SEV1 if action == "reconfigure" else diagnosis.severity,
        method=diagnosis.method,
        action=action,
        reason=reason,
        nodes=(node,) if node is not None else (),
        decided_at=turn.at,
        is_drill=is_staged(turn, incident, node),
    )


def name_fault(turn: Turn, incident: Incident, diagnosis: Diagnosis, handling: Handling) -> None:
    """Write the diagnosis into the incident and announce it."""
    root, cause = diagnosis.root, cause_of(turn, incident, diagnosis, handling)
    incident.name_cause(cause)
    node, action, reason = cause.node, cause.action, cause.reason
    where = f" on {node}" if node else ""
    turn.announce(
        "error", "incident", incident.name,
        f"{cause.severity} {cause.status}{where}: {reason}; action: {action}",
        status=str(cause.status), severity=str(cause.severity), task=incident.task,
        node=node, rank=root.global_rank, action=action, method=diagnosis.method,
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
