"""Naming the cause of an incident, and beginning its cure.

The cause is named when all ranks of the task have parked, or after a moment, because the peers of a
dead rank report before the rank's own node does. While a node of the task is out of contact nothing
is named here: whether the node is lost comes first (``controller.core.nodes.contact``). Failed
collectives alone wait longer, for a cause to show.

Which action cures it is chosen in ``controller.core.rules.actions``. A *reattempt* is a new
generation of the same processes, a *restart* one with a new process for the rank at fault, and a
*reconfigure* isolates the node and asks for a plan. Recoveries that bring no iteration end in the
operator's hands, and so do at once what no action would cure: settings that are refused, a loss
that is not finite, broken hardware that a task names wherever it runs.
"""

from dataclasses import replace

from controller.core.incidents.evidence_intake import incident_of, take_evidence
from controller.core.incidents.failed_starts import (
    handle_of_task,
    may_fail_alike,
    why_program_fails,
)
from controller.core.incidents.holding import hold_task, why_hopeless
from controller.core.incidents.isolation import (
    exonerate,
    explain_isolation,
    isolate,
    isolate_gpu,
)
from controller.core.incidents.naming import handle, name_fault
from controller.core.lifecycle.parking import awaited_ranks, halt, halt_limit_s
from controller.core.lifecycle.start_stop import stop
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis, diagnose, diagnose_symptoms
from controller.core.rules.evidence import Evidence, has_broken_hardware
from controller.core.rules.placement import Worker
from controller.core.state.incident import Incident
from controller.core.state.node import NodeState
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.timers import HaltOverdue, SettleIncident
from nodeagent.protocol.ids import NodeId
from profiles.faults.status import Action


def settle(turn: Turn, incident: Incident) -> None:
    """Time has passed: name the fault if the evidence suffices, otherwise look again later."""
    if incident.state is not IncidentState.DETECTED or incident.task is None:
        return
    task = turn.state.tasks[incident.task]
    if task.lifecycle.parking and incident.covers.get(task.spec.task) == task.generation:
        task.lifecycle.parking.settle_doubts()
    _try_to_name(turn, task, incident)
    if incident.state is IncidentState.DETECTED:
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
        handle(turn, incident, diagnosis, culprit, None)  # for the record of its node
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
    elif evidence.task is None:
        _condemn(turn, incident, diagnosis)
    else:
        _blame_hardware(turn, turn.state.tasks[evidence.task], incident, diagnosis)


