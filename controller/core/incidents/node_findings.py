"""What the probes of a node have found: named, counted, and joined with the faults of its tasks.

The words of the kernel and of tools are named by the catalogue of faults, together with what the
same node said shortly before, since some faults take several lines to be understood. The status of
a measurement is a column of the table of statuses (``measured_as``).

A finding that names broken hardware isolates the node, whether or not a rank has noticed. Faults of
the network are counted: training that continues is left alone until they come too often. Network
faults of a node within ``Policy.network_merge_s`` count as one, whether a probe or a rank noticed
them. Every other finding explains faults of ranks on the node, or is announced. A finding within
``Policy.correlation_s`` of an incident on its node is part of that incident, open or closed. It
makes the incident worse if it names hardware.
"""

from typing import Final

from controller.core.events import Observed
from controller.core.incidents.cures import note_broken_hardware, take_hardware
from controller.core.incidents.evidence_intake import (
    network_fault_of,
    recent_incident_on,
)
from controller.core.incidents.fault_cases import fault_case
from controller.core.incidents.incident_log import attach, open_incident
from controller.core.incidents.isolation import count_fault, isolate
from controller.core.incidents.naming import name_fault, spend_drills
from controller.core.rules.actions import Handling, decide
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident
from controller.core.state.node import Message, NodeState
from controller.core.state.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from profiles.faults.excerpt import classify_excerpt
from profiles.faults.status import Status
from profiles.faults.status_table import default_statuses_by_sign, named

_MESSAGE_WINDOW_S: Final = 300.0
"""How long words of a node are read together with newer ones."""

_MIN_LINK_CHANGES: Final = 2
"""Down and up: less is a link that was taken down, or came up at a start."""


def take_finding(turn: Turn, event: Observed, finding: NodeFinding) -> None:
    """Take in what a probe of a node has found, or finds no longer."""
    node = turn.state.nodes[event.node]
    key = (finding.sign, finding.subject)
    found_at = node.findings.found_at.get(key, turn.at)
    was_open = node.findings.keep(finding, turn.at)
    status = _status(turn, node, finding, was_open=was_open)
    announce_finding(turn, node, finding, status)
    if not status.is_fault:
        return
    evidence = Evidence(
        kind="finding",
        at=turn.at,
        observed_at=min(event.observed_at, turn.at),
        node=event.node,
        task=None,
        global_rank=None,
        summary=f"{event.node}, {finding.probe}: {finding.first_line}",
        named=status,
        detail=finding.text,
    )
    known = recent_incident_on(turn, event.node, turn.at - turn.policy.correlation_s)
    if status.facts.is_network:
        earlier = network_fault_of(turn, event.node, found_at - turn.policy.network_merge_s)
        if earlier is not None and finding.is_over:
            attach(turn, earlier, evidence)  # a link is back that was counted when it went
        else:
            _take_network_fault(turn, node, known or earlier, evidence)
    elif status.facts.names_device:
        _take_hardware(turn, node, known, evidence)
    elif known is not None:
        attach(turn, known, evidence)
    else:
        node.unclaimed.keep(evidence)


def _status(turn: Turn, node: NodeState, finding: NodeFinding, *, was_open: bool) -> Status:
    if finding.is_over:
        has_flapped = finding.sign == "link_changed" and was_open
        return named("link_flapping" if has_flapped else "none")
    if finding.sign == "message":
        return _status_of_words(turn, node, finding.text)
    if finding.sign == "link_changed":
        changes = finding.value if finding.value is not None else 1
        return named("link_flapping" if changes >= _MIN_LINK_CHANGES else "none")
    # Heat, throttling, little memory and the like are announced: alone they are no fault.
    return default_statuses_by_sign().get(finding.sign, named("none"))


def _status_of_words(turn: Turn, node: NodeState, text: str) -> Status:
    """Return what the newest words of a node mean, alone or with those before."""
    before = node.findings.hear(Message(turn.at, text), turn.at - _MESSAGE_WINDOW_S)
    alone = classify_excerpt(text).status
    if alone.is_fault or not before:
        return alone
    lines_before = [line for each in before for line in each.text.split("\n")]
    verdict = classify_excerpt("\n".join([*lines_before, text]))
    earlier = classify_excerpt("\n".join(lines_before)).status
    return named("none") if verdict.status == earlier else verdict.status


def announce_finding(turn: Turn, node: NodeState, finding: NodeFinding, status: Status) -> None:
    """Announce a finding, or that it is over; ``status`` is what it means."""
    what = f"{finding.probe}, {finding.subject}" if finding.subject else finding.probe
    more = f" (and {finding.num_dropped} more)" if finding.num_dropped else ""
    is_alarming = status.is_fault or finding.sign != "message"
    turn.announce(
        "info" if finding.is_over else "warning" if is_alarming else "trace",
        "finding", node.spec.node,
        f"{what}: {'back to normal: ' if finding.is_over else ''}{finding.first_line}{more}",
        probe=finding.probe, sign=finding.sign, subject=finding.subject, value=finding.value,
        status=str(status), is_over=finding.is_over,
    )  # fmt: skip


def _take_hardware(turn: Turn, node: NodeState, known: Incident | None, evidence: Evidence) -> None:
    """Take a node with broken hardware out of service, in its incident or in a new one."""
    if known is not None:
        attach(turn, known, evidence)
        take_hardware(turn, known, evidence)
    elif node.service.isolated:
        note_broken_hardware(turn, node, evidence)
    else:
        take_hardware(turn, open_incident(turn, None, evidence), evidence)


def _take_network_fault(
    turn: Turn, node: NodeState, known: Incident | None, evidence: Evidence
) -> None:
    """A fault of the network: part of one that is known, or one that no task has suffered from yet.

    Either way it is counted, and too many isolate the node.
    """
    if known is not None:
        attach(turn, known, evidence)
        spend_drills(turn, known, node.spec.node)
    if node.service.isolated:
        return
    incident = known or open_incident(turn, None, evidence)
    diagnosis = Diagnosis(evidence.status, evidence, evidence.summary)
    case = fault_case(turn, incident, diagnosis)
    handling = decide(case, turn.policy)
    count_fault(turn, case)
    if handling.action == "reconfigure":
        if known is not None:
            incident = open_incident(turn, None, evidence)
        name_fault(turn, incident, diagnosis, handling)
        incident.decide()
        isolate(turn, node, incident, handling.why)
    elif known is None:
        name_fault(turn, incident, diagnosis, Handling("none", "training continues"))
        incident.act(turn.at)
        node.unclaimed.keep(evidence)
