"""Incidents: evidence about one fault is gathered, the fault is named, and its cure begun.

All evidence about a task's present generation belongs to one incident. The task is parked at the
first conclusive piece; the cause is named when all its ranks have parked, or after a moment, because
the peers of a dead rank report before the rank's own node does. While a node of the task is out of
contact nothing is named here: whether the node is lost comes first (``controller.core.nodes``).
Failed collectives alone wait longer, for a cause to show.

The cure of SEV2 is a new generation with fresh processes for the broken ranks alone, a *restart*; a
*reattempt* where no rank is broken. Recoveries without a new iteration between them end in the
operator's hands.
"""

from typing import Final

from controller.core.faults import SEV2, Diagnosis, Evidence, diagnose, diagnose_symptoms
from controller.core.lifecycle import stop
from controller.core.parking import awaited_ranks, halt, halt_limit_s
from controller.core.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.regroup import Decision
from controller.core.state import Incident
from controller.core.tasks import TaskState
from controller.core.timers import HaltOverdue, SettleIncident
from controller.core.turn import Turn
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import StateSource


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
    if evidence.is_conclusive and task.can_regroup:
        halt(turn, task, note=f"parks after {incident.name}")


def hand_over(turn: Turn, task: TaskState, evidence: Evidence) -> None:
    """Open an incident that no recovery cures: it is the operator's, and the task trains on.

    It covers no generation, so evidence of another fault is not taken for a part of it.
    """
    incident = open_incident(turn, task, evidence)
    incident.covers = {}
    diagnosis = diagnose([evidence])
    assert diagnosis is not None, "what is handed over is conclusive"
    name_fault(turn, incident, diagnosis, "none")
    incident.become(IncidentState.HELD)


def end_handed_over(turn: Turn, task: TaskState, text: str) -> None:
    """Resolve what was handed over about the task: it is over by itself."""
    for incident in turn.state.incidents:
        if incident.task == task.spec.task and _is_handed_over(incident):
            _resolve(turn, incident, text)


def _is_handed_over(incident: Incident) -> bool:
    return incident.state is IncidentState.HELD and not incident.covers


def take_hangs(turn: Turn, task: TaskState) -> None:
    """Ranks that have not parked in time hang: they are left out."""
    for number in awaited_ranks(turn, task):
        rank = task.ranks[number]
        rank.is_broken = True
        summary = f"rank {number} did not park: it hangs"
        node, name = rank.worker.node, task.spec.task
        take_evidence(turn, task, Evidence("hang", turn.at, turn.at, node, name, number, summary))
    turn.set_timer(HaltOverdue(task.spec.task, task.generation), halt_limit_s(turn.policy, task))


def _incident_of(turn: Turn, task: TaskState) -> Incident | None:
    """Return the incident of the task's present generation, also a node's that covers it."""
    for incident in reversed(turn.state.incidents):
        if incident.covers.get(task.spec.task) == task.generation:
            return incident
    return None


def settle(turn: Turn, incident: Incident) -> None:
    """Time has passed: name the fault if it can be named by now, otherwise look again later."""
    if incident.state is not IncidentState.DETECTED or incident.task is None:
        return
    task = turn.state.tasks[incident.task]
    if task.parking and incident.covers.get(task.spec.task) == task.generation:
        task.parking.is_settled = True
    _try_to_name(turn, task, incident)
    if incident.state is IncidentState.DETECTED:
        is_blind = _is_partly_out_of_sight(turn, task)
        pause_s = turn.policy.judge_interval_s if is_blind else turn.policy.settle_s
        turn.set_timer(SettleIncident(incident.name), pause_s)


def name_cause(turn: Turn, task: TaskState) -> bool:
    """Name the fault that parked the task, if there is one; return False if that can't be yet."""
    incident = _incident_of(turn, task)
    if incident and incident.state is IncidentState.DETECTED:
        _try_to_name(turn, task, incident)
    return incident is None or incident.state is not IncidentState.DETECTED


def _try_to_name(turn: Turn, task: TaskState, incident: Incident) -> None:
    if _is_partly_out_of_sight(turn, task):
        return
    diagnosis = diagnose(incident.evidence)
    if diagnosis is None and turn.at - incident.detected_at >= turn.policy.symptom_patience_s:
        diagnosis = diagnose_symptoms(incident.evidence)
    if diagnosis is not None:
        _recover(turn, task, incident, diagnosis)


def _is_partly_out_of_sight(turn: Turn, task: TaskState) -> bool:
    return any(
        turn.state.nodes[rank.worker.node].condition is NodeCondition.UNREACHABLE
        for rank in task.ranks.values()
    )


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


