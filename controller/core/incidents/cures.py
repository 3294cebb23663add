"""Naming the cause of an incident, and beginning its cure.

The cause is named when all ranks of the task have parked, or after a moment, because the peers of a
dead rank report before the rank's own node does. While a node of the task is out of contact nothing
is named here: whether the node is lost comes first (``controller.core.nodes.contact``). Failed
collectives alone wait longer, for a cause to show.

What cures it is decided in ``controller.core.rules.actions``, and carried out here. A *reattempt*
is a new generation of the same processes, and a *restart* one with a new process for the rank at
fault. *Isolate* and *reconfigure* take the node, or one GPU of it, out of service and ask for a
plan. *Hold* hands the task to the operator.
"""

from controller.core.incidents.evidence_intake import incident_of, take_evidence
from controller.core.incidents.failed_starts import may_fail_alike, place_elsewhere
from controller.core.incidents.fault_cases import fault_case
from controller.core.incidents.holding import hold_task
from controller.core.incidents.isolation import (
    count_fault,
    exonerate,
    explain_isolation,
    isolate,
    isolate_gpu,
)
from controller.core.incidents.naming import name_fault
from controller.core.incidents.rehearsed_cures import asks_first
from controller.core.lifecycle.parking import awaited_ranks, halt, halt_limit_s
from controller.core.lifecycle.start_stop import stop
from controller.core.rules.actions import FaultCase, Handling, clears_suspects, decide
from controller.core.rules.diagnosis import Diagnosis, diagnose, diagnose_symptoms
from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Worker
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, NodeCondition
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.timers import HaltOverdue, SettleIncident
from nodeagent.protocol.ids import NodeId


def settle(turn: Turn, incident: Incident) -> None:
    """Time has passed: name the fault if the evidence suffices, otherwise look again later."""
    if incident.state is not IncidentState.DETECTED or incident.task is None:
        return
    task = turn.state.tasks[incident.task]
    if task.lifecycle.parking and incident.covers.get(task.spec.task) == task.generation:
        task.lifecycle.parking.settle_doubts()
    _try_to_name(turn, task, incident)
    # What an operator is to approve is looked at again when there is more evidence.
    if incident.state is IncidentState.DETECTED and not incident.awaits_consent:
        is_blind = _is_partly_out_of_sight(turn, task)
        pause_s = turn.policy.judge_interval_s if is_blind else turn.policy.settle_s
        turn.set_timer(SettleIncident(incident.name), pause_s)


def name_cause(turn: Turn, task: TaskState) -> bool:
    """Name the fault that parked the task, if there is one; return False if that can't be yet."""
    incident = incident_of(turn, task, task.generation)
    if incident and incident.state is IncidentState.DETECTED:
        _try_to_name(turn, task, incident)
    return incident is None or incident.state is not IncidentState.DETECTED


def name_symptoms(turn: Turn, task: TaskState) -> bool:
    """Name the fault of a task that stalls after failed collectives: no cause will show any more.

    Returns:
        Whether there was one to name.
    """
    incident = incident_of(turn, task, task.generation)
    is_undecided = incident is not None and incident.state is IncidentState.DETECTED
    if incident is None or not is_undecided or _is_partly_out_of_sight(turn, task):
        return False
    diagnosis = diagnose(incident.evidence) or diagnose_symptoms(incident.evidence)
    _cure(turn, task, incident, diagnosis)
    return True


def _try_to_name(turn: Turn, task: TaskState, incident: Incident) -> None:
    if _is_partly_out_of_sight(turn, task):
        return
    diagnosis = diagnose(incident.evidence)
    if diagnosis is None and turn.at - incident.detected_at >= turn.policy.symptom_patience_s:
        diagnosis = diagnose_symptoms(incident.evidence)
    if diagnosis is not None and not may_fail_alike(turn, task, incident, diagnosis.root):
        _cure(turn, task, incident, diagnosis)


def _is_partly_out_of_sight(turn: Turn, task: TaskState) -> bool:
    return any(
        turn.state.nodes[rank.worker.node].contact.condition is NodeCondition.UNREACHABLE
        for rank in task.ranks.values()
    )


def take_hangs(turn: Turn, task: TaskState) -> None:
    """Ranks that have not parked in time hang: they are left out.

    A rank whose node has just come back into contact may have received the halt only now: it is
    judged the next time. What had been named from failed collectives alone has its cause now.
    """
    limit_s = halt_limit_s(turn.policy, task)
    for number in awaited_ranks(turn, task):
        rank = task.ranks[number]
        if turn.at - turn.state.nodes[rank.worker.node].contact.in_contact_since < limit_s:
            continue
        rank.note_broken()
        summary = f"rank {number} did not park: it hangs"
        node, name = rank.worker.node, task.spec.task
        take_evidence(turn, task, Evidence("hang", turn.at, turn.at, node, name, number, summary))
    turn.set_timer(HaltOverdue(task.spec.task, task.generation), limit_s)
    incident = incident_of(turn, task, task.generation)
    diagnosis = diagnose(incident.evidence) if incident else None
    if incident and diagnosis and incident.cause.action == "reattempt" and incident.is_open:
        root = diagnosis.root.global_rank
        culprit = task.ranks.get(root) if root is not None else None
        count_fault(turn, fault_case(turn, incident, diagnosis, rank=culprit))
        name_fault(turn, incident, diagnosis, Handling("restart"))
        task.faults.note_cure("restart", culprit.worker if culprit else None)


