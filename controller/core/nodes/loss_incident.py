"""The one incident of a lost node. Earlier reports about the node become part of it."""

from controller.core.incidents.incident_log import open_incident
from controller.core.incidents.naming import name_fault, name_further_node
from controller.core.nodes.bursts import incident_of_burst
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn


def incident_of_loss(
    turn: Turn, node: NodeState, victims: list[TaskState], reason: str
) -> Incident:
    """Return the one incident of the lost node. Undecided incidents of its tasks merge into it.

    Nodes that are lost within a moment share an incident.
    """
    name = node.spec.node
    root = Evidence(
        kind="contact",
        at=turn.at,
        observed_at=node.contact.lost_contact_at,
        node=name,
        task=None,
        global_rank=None,
        summary=f"node {name} last sent a message at {node.contact.lost_contact_at:.1f} s",
    )
    undecided = [
        incident
        for incident in turn.state.incidents.open()
        if incident.state is IncidentState.DETECTED
        and any(task.spec.task in incident.covers for task in victims)
    ]
    joined = incident_of_burst(turn, node)
    if joined is not None:
        for other in undecided:
            turn.state.incidents.absorb(joined, other)
        joined.cover(victims)
        joined.keep_root(root)
        name_further_node(turn, joined, name, reason)
        return joined
    first = victims[0] if victims else None
    incident = undecided[0] if undecided else open_incident(turn, first, root)
    for other in undecided[1:]:
        turn.state.incidents.absorb(incident, other)
    incident.cover_only(victims)
    incident.keep_root(root)
    diagnosis = Diagnosis(root.status, root, f"{name}: {reason}")
    name_fault(turn, incident, diagnosis, Handling("reconfigure"))
    return incident
