"""Nodes that are lost, or return, within a moment: one incident, one plan.

A rack, a switch or a spot market takes several nodes at once, but each node is judged on its own.
Handled one by one, every loss would cost its own plan and its own generation. So the plan waits for
``Policy.burst_s`` at most, and only while there is evidence of more to come: another node lost
contact within the same time, or is silent, or two of its failure domain are lost. A node that is
lost after the plan joins the incident while that is open.

Nodes that return are gathered for as long, if others are still away: a plan for the first of them
would be superseded at once, and may have begun another layout.

Earlier reports about a lost node become part of the one incident of its loss.
"""

from collections import Counter
from typing import Final

from controller.core.incidents.incident_log import open_incident
from controller.core.incidents.naming import name_fault, name_further_node
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import PlanRequest, Turn
from controller.core.timers import BurstOver

SILENT_S: Final = 1.2
"""A node in contact that has sent nothing for this long may be lost. Two heartbeats take 1 s."""


def incident_of_burst(turn: Turn, node: NodeState) -> Incident | None:
    """Return the open incident of nodes that were lost within ``burst_s`` of this one, if any."""
    bursts = turn.state.bursts
    limit_s = turn.policy.burst_s
    if bursts.incident is None or limit_s <= 0:
        return None
    incident = turn.state.incidents.find(bursts.incident)
    is_near = abs(node.contact.lost_contact_at - bursts.lost_contact_at) <= limit_s
    is_open = incident is not None and incident.state is not IncidentState.RESOLVED
    return incident if is_near and is_open else None


def note_loss(turn: Turn, node: NodeState, incident: Incident, seen: str) -> None:
    """A node is lost: ask for a plan, at once or when no further loss is to be expected."""
    bursts = turn.state.bursts
    bursts.note_change(turn.at, turn.policy.burst_s)
    bursts.note_loss(incident.name, node.contact.lost_contact_at, seen)
    if bursts.gathers_until is None:
        bursts.gather_until(turn.at + turn.policy.burst_s)
        if turn.policy.burst_s > 0 and _is_more_to_come(turn):
            turn.set_timer(BurstOver(incident.name), turn.policy.burst_s)


def end_gathering(turn: Turn) -> None:
    """Ask for the plan of gathered losses once no further loss is to be expected."""
    bursts = turn.state.bursts
    if bursts.gathers_until is None or bursts.incident is None:
        return
    if turn.at < bursts.gathers_until and _is_more_to_come(turn):
        return
    bursts.gather_until(None)
    turn.ask_for_plan(
        PlanRequest(
            trigger=bursts.incident,
            seen="; ".join(bursts.seen),
            incidents=frozenset({bursts.incident}),
        )
    )


def note_return(turn: Turn, node: NodeState, verb: str) -> None:
    """A node brings workers: ask for a plan, at once or when no further node is to be expected.

    ``verb`` says how it came, for operators.
    """
    bursts, name = turn.state.bursts, node.spec.node
    bursts.note_change(turn.at, turn.policy.burst_s)
    is_single = not _is_more_to_return(turn) and not _is_starting(turn)
    if turn.policy.burst_s <= 0 or is_single:
        turn.ask_for_plan(PlanRequest(trigger=name, seen=f"{name} {verb}"))
        return
    if bursts.note_return(name, turn.at + turn.policy.burst_s):
        turn.set_timer(BurstOver(name), turn.policy.burst_s)


def end_returns(turn: Turn) -> None:
    """Ask for the plan of nodes that have returned together."""
    bursts = turn.state.bursts
    until = bursts.awaits_returns_until
    if until is None or (turn.at < until and _is_more_to_return(turn)) or _is_starting(turn):
        return
    names = bursts.end_returns()
    verb = "has returned" if len(names) == 1 else "have returned"
    seen = f"{', '.join(names)} {verb}"
    turn.ask_for_plan(PlanRequest(trigger=names[0], seen=seen))


def count_change(turn: Turn) -> None:
    """Count the newest change for later plans, once its own plan is made."""
    turn.state.bursts.count_change()


def _is_starting(turn: Turn) -> bool:
    """Whether growth now would end a start of processes, and nothing else waits for workers."""
    phases = {task.lifecycle.phase for task in turn.state.tasks.values()}
    return TaskPhase.STARTING in phases and TaskPhase.STOPPED not in phases


def _is_more_to_return(turn: Turn) -> bool:
    index = turn.state.index
    return bool(index.of(NodeCondition.LOST) or index.of(NodeCondition.EXPECTED))


def _is_more_to_come(turn: Turn) -> bool:
    """Whether another node may be lost too: it is silent, or two of its failure domain are lost."""
    nodes, index, limit_s = turn.state.nodes, turn.state.index, turn.policy.burst_s
    if any(_is_near(turn, nodes[name]) for name in index.of(NodeCondition.UNREACHABLE)):
        return True
    silent = [nodes[name].contact.silent_since for name in index.silent]
    if any(since is not None and turn.at - since <= limit_s + SILENT_S for since in silent):
        return True
    lost = [nodes[name] for name in index.of(NodeCondition.LOST)]
    domains = Counter(node.spec.failure_domain for node in lost if _is_near(turn, node))
    hit = {domain for domain, count in domains.items() if domain and count > 1}
    in_contact = index.of(NodeCondition.HEALTHY)
    return bool(hit) and any(nodes[name].spec.failure_domain in hit for name in in_contact)


def _is_near(turn: Turn, node: NodeState) -> bool:
    """Return whether contact with the node was lost in the present burst."""
    away_s = abs(node.contact.lost_contact_at - turn.state.bursts.lost_contact_at)
    return away_s <= turn.policy.burst_s


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
