"""Nodes that are lost within a moment: one incident, one plan.

A rack, a switch or a spot market takes several nodes at once, but each node is judged on its own.
Handled one by one, every loss would cost its own plan and its own generation. So the plan waits for
``Policy.burst_s`` at most, and only while there is evidence of more to come: another node lost
contact within the same time, or is silent. A node that is lost after the plan joins the incident
while that is open. The one writer of ``LossLog``.
"""

from typing import Final

from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, NodeCondition
from controller.core.state.turn import PlanRequest, Turn
from controller.core.timers import BurstOver

_SILENT_S: Final = 1.2
"""A node in contact that has sent nothing for this long may be lost. Two heartbeats take 1 s."""


def incident_of_burst(turn: Turn, node: NodeState) -> Incident | None:
    """Return the open incident of nodes that were lost within ``burst_s`` of this one, if any."""
    losses = turn.state.losses
    limit_s = turn.policy.burst_s
    if losses.incident is None or limit_s <= 0:
        return None
    incident = turn.state.incidents.find(losses.incident)
    is_near = abs(node.contact.lost_contact_at - losses.lost_contact_at) <= limit_s
    is_open = incident is not None and incident.state is not IncidentState.RESOLVED
    return incident if is_near and is_open else None


def note_loss(turn: Turn, node: NodeState, incident: Incident, seen: str) -> None:
    """A node is lost: ask for a plan, at once or when no further loss is to be expected."""
    losses = turn.state.losses
    if losses.incident != incident.name:
        losses.incident, losses.lost_contact_at = incident.name, node.contact.lost_contact_at
        losses.seen = []
    losses.seen = [*losses.seen, seen]
    if losses.gathers_until is None:
        losses.gathers_until = turn.at + turn.policy.burst_s
        if turn.policy.burst_s > 0 and _is_more_to_come(turn):
            turn.set_timer(BurstOver(incident.name), turn.policy.burst_s)


def end_gathering(turn: Turn) -> None:
    """Ask for the plan of gathered losses once no further loss is to be expected."""
    losses = turn.state.losses
    if losses.gathers_until is None or losses.incident is None:
        return
    if turn.at < losses.gathers_until and _is_more_to_come(turn):
        return
    losses.gathers_until = None
    turn.plan_requests.append(
        PlanRequest(
            trigger=losses.incident,
            seen="; ".join(losses.seen),
            incidents=frozenset({losses.incident}),
        )
    )


def _is_more_to_come(turn: Turn) -> bool:
    losses, limit_s = turn.state.losses, turn.policy.burst_s
    for node in turn.state.nodes.values():
        contact = node.contact
        if contact.condition is NodeCondition.UNREACHABLE:
            if abs(contact.lost_contact_at - losses.lost_contact_at) <= limit_s:
                return True
        elif contact.condition is NodeCondition.HEALTHY:
            last_at = contact.last_message_at
            if last_at is not None and _SILENT_S <= turn.at - last_at <= limit_s + _SILENT_S:
                return True
    return False