def _blame_hardware(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    """Hardware is broken, a probe or a rank says: that isolates the node.

    A program, or what it was built with, can be wrong about devices wherever it runs. So where a
    task's ranks blame a second node before an iteration is committed, and no probe has found
    anything on either, both are left in service and the operator is asked.
    """
    root = diagnosis.root
    assert root.node is not None, "hardware is somewhere"
    is_doubted = incident.state is IncidentState.HELD and incident.cause.action == "none"
    if (
        is_doubted
        and incident.cause.status is not None
        and incident.cause.status.facts.names_device
    ):
        return  # another rank of the task that is held for it
    has_probe = has_broken_hardware(incident.evidence, root.node)
    others = [] if has_probe else [name for name in task.faults.accused if name != root.node]
    if others and (task.can_regroup or task.lifecycle.phase is TaskPhase.STOPPING):
        text = (
            f"its ranks name broken hardware on {others[-1]} and then on {root.node}, and no probe has"
            " found any: more likely its program, driver or libraries are at fault than both nodes;"
            " the task is held; mend it, then propose a plan"
        )
        hold_task(turn, task, incident, diagnosis, text)
        exonerate(turn, task, task.faults.accused)
        return
    _condemn(turn, incident, diagnosis)
    task.faults.accuse(root.node, incident.evidence)


def note_broken_hardware(turn: Turn, node: NodeState, evidence: Evidence) -> None:
    """The hardware of a node that is out of service already is broken: that is why, from now on."""
    explain_isolation(node, evidence)
    _forget_suspicion(turn, node.spec.node)
    for task in turn.state.tasks.values():
        if task.spec.task != evidence.task:
            task.faults.confirm_accusation(node.spec.node)


def _condemn(turn: Turn, incident: Incident, diagnosis: Diagnosis) -> None:
    """Isolate the node with broken hardware, in addition to the incident's own cure."""
    assert diagnosis.root.node is not None, "hardware is somewhere"
    if incident.state is IncidentState.RESOLVED:
        turn.state.incidents.reopen(incident, turn.at)
    handling = handle(turn, incident, diagnosis, None, None)
    name_fault(turn, incident, diagnosis, handling)
    incident.decide_again()
    _forget_suspicion(turn, diagnosis.root.node)
    isolate(turn, turn.state.nodes[diagnosis.root.node], incident, diagnosis.reason)


def _forget_suspicion(turn: Turn, name: NodeId) -> None:
    """What is known about the node is more than a suspicion now."""
    for task in turn.state.tasks.values():
        task.faults.corroborate(name)


def _cure(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> None:
    if diagnosis.status.facts.names_device and diagnosis.root.node is not None:
        task.faults.count_recovery()
        _blame_hardware(turn, task, incident, diagnosis)
        return
    is_over = incident.covers.get(task.spec.task) != task.generation
    if is_over or not (task.can_regroup or task.lifecycle.phase is TaskPhase.STOPPING):
        name_fault(turn, incident, diagnosis, Handling("restart"))  # a plan ended this generation
        incident.act(turn.at)
        return
    task.faults.count_recovery()
    root = diagnosis.root
    if _is_held(turn, task, incident, diagnosis):
        return
    is_known = diagnosis.is_local and root.global_rank is not None
    rank = task.ranks.get(root.global_rank) if is_known and root.global_rank is not None else None
    at_fault = {root.node, rank.worker if rank else None}
    if (
        task.faults.suspects
        and diagnosis.is_local
        and root.node
        and at_fault.isdisjoint(task.faults.suspects)
    ):
        exonerate(turn, task, task.faults.suspects)
    last = task.faults.last_cure
    handling = handle_of_task(turn, task, incident, diagnosis, rank)
    worker = rank.worker if rank else None
    task.faults.note_cure(handling.action, worker)
    if handling.action == "reconfigure":
        assert root.node is not None, "only a node can be isolated"
        name_fault(turn, incident, diagnosis, handling)
        incident.decide()
        subject = worker if handling.is_gpu and worker else root.node
        task.faults.suspect(subject, last)
        _isolate(turn, subject, incident, handling.why or diagnosis.reason)
        return
    if handling.action == "restart":
        # Where no rank is to blame, the rank that reported the fault gets a new process.
        (rank or task.ranks[root.global_rank or 0]).note_broken()
    handling = Handling(_possible(task, handling.action), handling.why)
    task.faults.note_cure(handling.action, worker)
    name_fault(turn, incident, diagnosis, handling)
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


def _possible(task: TaskState, wanted: Action) -> Action:
    """Return what becomes of a reattempt or restart, given which processes can continue."""
    needs_process = bool(task.limits.unsupported) or any(
        rank.is_broken or not rank.is_alive for rank in task.ranks.values()
    )
    return "restart" if needs_process or wanted == "none" else "reattempt"


def _is_held(turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis) -> bool:
    """Hold the task if no action would help; return whether it is held."""
    reason: str | None = why_program_fails(turn, task, incident, diagnosis)
    if reason:
        nobody = replace(diagnosis, root=replace(diagnosis.root, node=None))
        hold_task(turn, task, incident, nobody, reason, why=reason)
    elif reason := why_hopeless(turn, task, diagnosis):
        hold_task(turn, task, incident, diagnosis, reason)
    return bool(reason)
