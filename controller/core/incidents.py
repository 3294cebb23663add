"""Incidents: all evidence about one fault, gathered under one name.

All evidence about a task's present generation belongs to one incident, and what arrives late about
an older one to the incident that ended it. The task is parked at the first conclusive piece; the
cause is named, and cured, in ``controller.core.cures``.
"""

from typing import Final

from controller.core.evidence import NETWORK, Evidence
from controller.core.parking import halt
from controller.core.phases import IncidentState, TaskPhase
from controller.core.state import Incident
from controller.core.tasks import TaskState
from controller.core.timers import SettleIncident
from controller.core.turn import Turn
from nodeagent.protocol.ids import Generation, NodeId

MAX_SYMPTOMS: Final = 200
"""Pieces after which an incident takes no more symptoms: a storm says nothing new."""


def open_incident(turn: Turn, task: TaskState | None, evidence: Evidence) -> Incident:
    """Open an incident on its first piece of evidence."""
    turn.state.num_incidents += 1
    incident = Incident(
        name=f"I-{turn.state.num_incidents}",
        task=task.spec.task if task else None,
        covers={task.spec.task: task.generation} if task else {},
        detected_at=turn.at,
        fault_at=evidence.observed_at,
        node=evidence.node,
        global_rank=evidence.global_rank,
        evidence=[evidence],
    )
    turn.state.incidents.append(incident)
    return incident


def take_evidence(turn: Turn, task: TaskState, evidence: Evidence) -> None:
    """Attach evidence to the incident of the task's generation, or open one.

    Evidence that can't be an echo parks the task at once, whatever the fault will be called.
    """
    incident = incident_of(turn, task, task.generation)
    if incident is None and task.phase is TaskPhase.STOPPING and not task.is_stop_graceful:
        return
    if incident is None:
        incident = _joined(turn, task, evidence) or open_incident(turn, task, evidence)
        turn.set_timer(SettleIncident(incident.name), turn.policy.settle_s)
        turn.tell("warning", "fault_seen", task.spec.task, evidence.summary, incident=incident.name)
    else:
        attach(turn, incident, evidence)
    if evidence.is_conclusive and task.can_regroup:
        halt(turn, task, note=f"parks after {incident.name}")


def _joined(turn: Turn, task: TaskState, evidence: Evidence) -> Incident | None:
    """Return the network fault of the node that a rank there suffers from now, if there was one.

    It had cost no training, and was over. What peers elsewhere report may have another cause.
    """
    if evidence.status not in NETWORK or not evidence.is_conclusive:
        return None
    for incident in reversed(turn.state.incidents):
        is_ours = incident.task is None and incident.node == evidence.node
        if turn.at - incident.detected_at > turn.policy.network_merge_s:
            return None
        if is_ours and incident.status in NETWORK and not incident.is_open:
            turn.state.reopen(incident, IncidentState.DETECTED)
            incident.task, incident.covers = task.spec.task, {task.spec.task: task.generation}
            attach(turn, incident, evidence)
            return incident
    return None


def take_late(turn: Turn, task: TaskState, generation: Generation, evidence: Evidence) -> None:
    """Attach what arrives about an older generation to the incident that ended it, if one did."""
    incident = incident_of(turn, task, generation)
    if incident is not None:
        attach(turn, incident, evidence)


def attach(turn: Turn, incident: Incident, evidence: Evidence) -> None:
    """Add a piece of evidence to an incident, open or closed."""
    if len(incident.evidence) >= MAX_SYMPTOMS and not evidence.is_conclusive:
        return
    incident.evidence.append(evidence)
    late = "" if incident.is_open else ", late"
    turn.tell(
        "trace", "symptom", evidence.task or evidence.node or incident.name,
        f"{evidence.summary} ({incident.name}{late})", incident=incident.name,
    )  # fmt: skip


def incident_of(turn: Turn, task: TaskState, generation: Generation) -> Incident | None:
    """Return the newest incident of a generation of the task, also a node's that covers it."""
    for incident in reversed(turn.state.incidents):
        if incident.covers.get(task.spec.task) == generation:
            return incident
    return None


def network_fault_of(turn: Turn, node: NodeId) -> Incident | None:
    """Return the incident of the network that ``node`` had a moment ago, itself or in one of its tasks."""
    tasks = {task.spec.task for task in turn.state.tasks.values() if node in task.nodes}
    for incident in reversed(turn.state.incidents):
        if turn.at - incident.detected_at > turn.policy.network_merge_s:
            return None
        is_there = incident.node == node or not tasks.isdisjoint(incident.covers)
        is_unnamed = incident.state is IncidentState.DETECTED
        status = incident.evidence[0].status if is_unnamed else incident.status
        if is_there and status in NETWORK:
            return incident
    return None


def recent_incident_on(turn: Turn, node: NodeId, since: float) -> Incident | None:
    """Return the newest incident whose root, or first trace, is on ``node`` and not older."""
    for incident in reversed(turn.state.incidents):
        if incident.node == node and incident.detected_at >= since:
            return incident
    return None