def take_hardware(turn: Turn, incident: Incident, evidence: Evidence) -> None:
    """Broken hardware shows in an incident that is named already: the node goes out of service."""
    assert evidence.node is not None, "hardware is somewhere"
    node = turn.state.nodes[evidence.node]
    if incident.state is IncidentState.DETECTED and incident.task is not None:
        return  # it is named in a moment, by this evidence among the rest
    diagnosis = Diagnosis(evidence.status, evidence, evidence.summary)
    if node.service.isolated:
        note_broken_hardware(turn, node, evidence)
    else:
        task = turn.state.tasks[evidence.task] if evidence.task is not None else None
        _decide_hardware(turn, task, incident, diagnosis)


def _decide_hardware(
    turn: Turn, task: TaskState | None, incident: Incident, diagnosis: Diagnosis
) -> None:
    """Decide about a node whose hardware a probe or a rank says is broken."""
    case = fault_case(turn, incident, diagnosis, task)
    handling = decide(case, turn.policy)
    if handling.action == "isolate":
        if asks_first(turn, incident, diagnosis, handling):
            return
        _isolate_broken(turn, incident, case, handling)
        if task is not None and case.node is not None:
            task.faults.accuse(case.node, incident.evidence)
    elif handling.action == "hold":
        assert task is not None, "a node alone is not held"
        hold_task(turn, task, incident, diagnosis, handling)
        exonerate(turn, task, task.faults.accused)


def carry_out_approved(turn: Turn, incident: Incident) -> None:
    """An operator approved the cure that a rehearsal has shown: it is decided anew, and done."""
    task = turn.state.tasks[incident.task] if incident.task is not None else None
    if task is not None and incident.state is IncidentState.DETECTED:
        _cure(
            turn,
            task,
            incident,
            diagnose(incident.evidence) or diagnose_symptoms(incident.evidence),
        )
        return
    devices = [each for each in incident.evidence if each.status.facts.names_device]
    if devices:
        root = devices[-1]
        _decide_hardware(turn, task, incident, Diagnosis(root.status, root, root.summary))


def note_broken_hardware(turn: Turn, node: NodeState, evidence: Evidence) -> None:
    """The hardware of a node that is out of service already is broken: that is why, from now on."""
    explain_isolation(node, evidence)
    _forget_suspicion(turn, node.spec.node)
    for task in turn.state.tasks.values():
        if task.spec.task != evidence.task:
            task.faults.confirm_accusation(node.spec.node)


def _isolate_broken(turn: Turn, incident: Incident, case: FaultCase, handling: Handling) -> None:
    """Isolate the node with broken hardware, in addition to the incident's own cure."""
    assert case.node is not None, "hardware is somewhere"
    if incident.state is IncidentState.RESOLVED:
        turn.state.incidents.reopen(incident, turn.at)
    count_fault(turn, case)
    name_fault(turn, incident, case.diagnosis, handling)
    incident.decide_again()
    _forget_suspicion(turn, case.node)
    isolate(turn, turn.state.nodes[case.node], incident, case.diagnosis.reason)


def _forget_suspicion(turn: Turn, name: NodeId) -> None:
    """What is known about the node is more than a suspicion now."""
    for task in turn.state.tasks.values():
        task.faults.corroborate(name)


def _cure(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    """Decide what cures a fault of a task (``rules.actions.decide``), and carry it out."""
    if diagnosis.status.facts.names_device and diagnosis.root.node is not None:
        if not incident.awaits_consent:
            task.faults.count_recovery()
        _decide_hardware(turn, task, incident, diagnosis)
        return
    root, faults = diagnosis.root, task.faults
    number = root.global_rank if diagnosis.is_local else None
    rank = task.ranks.get(number) if number is not None else None
    case = fault_case(turn, incident, diagnosis, task, rank)
    is_over = case.task is not None and case.task.is_over
    if not is_over and clears_suspects(diagnosis, case.worker, faults.suspects):
        exonerate(turn, task, faults.suspects)
        case = fault_case(turn, incident, diagnosis, task, rank)  # more nodes are in service
    handling = decide(case, turn.policy)
    if is_over:
        name_fault(turn, incident, diagnosis, handling)
        incident.act(turn.at)
        return
    if handling.action != "hold" and asks_first(turn, incident, diagnosis, handling):
        return
    faults.count_recovery()
    faults.note_failed_starts(case.failed_starts)
    if handling.action == "hold":
        hold_task(turn, task, incident, diagnosis, handling)
    else:
        _try_action(turn, task, incident, case, handling)


def _try_action(
    turn: Turn, task: TaskState, incident: Incident, case: FaultCase, handling: Handling
) -> None:
    root, last = case.diagnosis.root, task.faults.last_cure
    if handling.is_counted:
        count_fault(turn, case)
    task.faults.note_cure(handling.paper_action, case.worker)
    name_fault(turn, incident, case.diagnosis, handling)
    if handling.action == "reconfigure":
        subject = case.worker if handling.is_gpu and case.worker else root.node
        assert subject is not None, "only a node can be isolated"
        incident.decide()
        task.faults.suspect(subject, last)
        _isolate(turn, subject, incident, handling.why or case.diagnosis.reason)
        return
    if handling.replaces_rank:
        task.ranks[root.global_rank or 0].note_broken()
    if handling.moves and root.node is not None:
        placement = place_elsewhere(turn, task, root.node)
        assert placement is not None, "there was room when this was decided"
        task.assignment.move(placement)
    incident.act(turn.at)
    if task.can_regroup:
        halt(turn, task, note=f"parks after {incident.name}")
    else:
        note = f"restart after {incident.name}"
        stop(turn, task, is_graceful=False, intent=task.stopping.intent, note=note)


def _isolate(turn: Turn, suspect: NodeId | Worker, incident: Incident, why: str) -> None:
    if isinstance(suspect, Worker):
        isolate_gpu(turn, suspect, incident, why)
    else:
        isolate(turn, turn.state.nodes[suspect], incident, why)
