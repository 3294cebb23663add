"""From evidence to a named fault: the root cause among its symptoms.

What names broken hardware comes first, whatever programs say; then the earliest conclusive evidence
names the fault, and of a connection only if there is nothing else. An exit that follows an exception of the same rank belongs to the exception.
Symptoms alone are named only when no cause has shown for long enough.

Statuses and severities are those of the paper's table 1, with its extensions in ``profiles.faults``.
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
    """A named fault: its place in the table, its root, and why it was named so."""

    status: Status
    root: Evidence
    reason: str

    @property
    def severity(self) -> Severity:
        """How faults of its status are handled at first."""
        return self.status.severity

    @property
    def method(self) -> DetectionMethod:
        """How it was detected."""
        return self.status.facts.method or _METHOD_BY_KIND[self.root.kind]

    @property
    def is_local(self) -> bool:
        """Whether its root is where the fault is; a failed connection tells nothing of its place."""
        return self.root.is_local

    @property
    def is_of_state(self) -> bool:
        """Whether the state is wrong that the ranks were given; another source of it may not be."""
        return self.root.kind == "state"

    @property
    def is_of_checkpoints(self) -> bool:
        """Whether no checkpoint on disk can be loaded, which is no process's and no node's fault."""
        return self.root.kind == "checkpoint"

    @property
    def is_refusal(self) -> bool:
        """Whether the task's settings are at fault, so that another try ends the same."""
        return self.root.kind == "refusal"


def diagnose(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Name the fault that ``evidence`` speaks for, or return None where it shows only symptoms."""
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
    num_symptoms = len(evidence) - 1
    symptoms = f"; {num_symptoms} symptom(s) elsewhere" if num_symptoms else ""
    return Diagnosis(root.status, root, root.summary + symptoms)


def _weight(item: Evidence) -> tuple[bool, bool, bool, float]:
    """What names hardware weighs most, what names a connection least; then the earliest counts.

    A process that dies may close its connections before its end is seen. Of what is no hardware's
    fault a rank's own word says more than what its node's probes found: it says which rank.
    """
    is_hardware = item.status.facts.names_device
    is_beside = item.kind == "finding" and not is_hardware
    return not is_hardware, item.status.facts.is_network, is_beside, item.observed_at


def diagnose_symptoms(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name a fault of which nothing but failed collectives was ever seen."""
    root = min(evidence, key=lambda item: item.observed_at)
    return Diagnosis(
        root.status,
        root,
        f"{root.summary}; every process lives and every node answers, so no peer explains it",
    )
