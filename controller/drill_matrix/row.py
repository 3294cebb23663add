"""One row of the matrix: a drill's expected and observed diagnosis, and their differences.

Pure: a row is made from the incidents and announcements that the controller published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from controller.api.views import IncidentState, IncidentView
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.drills.drill import Drill

NOTHING: Final = "none"
_METHOD_BY_NOTICE: Final = {
    "straggler": "online statistical monitoring",
    "unreachable": "node health monitoring",
}


@dataclass(frozen=True, slots=True)
class RowTarget:
    """The rank or node that a drill hits; for a node ``global_rank`` is None."""

    node: NodeId
    task: TaskId | None = None
    global_rank: int | None = None

    @property
    def name(self) -> str:
        """The target in words."""
        if self.global_rank is None:
            return self.node
        return f"rank {self.global_rank} of {self.task} on {self.node}"


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice to operators without an incident, ``after_s`` seconds after the drill."""

    kind: str
    after_s: float
    task: str | None
    node: str | None
    global_rank: int | None


@dataclass(frozen=True, slots=True)
class DrillObservation:
    """The observed diagnosis and recovery of a drill. Times are seconds since it was carried out.

    Attributes:
        status: The incident's status, or the notice's kind; ``none`` if there was neither.
        severity: The incident's severity.
        method: The incident's detection method; empty without an incident.
        action: The incident's action.
        culprit: The rank, node or task that was named, in words.
        is_culprit_right: Whether the culprit is the drill's target, as exactly as expected.
        ending: ``resolved``, ``held`` or ``unharmed``; else the reason why it was none of these.
        reason: The incident's reason.
        detection_s: Seconds to the first evidence, or to the notice.
        recovery_s: Seconds to the next committed iteration, if an iteration was interrupted.
        incidents: All incidents that the drill opened, with their statuses.
        evidence: The incident's evidence, one sentence each.
    """

    status: str
    severity: str
    method: str
    action: str
    culprit: str
    is_culprit_right: bool
    ending: str
    reason: str = ""
    detection_s: float | None = None
    recovery_s: float | None = None
    incidents: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A drill that was run.

    Attributes:
        drill: The drill.
        target: The rank or node that it hit.
        observed: The observed diagnosis and recovery.
        notes: The announcements about the drill itself.
        average_s: The task's average iteration time before the drill; None if a node was hit.
    """

    drill: Drill
    target: RowTarget
    observed: DrillObservation
    notes: tuple[str, ...] = ()
    average_s: float | None = None

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Each difference from the expectation, in words; empty if the row agrees."""
        expected, observed = self.drill.expected, self.observed
        found = [
            f"{name}: {actual or NOTHING} instead of {wanted}"
            for name, wanted, actual in (
                ("status", expected.status, observed.status),
                ("severity", expected.severity, observed.severity),
                ("method", expected.method, observed.method),
                ("action", expected.action, observed.action),
                ("ending", expected.ending, observed.ending),
            )
            if wanted is not None and wanted != actual
        ]
        if expected.says not in observed.reason:
            found.append(f"reason: {observed.reason or NOTHING} does not say {expected.says!r}")
        finding = f"{self.target.node}, {expected.found_by}: "
        if expected.found_by and not any(line.startswith(finding) for line in observed.evidence):
            found.append(f"evidence: none from the {expected.found_by} of {self.target.node}")
        if not observed.is_culprit_right:
            found.append(f"culprit: {observed.culprit or NOTHING} instead of {self.target.name}")
        if len(observed.incidents) > 1:
            found.append(f"{len(observed.incidents)} incidents: {', '.join(observed.incidents)}")
        return tuple(found)

    @property
    def agrees(self) -> bool:
        """Whether the observation is as expected."""
        return not self.disagreements

    def as_json(self) -> dict[str, JsonValue]:
        """Return the row in the format of ``unicron drill matrix --json``."""
        expected, observed = self.drill.expected, self.observed
        return {
            "kind": self.drill.kind,
            "target": self.target.name,
            "expected": {
                "status": expected.status,
                "severity": expected.severity,
                "method": expected.method,
                "action": expected.action,
                "culprit": expected.culprit,
                "ending": expected.ending,
                "says": expected.says or None,
                "found_by": expected.found_by or None,
            },
            "observed": {
                "status": observed.status,
                "severity": observed.severity,
                "method": observed.method or None,
                "action": observed.action,
                "culprit": observed.culprit or None,
                "ending": observed.ending,
                "reason": observed.reason or None,
            },
            "average_iteration_s": _rounded(self.average_s),
            "detection_s": _rounded(observed.detection_s),
            "recovery_s": _rounded(observed.recovery_s),
            "incidents": list(observed.incidents),
            "agrees": self.agrees,
            "disagreements": list(self.disagreements),
            "notes": list(self.notes),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def observation_of_incidents(
    drill: Drill, target: RowTarget, incidents: Sequence[IncidentView], carried_out_at: float
) -> DrillObservation:
    """Return the observation of a drill that opened incidents, at least one.

    The first incident that names the drill's target counts, else the first incident.
    """
    primary = next((each for each in incidents if _is_right(drill, target, each)), incidents[0])
    endings = {IncidentState.RESOLVED: "resolved", IncidentState.HELD: "held"}
    return DrillObservation(
        status=primary.status,
        severity=primary.severity,
        method=primary.method,
        action=primary.action,
        culprit=_place_in_words(primary.task, primary.node, primary.rank),
        is_culprit_right=_is_right(drill, target, primary),
        ending=endings.get(primary.state, f"still {primary.state}"),
        reason=primary.reason,
        detection_s=primary.detected_at - carried_out_at,
        recovery_s=primary.recovery_s,
        incidents=tuple(f"{each.id} {each.status}" for each in incidents),
        evidence=tuple(primary.evidence),
    )


def observation_without_incident(
    drill: Drill, target: RowTarget, notices: Sequence[Notice], *, stalled: str
) -> DrillObservation:
    """Return the observation of a drill that opened no incident.

    Args:
        drill: The drill.
        target: The rank or node that it hit.
        notices: The notices to operators since the drill.
        stalled: The task that stalled or restarted, in words; empty if training continued.
    """
    expected = [each for each in notices if each.kind == drill.expected.status]
    right = [each for each in expected if _names(drill, target, each)]
    notice = next(iter(right or expected), None)
    ending = stalled or "unharmed"
    if notice is None:
        other = next(iter(notices), None)
        is_right = drill.expected.culprit == "none" and other is None
        named = (
            f"{other.kind}: {_place_in_words(other.task, other.node, other.global_rank)}"
            if other
            else ""
        )
        return DrillObservation(
            "none", "none", "", "none", named, is_culprit_right=is_right, ending=ending
        )
    return DrillObservation(
        status=notice.kind,
        severity="none",
        method=_METHOD_BY_NOTICE.get(notice.kind, ""),
        action="none",
        culprit=_place_in_words(notice.task, notice.node, notice.global_rank),
        is_culprit_right=bool(right),
        ending=ending,
        detection_s=notice.after_s,
    )


def _names(drill: Drill, target: RowTarget, notice: Notice) -> bool:
    if drill.expected.culprit == "none":
        return True
    if drill.expected.culprit == "node":
        return notice.node == target.node
    return (notice.task, notice.global_rank) == (target.task, target.global_rank)


def _is_right(drill: Drill, target: RowTarget, incident: IncidentView) -> bool:
    match drill.expected.culprit:
        case "rank":
            return (incident.task, incident.rank) == (target.task, target.global_rank)
        case "node":
            return target.node == incident.node or target.node in incident.nodes
        case "task":
            return incident.task == target.task
        case "none":
            return False


def _place_in_words(task: str | None, node: str | None, global_rank: int | None) -> str:
    if global_rank is not None:
        return f"rank {global_rank} of {task} on {node}"
    return node or task or ""