def _recover(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    assert diagnosis.severity == SEV2, "only SEV2 is cured without a plan"
    is_over = incident.covers.get(task.spec.task) != task.generation
    if is_over or not (task.can_regroup or task.phase is TaskPhase.STOPPING):
        name_fault(turn, incident, diagnosis, "restart")  # a plan has ended this generation
        incident.become(IncidentState.ACTING)
        return
    task.num_recoveries += 1
    if diagnosis.is_refusal or task.num_recoveries > turn.policy.max_recoveries:
        _hold_task(turn, task, incident, diagnosis)
        return
    needs_process = bool(task.unsupported) or any(
        rank.is_broken or not rank.is_alive for rank in task.ranks.values()
    )
    name_fault(turn, incident, diagnosis, "restart" if needs_process else "reattempt")
    incident.become(IncidentState.ACTING)
    if task.can_regroup:
        halt(turn, task, note=f"parks after {incident.name}")
    else:
        note = f"restart after {incident.name}"
        stop(turn, task, is_graceful=False, intent=task.intent, note=note)


def _hold_task(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    name_fault(turn, incident, diagnosis, "none")
    incident.become(IncidentState.HELD)
    text = (
        "the task's settings are refused, and would be again: the task is held; mend them"
        if diagnosis.is_refusal
        else f"{turn.policy.max_recoveries} recoveries brought no new iteration: the task is held;"
        " propose a plan to try again"
    )
    task.target = task.interim = None
    stop(turn, task, is_graceful=False, intent="hold", note=text)
    turn.tell("error", "held", task.spec.task, text)


def note_resume(turn: Turn, task: TaskState, decision: Decision) -> None:
    """The parked generation is followed by another one: write into its incidents how."""
    for incident in turn.state.incidents:
        if incident.is_open and incident.covers.get(task.spec.task) == task.generation:
            incident.resume = decision.reason
            incident.recomputed_micro_batches += decision.resume.num_recomputed
            incident.saved_micro_batches += decision.resume.num_saved


def note_source(turn: Turn, task: TaskState, source: StateSource, *, num_lost: int) -> None:
    """The new generation has its state; ``num_lost`` whole iterations are run again.

    After a fault in the middle of a recovery the newest incident counts what that one has lost.
    """
    ours = [
        incident
        for incident in turn.state.incidents
        if incident.is_open
        and incident.recovery_s is None
        and incident.covers.get(task.spec.task, task.generation) < task.generation
    ]
    for incident in ours:
        incident.state_source = source
    if ours:
        ours[-1].recomputed_micro_batches += num_lost * task.spec.num_micro_batches


def close_cured_incidents(turn: Turn) -> None:
    """Resolve every named fault whose tasks train again in a newer generation, or have ended."""
    for incident in turn.state.incidents:
        is_undecided = incident.state is IncidentState.DETECTED
        if is_undecided or not incident.is_open or _is_handed_over(incident):
            continue
        _note_recovery(turn, incident)
        tasks = [turn.state.tasks[name] for name in incident.covers]
        if all(_is_cured(task, incident.covers[task.spec.task]) for task in tasks):
            cured = ", ".join(f"{task.spec.task} {_CURES[task.phase]}" for task in tasks)
            _resolve(turn, incident, cured or "no task is affected")
        elif any(task.phase is TaskPhase.HELD for task in tasks):
            hold(incident)


def _is_cured(task: TaskState, generation: Generation) -> bool:
    """Whether the task is where it is to be; going on with less is no cure yet."""
    is_whole = _trains_again(task, generation) and task.target is not None
    return is_whole or task.phase in {TaskPhase.STOPPED, TaskPhase.FINISHED}


def _trains_again(task: TaskState, generation: Generation) -> bool:
    return task.phase is TaskPhase.RUNNING and task.generation > generation


def _note_recovery(turn: Turn, incident: Incident) -> None:
    if incident.recovery_s is None and incident.covers:
        covers = incident.covers.items()
        if all(_trains_again(turn.state.tasks[name], generation) for name, generation in covers):
            incident.recovery_s = turn.at - incident.fault_at


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
        recovery_s=incident.recovery_s,
        recomputed_micro_batches=incident.recomputed_micro_batches,
        saved_micro_batches=incident.saved_micro_batches,
        state_source=incident.state_source,
        resume=incident.resume,
    )


_CURES: Final = {
    TaskPhase.RUNNING: "trains again",
    TaskPhase.STOPPED: "was stopped by a plan",
    TaskPhase.FINISHED: "has finished",
}
