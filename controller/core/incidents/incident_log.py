"""The life of incidents: opened, joined, decided, cured.

The one writer of ``Incident``'s own fields.

A change of state that the table in ``state.phases`` does not allow is a bug of the core and raises
``InvariantViolationError``. Also the one writer of ``IncidentLog``.
"""

from collections.abc import Iterable
from typing import Final

from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Cause, Incident
from controller.core.state.phases import INCIDENT_CHANGES, IncidentState, advance
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn

MAX_SYMPTOMS: Final = 200
"""Pieces after which an incident takes no more symptoms: further ones say nothing new."""


def open_incident(turn: Turn, task: TaskState | None, evidence: Evidence) -> Incident:
    """Open an incident on its first piece of evidence."""
    log = turn.state.incidents
    log.num_named += 1
    incident = Incident(
        name=f"I-{log.num_named}",
        task=task.spec.task if task else None,
        covers={task.spec.task: task.generation} if task else {},
        detected_at=turn.at,
        cause=Cause(evidence.observed_at, evidence.node, evidence.global_rank),
        evidence=[evidence],
    )
    log.all.append(incident)
    return incident


def attach(turn: Turn, incident: Incident, evidence: Evidence) -> None:
    """Add a piece of evidence to an incident, open or closed."""
    if len(incident.evidence) >= MAX_SYMPTOMS and not evidence.is_conclusive:
        return
    incident.evidence.append(evidence)
    late = "" if incident.is_open else ", late"
    turn.announce(
        "trace", "symptom", evidence.task or evidence.node or incident.name,
        f"{evidence.summary} ({incident.name}{late})", incident=incident.name,
    )  # fmt: skip


def absorb(turn: Turn, incident: Incident, other: Incident) -> None:
    """Another incident turns out to be a part of this one."""
    incident.evidence += other.evidence
    incident.task = incident.task or other.task
    turn.state.incidents.all.remove(other)


def cover(incident: Incident, tasks: Iterable[TaskState]) -> None:
    """The fault hits these tasks, in their present generations."""
    incident.covers |= {task.spec.task: task.generation for task in tasks}


def cover_only(incident: Incident, tasks: list[TaskState]) -> None:
    """The fault hits these tasks and no other ones."""
    incident.task = tasks[0].spec.task if tasks else None
    incident.covers = {task.spec.task: task.generation for task in tasks}


def cover_nothing(incident: Incident) -> None:
    """The fault ends no generation, so evidence of another fault does not join the incident."""
    incident.covers = {}


def keep_root(incident: Incident, evidence: Evidence) -> None:
    """Keep the evidence of the root cause, if the incident was not opened on it."""
    if evidence not in incident.evidence:
        incident.evidence.append(evidence)


def _become(incident: Incident, state: IncidentState) -> None:
    incident.state = advance(INCIDENT_CHANGES, incident.state, state, incident.name)


def decide(incident: Incident) -> None:
    """The cause is named; a plan has to cure it."""
    _become(incident, IncidentState.DECIDED)


def decide_again(incident: Incident) -> None:
    """The cause is named, maybe once more; a plan has to cure it."""
    if incident.state is not IncidentState.DECIDED:
        decide(incident)


def act(turn: Turn, incident: Incident) -> None:
    """The cure begins."""
    _become(incident, IncidentState.ACTING)
    incident.acting_at = turn.at


def hold(incident: Incident) -> None:
    """Hand a named fault to the operator."""
    if incident.state in {IncidentState.DECIDED, IncidentState.ACTING}:
        hand_to_operator(incident)


def hand_to_operator(incident: Incident) -> None:
    """The operator has to cure the fault."""
    _become(incident, IncidentState.HELD)


def close(turn: Turn, incident: Incident) -> None:
    """The fault is cured."""
    _become(incident, IncidentState.RESOLVED)
    incident.resolved_at = turn.at
    log = turn.state.incidents
    # Later searches for open incidents begin after the ones that are over.
    while log.num_over < len(log.all) and not log.all[log.num_over].is_open:
        log.num_over += 1


def reopen(turn: Turn, incident: Incident) -> None:
    """A cured fault was a part of one that shows only now."""
    decide(incident)
    incident.reopened_at = turn.at
    incident.resolved_at = incident.acting_at = None
    log = turn.state.incidents
    log.num_over = min(log.num_over, log.all.index(incident))
