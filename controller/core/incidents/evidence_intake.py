"""Incidents: all evidence about one fault, gathered under one name.

All evidence about a task's present generation belongs to one incident, and what arrives late about
an older one to the incident that ended it. The task is parked at the first conclusive piece; the
cause is named, and cured, in ``controller.core.incidents.cures``.
"""

from controller.core.incidents.incident_log import attach, open_incident
from controller.core.lifecycle.parking import halt
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.timers import SettleIncident
from nodeagent.protocol.ids import Generation, NodeId


def take_evidence(turn: Turn, task: TaskState, evidence: Evidence) -> None:
    """Attach evidence to the incident of the task's generation, or open one.

    Evidence that can't be an echo parks the task at once, whatever the fault will be called.
    """
    incident = incident_of(turn, task, task.generation)
    if (
        incident is None
        and task.lifecycle.phase is TaskPhase.STOPPING
        and not task.stopping.is_graceful
    ):
        return
    if incident is None:
        incident = open_incident(turn, task, evidence)
        turn.set_timer(SettleIncident(incident.name), turn.policy.settle_s)
        turn.announce(
            "warning",
            "fault_seen",
            task.spec.task,
            evidence.summary,
            incident=incident.name,
            log=evidence.log,
        )
    else:
        attach(turn, incident, evidence)
    if evidence.is_conclusive and evidence.node is not None:
        _claim(turn, incident, evidence.node)
    if evidence.is_conclusive and task.can_regroup:
        halt(turn, task, note=f"parks after {incident.name}")


def _claim(turn: Turn, incident: Incident, name: NodeId) -> None:
    """Attach what the node's probes found a moment before one of its ranks broke."""
    node, policy = turn.state.nodes[name], turn.policy
    for each in node.unclaimed.claim():
        window_s = policy.network_merge_s if each.status.facts.is_network else policy.correlation_s
        if turn.at - each.at <= window_s:
            attach(turn, incident, each)


def take_late(turn: Turn, task: TaskState, generation: Generation, evidence: Evidence) -> None:
    """Attach what arrives about an older generation to the incident that ended it, if one did."""
    incident = incident_of(turn, task, generation)
    if incident is not None:
        attach(turn, incident, evidence)


def incident_of(turn: Turn, task: TaskState, generation: Generation) -> Incident | None:
    """Return the newest incident of a generation of the task, also a node's that covers it."""
    for incident in reversed(turn.state.incidents.all):
        if incident.covers.get(task.spec.task) == generation:
            return incident
    return None


def network_fault_of(turn: Turn, node: NodeId, since: float) -> Incident | None:
    """Return the newest incident of the network that ``node`` has had, or a task there has now."""
    tasks = {task.spec.task for task in turn.state.tasks.values() if task.runs_on(node)}
    for incident in reversed(turn.state.incidents.all):
        if incident.detected_at < since:
            return None
        if incident.state is IncidentState.DETECTED:
            is_there = incident.cause.node == node or not tasks.isdisjoint(incident.covers)
            is_network = incident.evidence[0].status.facts.is_network
        else:
            is_there, status = incident.cause.node == node, incident.cause.status
            is_network = status is not None and status.facts.is_network
        if is_there and is_network:
            return incident
    return None


def recent_incident_on(turn: Turn, node: NodeId, since: float) -> Incident | None:
    """Return the newest incident whose root, or first trace, is on ``node`` and not older."""
    for incident in reversed(turn.state.incidents.all):
        if incident.cause.node == node and incident.detected_at >= since:
            return incident
    return None
