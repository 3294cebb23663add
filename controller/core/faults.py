"""From observations to a named fault: the root cause among its symptoms.

When a rank dies its peers' collectives fail within milliseconds, so most of what is reported about
a fault is echo. Evidence is *conclusive* where it can't be an echo (a process that ended, an
exception of the program's own) and a *symptom* where it can (a failed collective). The earliest
conclusive evidence names the fault; an exit that follows an exception of the same rank belongs to
the exception.

Statuses and severities are those of the paper's table 1. This slice knows three: the third, a lost
node, is judged in ``controller.core.health``.
"""

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, assert_never

from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import LaunchFailed, RankExited, RankRaised
from profiles.faults.status import Status

_SOURCE_PLACE: Final = re.compile(r"^\[[^]\s]+:\d+\] ")
"""Where in its own C++ source a library raised: long, and of no use to operators."""

EvidenceKind = Literal[
    "exit", "exception", "refusal", "collective", "launch", "overdue", "hang", "numbers", "contact"
]

_REFUSALS: Final = frozenset({"LaunchError", "ProgramError"})
"""Exceptions by which a rank refuses the task's settings: they come again at every start."""

_MAX_SUMMARY_CHARS: Final = 400

SEV1: Final = "SEV1"
SEV2: Final = "SEV2"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation that speaks for a fault.

    Attributes:
        kind: What sort of trace it is; ``collective`` alone is a symptom.
        at: When the controller learned of it.
        observed_at: When it happened, as the node says.
        node: Where.
        task: Task of the rank, None for evidence about a whole node.
        global_rank: Which rank, None for evidence about a whole node or task.
        summary: One line for operators.
        named: Status that it names; None where the kind says it all.
        detail: Stacks, for whoever looks closer.
    """

    kind: EvidenceKind
    at: float
    observed_at: float
    node: NodeId | None
    task: TaskId | None
    global_rank: int | None
    summary: str
    named: Status | None = None
    detail: str = ""

    @property
    def is_conclusive(self) -> bool:
        """Whether it can't be the echo of a peer's fault."""
        return self.kind != "collective"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A named fault: its place in the table, its root, and why it was named so."""

    status: str
    severity: str
    method: str
    root: Evidence
    reason: str

    @property
    def is_refusal(self) -> bool:
        """Whether the task's settings are at fault, so that another try ends the same."""
        return self.root.kind == "refusal"


def evidence_of(
    observation: RankExited | RankRaised | LaunchFailed,
    *,
    node: NodeId,
    at: float,
    observed_at: float,
) -> Evidence:
    """Return ``observation`` as evidence of a fault."""
    who = f"rank {observation.global_rank}"
    kind: EvidenceKind
    summary: str
    match observation:
        case RankExited():
            kind, summary = "exit", f"{who} {_ending(observation)}"
        case RankRaised():
            kind = _kind_of(observation)
            first_line = _SOURCE_PLACE.sub("", observation.message.strip().partition("\n")[0])[
                :_MAX_SUMMARY_CHARS
            ]
            summary = f"{who} raised {observation.exception_type}: {first_line}"
        case LaunchFailed():
            kind, summary = "launch", f"{who} could not be started: {observation.reason}"
        case _:
            assert_never(observation)
    return Evidence(
        kind=kind,
        at=at,
        observed_at=observed_at,
        node=node,
        task=observation.task,
        global_rank=observation.global_rank,
        summary=summary,
    )


def _kind_of(raised: RankRaised) -> EvidenceKind:
    if raised.is_in_collective:
        return "collective"
    return "refusal" if raised.exception_type in _REFUSALS else "exception"


def diagnose(evidence: Sequence[Evidence]) -> Diagnosis | None:
    """Name the fault that ``evidence`` speaks for, or return None where it shows only symptoms."""
    conclusive = [item for item in evidence if item.is_conclusive]
    if not conclusive:
        return None
    root = min(conclusive, key=lambda item: item.observed_at)
    own_exceptions = [
        item
        for item in conclusive
        if item.kind in {"exception", "refusal"} and item.global_rank == root.global_rank
    ]
    return _name(own_exceptions[0] if own_exceptions else root, num_symptoms=len(evidence) - 1)


def diagnose_symptoms(evidence: Sequence[Evidence]) -> Diagnosis:
    """Name a fault of which nothing but failed collectives was ever seen."""
    root = min(evidence, key=lambda item: item.observed_at)
    return Diagnosis(
        status="other_software_error",
        severity=SEV2,
        method="exception propagation",
        root=root,
        reason=f"{root.summary}; every process lives and every node answers, so no peer explains it",
    )


def _name(root: Evidence, *, num_symptoms: int) -> Diagnosis:
    symptoms = f"; {num_symptoms} symptom(s) elsewhere" if num_symptoms else ""
    status, method = _STATUS_BY_KIND[root.kind]
    if root.named is not None:
        status = str(root.named)
    return Diagnosis(
        status=status, severity=SEV2, method=method, root=root, reason=root.summary + symptoms
    )


_STATUS_BY_KIND: Final[Mapping[EvidenceKind, tuple[str, str]]] = {
    "exit": ("exited_abnormally", "process supervision"),
    "exception": ("other_software_error", "exception propagation"),
    "refusal": ("other_software_error", "exception propagation"),
    "collective": ("other_software_error", "exception propagation"),
    "launch": ("other_software_error", "process supervision"),
    "overdue": ("task_hang", "online statistical monitoring"),
    "hang": ("task_hang", "online statistical monitoring"),
    "numbers": ("nan_loss", "online statistical monitoring"),
    "contact": ("lost_connection", "node health monitoring"),
}


def _ending(observation: RankExited) -> str:
    if observation.signal is not None:
        try:
            name = signal.Signals(observation.signal).name
        except ValueError:
            name = f"signal {observation.signal}"
        return f"was ended by {name}"
    if observation.exit_code is None:
        return "is gone; its exit status is not known"
    return f"exited with {observation.exit_code}"
