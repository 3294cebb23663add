"""From evidence to a named fault: the root cause among its symptoms.

Evidence that names broken hardware comes first, even if programs report something else. Then the
earliest conclusive evidence names the fault. Evidence of a failed connection names it only if there
is nothing else. An exit that follows an exception of the same rank is attributed to the exception.
Symptoms alone name a fault only if no cause appears within a time limit.

Statuses and severities are those of the paper's table 1, with the extensions in
``profiles.faults``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.core.rules.evidence import Evidence, EvidenceKind
from profiles.faults.status import DetectionMethod, Severity, Status

_METHOD_BY_KIND: Final[Mapping[EvidenceKind, DetectionMethod]] = {
    "exit": "process supervision",
    "launch": "process supervision",
    "exception": "exception propagation",
    "refusal": "exception propagation",
    "collective": "exception propagation",
    "overdue": "online statistical monitoring",
    "hang": "online statistical monitoring",
    "numbers": "online statistical monitoring",
    "state": "online statistical monitoring",
    "checkpoint": "exception propagation",
    "contact": "node health monitoring",
    "finding": "node health monitoring",
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named fault: its status, its root evidence, and why it was named so.

    ``is_alone_without_route``: of all nodes, only that of the root has no route to the others.
    """

    status: Status
    root: Evidence
    reason: str
    is_alone_without_route: bool = False

    @property
    def severity(self) -> Severity:
        """The severity of its status."""
        return self.status.severity

    @property
    def method(self) -> DetectionMethod:
        """How it was detected."""
        return self.status.facts.method or _METHOD_BY_KIND[self.root.kind]

    @property
    def is_local(self) -> bool:
        """Whether the fault is where its root was seen. A failed connection shows no place."""
        return self.root.is_local or self.is_alone_without_route

    @property
    def is_of_state(self) -> bool:
        """Whether the state that the ranks loaded is wrong. Another source may be right."""
        return self.root.kind == "state"

    @property
    def is_of_checkpoints(self) -> bool:
        """Whether no checkpoint on disk can be loaded: no process and no node is at fault."""
        return self.root.kind == "checkpoint"

    @property
    def is_refusal(self) -> bool:
        """Whether the task's settings are at fault, so that another try has the same result."""
        return self.root.kind == "refusal"


def diagnose(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Name the fault that the evidence points to; return None if it shows symptoms only."""
    conclusive = [item for item in evidence if item.is_conclusive]
    if not conclusive:
        return None
    root = min(conclusive, key=_weight)
    if not root.status.facts.names_device and root.kind == "exit":
        own = (
            item
            for item in conclusive
            if item.kind in {"exception", "refusal"} and item.global_rank == root.global_rank
        )
        root = next(own, root)
    if root.status.facts.is_network and (alone := _alone_without_route(evidence)):
        return alone
    num_symptoms = len(evidence) - 1
    symptoms = f"; {num_symptoms} symptom(s) elsewhere" if num_symptoms else ""
    return Diagnosis(root.status, root, root.summary + symptoms)


def _weight(item: Evidence) -> tuple[bool, bool, bool, float]:
    """Sort key of evidence: hardware first, connections last; among equals the earliest.

    A process that dies may close its connections before its exit is seen. If no hardware is named,
    a rank's own report comes before a finding of its node's probes, because it names the rank
    that failed.
    """
    is_hardware = item.status.facts.names_device
    is_beside = item.kind == "finding" and not is_hardware
    return not is_hardware, item.status.facts.is_network, is_beside, item.observed_at


def diagnose_symptoms(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name a fault if failed collectives are the only evidence."""
    if alone := _alone_without_route(evidence):
        return alone
    root = min(evidence, key=lambda item: item.observed_at)
    return Diagnosis(
        root.status,
        root,
        f"{root.summary}; all processes run and all nodes answer, so no lost peer explains it",
    )


def _alone_without_route(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Return the fault of the only node that has no route; None if there is none, or several.

    Of several, each may see a router that has lost the way to another one.
    """
    own = [item for item in evidence if item.has_no_route]
    if len({item.node for item in own}) != 1:
        return None
    root = min(own, key=lambda item: item.observed_at)
    reason = f"{root.summary}; no other node reports that it has no route"
    return Diagnosis(root.status, root, reason, is_alone_without_route=True)
