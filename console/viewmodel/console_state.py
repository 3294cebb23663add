"""Everything the console knows, as one immutable value; ``reduce`` alone makes a new one.

All times in a state are seconds of the console's own monotonic clock, except inside the
controller's views.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pydantic import ValidationError

from console.viewmodel.absence import LinkAbsence
from console.viewmodel.activity import Activity
from console.viewmodel.trend import Trend
from controller.api.views import (
    ClusterView,
    EvidenceAnswer,
    EvidenceView,
    IncidentState,
    LogLine,
    NodeCondition,
    NodeView,
    PlanState,
    PlanView,
    PlaybackView,
    TaskPhase,
    TaskView,
)
from controller.api.wire import Reply

STALE_AFTER_S: Final = 5.0
"""Older data is not acted upon."""


class LinkPhase(StrEnum):
    """What the connection to the controller is doing."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "disconnected"
    INCOMPATIBLE = "incompatible"
    ENDED = "ended"
    """The demo or playback that this console owned is over; nobody will answer again."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connection, since when it is so, and why."""

    phase: LinkPhase = LinkPhase.CONNECTING
    since: float = 0.0
    reason: str = ""
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class EventWindow:
    """The newest lines of the event stream, by increasing ``seq``, without gaps unless counted."""

    lines: tuple[LogLine, ...] = ()
    num_missed: int = 0
    """Lines that the controller had already forgotten when the console asked."""


@dataclass(frozen=True, slots=True)
class SeenEvidence:
    """The evidence of an incident, with tracebacks, stacks and lines of logs."""

    incident: str
    pieces: tuple[EvidenceView, ...] = ()
    num_left_out: int = 0
    """How many later pieces were not sent."""
    refusal: str = ""
    """Why there is none; empty if the controller has answered."""


def seen_evidence(incident: str, reply: Reply) -> SeenEvidence:
    """Return what the controller's answer to ``ReadEvidence`` holds."""
    if not reply.is_ok:
        return SeenEvidence(incident, refusal=reply.message)
    try:
        answer = EvidenceAnswer.model_validate(reply.data or {})
    except ValidationError:
        return SeenEvidence(incident, refusal="the controller's answer can't be read")
    return SeenEvidence(incident, tuple(answer.evidence), answer.num_left_out)


@dataclass(frozen=True, slots=True)
class State:
    """The console at one instant."""

    now: float = 0.0
    owns_demo: bool = False
    owns_playback: bool = False
    is_view_only: bool = False
    """Whether this console may never change the cluster."""
    is_in_browser: bool = False
    link: Link = field(default_factory=Link)
    view: ClusterView | None = None
    view_at: float = 0.0
    log: EventWindow = field(default_factory=EventWindow)
    armed_until: float | None = None
    activities: tuple[Activity, ...] = ()
    """What the operator has ordered, oldest first."""
    progress: tuple[str, ...] = ()
    trend: Trend = ()
    absence: LinkAbsence | None = None
    """None while the connection holds."""
    evidence: SeenEvidence | None = None
    """Of the incident that was looked at last."""
    compared: ClusterView | None = None
    """The instant of a playback that others are compared with."""

    @property
    def activity(self) -> Activity | None:
        """The action whose outcome has changed last; None before the first."""
        return max(reversed(self.activities), key=lambda each: each.changed_at, default=None)

    @property
    def is_armed(self) -> bool:
        """Whether verbs are allowed."""
        return self.armed_until is not None

    @property
    def is_live(self) -> bool:
        """Whether views still arrive."""
        return self.link.phase is LinkPhase.LIVE and self.view is not None

    @property
    def age_s(self) -> float:
        """Seconds since the newest view arrived."""
        return max(0.0, self.now - self.view_at)

    @property
    def is_stale(self) -> bool:
        """Whether what is shown may no longer be true."""
        return not self.is_live or self.age_s > STALE_AFTER_S

    @property
    def playback(self) -> PlaybackView | None:
        """What is played back; None of a living cluster."""
        return self.view.playback if self.view else None

    @property
    def cluster_now(self) -> float:
        """The controller's time now, by the console's clock since the newest view."""
        if self.view is None:
            return 0.0
        return self.view.now + (0.0 if self.playback else self.age_s)

    @property
    def pending(self) -> PlanView | None:
        """The oldest plan that waits for a decision."""
        plans = self.view.plans if self.view else []
        return next((plan for plan in plans if plan.state is PlanState.PENDING), None)

    @property
    def out_of_contact(self) -> list[NodeView]:
        """The nodes that may be lost, the longest asked about first."""
        nodes = self.view.nodes if self.view else []
        away = [node for node in nodes if node.condition is NodeCondition.UNREACHABLE]
        return sorted(away, key=lambda node: (node.asked_at is None, node.asked_at or 0.0))

    @property
    def asked(self) -> NodeView | None:
        """The node that the operator has been asked about for longest."""
        return next((node for node in self.out_of_contact if node.asked_at is not None), None)


def is_recovering(state: State, task: TaskView) -> bool:
    """Whether ``task`` is stopped or starting because of a fault."""
    if task.phase in (TaskPhase.RUNNING, TaskPhase.FINISHED, TaskPhase.STOPPED):
        return False
    incidents = state.view.incidents if state.view else []
    return task.generation > 1 or any(
        incident.task == task.name and incident.state is not IncidentState.RESOLVED
        for incident in incidents
    )


def why_not_current(state: State) -> str:
    """Return why the shown data can't be acted upon, or an empty string if it can."""
    match state.link.phase:
        case LinkPhase.ENDED:
            return "the playback has ended" if state.owns_playback else "the demo has ended"
        case LinkPhase.LIVE if state.view is not None:
            if state.playback is not None:
                return "this is the past: nothing can be changed"
            if state.view.is_closing:
                return "the cluster is shutting down"
            return f"data is {state.age_s:.0f} s old" if state.is_stale else ""
        case _:
            return "not connected to the controller"
