"""Incidents: evidence about one fault is gathered, the fault is named, and its cure begun.

All evidence about a task's present generation belongs to one incident. It is gathered for a moment
before the cause is named, because the peers of a dead rank report before the rank's own node does.
While a node of the task is out of contact nothing is decided here: whether the node is lost comes
first (``controller.core.nodes``). Failed collectives alone wait longer, for a cause to show.

The cure of the two SEV2 statuses of this slice is a restart of the task's ranks from the newest
checkpoint. Recoveries without a new iteration between them end in the operator's hands.
"""

from typing import Final

from controller.core.faults import SEV2, Diagnosis, Evidence, diagnose, diagnose_symptoms
from controller.core.lifecycle import stop
from controller.core.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state import Incident, Target, TaskState
from controller.core.timers import SettleIncident
from controller.core.turn import Turn
from nodeagent.protocol.ids import Generation


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
    """Attach evidence to the incident of the task's generation, or open one."""
    incident = _incident_of(turn, task)
    if incident is None and task.phase is TaskPhase.STOPPING and not task.is_stop_graceful:
        return
    if incident is None:
        incident = open_incident(turn, task, evidence)
        turn.set_timer(SettleIncident(incident.name), turn.policy.settle_s)
        turn.tell("warning", "fault_seen", task.spec.task, evidence.summary, incident=incident.name)
    else:
        incident.evidence.append(evidence)
        turn.tell("trace", "symptom", task.spec.task, evidence.summary, incident=incident.name)


def _incident_of(turn: Turn, task: TaskState) -> Incident | None:
    """Return the incident of the task's present generation, also a node's that covers it."""
    for incident in reversed(turn.state.incidents):
        if incident.covers.get(task.spec.task) == task.generation:
            return incident
    return None


def settle(turn: Turn, incident: Incident) -> None:
    """Name the fault if it can be named by now; otherwise look again later."""
    if incident.state is not IncidentState.DETECTED or incident.task is None:
        return
    task = turn.state.tasks[incident.task]
    if any(
        turn.state.nodes[rank.worker.node].condition is NodeCondition.UNREACHABLE
        for rank in task.ranks.values()
    ):
        turn.set_timer(SettleIncident(incident.name), turn.policy.judge_interval_s)
        return
    diagnosis = diagnose(incident.evidence)
    if diagnosis is None:
        if turn.at - incident.detected_at < turn.policy.symptom_patience_s:
            turn.set_timer(SettleIncident(incident.name), turn.policy.settle_s)
            return
        diagnosis = diagnose_symptoms(incident.evidence)
    _restart(turn, task, incident, diagnosis)


def name_fault(turn: Turn, incident: Incident, diagnosis: Diagnosis, action: str) -> None:
    """Write the diagnosis into the incident and announce it."""
    root = diagnosis.root
    incident.status, incident.severity = diagnosis.status, diagnosis.severity
    incident.method, incident.reason = diagnosis.method, diagnosis.reason
    incident.node, incident.global_rank = root.node, root.global_rank
    incident.fault_at = min(root.observed_at, incident.detected_at)
    incident.action = action
    where = f" on {root.node}" if root.node else ""
    turn.tell(
        "error",
        "incident",
        incident.name,
        f"{diagnosis.severity} {diagnosis.status}{where}: {diagnosis.reason}; action: {action}",
        status=diagnosis.status,
        severity=diagnosis.severity,
        task=incident.task,
        node=root.node,
        rank=root.global_rank,
        action=action,
        fault_at=incident.fault_at,
        detected_at=incident.detected_at,
    )


def _restart(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    assert diagnosis.severity == SEV2, "only SEV2 is cured by a restart"
    is_over = incident.covers.get(task.spec.task) != task.generation
    if is_over or not (task.is_active or task.phase is TaskPhase.STOPPING):
        name_fault(turn, incident, diagnosis, "restart")  # a plan has ended this generation
        incident.become(IncidentState.ACTING)
        return
    task.num_recoveries += 1
    is_hopeless = task.num_recoveries > turn.policy.max_recoveries
    name_fault(turn, incident, diagnosis, "none" if is_hopeless else "restart")
    if is_hopeless:
        incident.become(IncidentState.HELD)
        text = (
            f"{turn.policy.max_recoveries} recoveries brought no new iteration: the task is held;"
            " propose a plan to try again"
        )
        task.target = None
        stop(turn, task, is_graceful=False, intent="hold", note=text)
        turn.tell("error", "held", task.spec.task, text)
        return
    incident.become(IncidentState.ACTING)
    if task.target is None and task.layout is not None and task.is_active:
        task.target = Target(task.layout, task.placement)
    intent = task.intent if task.phase is TaskPhase.STOPPING else "run"
    stop(turn, task, is_graceful=False, intent=intent, note=f"restart after {incident.name}")


def close_cured_incidents(turn: Turn) -> None:
    """Resolve every named fault whose tasks train again in a newer generation, or have ended."""
    for incident in turn.state.incidents:
        if incident.state in {IncidentState.DETECTED, IncidentState.RESOLVED}:
            continue
        tasks = [turn.state.tasks[name] for name in incident.covers]
        if all(_is_cured(task, incident.covers[task.spec.task]) for task in tasks):
            cured = ", ".join(f"{task.spec.task} {_CURES[task.phase]}" for task in tasks)
            _resolve(turn, incident, cured or "no task is affected")
        elif any(task.phase is TaskPhase.HELD for task in tasks):
            hold(incident)


def _is_cured(task: TaskState, generation: Generation) -> bool:
    is_new = task.phase is TaskPhase.RUNNING and task.generation > generation
    return is_new or task.phase in {TaskPhase.STOPPED, TaskPhase.FINISHED}


def hold(incident: Incident) -> None:
    """Hand a named fault to the operator."""
    if incident.state in {IncidentState.DECIDED, IncidentState.ACTING}:
        incident.become(IncidentState.HELD)


def _resolve(turn: Turn, incident: Incident, text: str) -> None:
    incident.become(IncidentState.RESOLVED)
    incident.resolved_at = turn.at
    took_s = turn.at - incident.fault_at
    turn.tell(
        "good",
        "resolved",
        incident.name,
        f"resolved {took_s:.1f} s after the fault: {text}",
        took_s=took_s,
        resolved_at=turn.at,
    )


_CURES: Final = {
    TaskPhase.RUNNING: "trains again",
    TaskPhase.STOPPED: "was stopped by a plan",
    TaskPhase.FINISHED: "has finished",
}
