"""Opening an incident, and adding evidence to it."""

from typing import Final

from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Cause, Incident
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn

MAX_SYMPTOMS: Final = 200
"""Pieces after which an incident takes no more symptoms: further ones say nothing new."""


def open_incident(turn: Turn, task: TaskState | None, evidence: Evidence) -> Incident:
    """Open an incident on its first piece of evidence."""
    log = turn.state.incidents
    incident = Incident(
        name=log.next_name(),
        task=task.spec.task if task else None,
        covers={task.spec.task: task.generation} if task else {},
        detected_at=turn.at,
        cause=Cause(evidence.observed_at, evidence.node, evidence.global_rank),
        evidence=[evidence],
    )
    log.keep(incident)
    return incident


def attach(turn: Turn, incident: Incident, evidence: Evidence) -> None:
    """Add a piece of evidence to an incident, open or closed."""
    if len(incident.evidence) >= MAX_SYMPTOMS and not evidence.is_conclusive:
        return
    incident.add_evidence([evidence])
    late = "" if incident.is_open else ", late"
    turn.announce(
        "trace", "symptom", evidence.task or evidence.node or incident.name,
        f"{evidence.summary} ({incident.name}{late})", incident=incident.name,
    )  # fmt: skip
