"""Everything the console knows, and the one function that changes it.

``reduce(state, event)`` folds what the connection, the operator and the clock say into an immutable
``State``. Live data, tests and a later replay feed the same function. All times in a state are
seconds of the console's own monotonic clock, except inside the controller's views.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from console.viewmodel.activity import (
    ActionPhase,
    Activity,
    Effect,
    answered,
    followed,
)
from controller.api.views import (
    ClusterView,
    IncidentState,
    LogLine,
    NodeCondition,
    NodeView,
    PlanState,
    PlanView,
    TaskPhase,
    TaskView,
)
from controller.api.wire import FromServer, Greeting, LogLines, Reply, Snapshot

MAX_LOG_LINES: Final = 5_000
MAX_PROGRESS_LINES: Final = 200
STALE_AFTER_S: Final = 5.0
"""Older data is not acted upon."""
ARMED_FOR_S: Final = 600.0
"""Without a verb for this long, the console goes back to view mode."""


class LinkPhase(StrEnum):
    """What the connection to the controller is doing."""

    CONNECTING = "connecting"
    LIVE = "live"
    LOST = "disconnected"
    INCOMPATIBLE = "incompatible"
    ENDED = "ended"
    """The demo that this console owned is over; nobody will answer again."""


@dataclass(frozen=True, slots=True)
class Link:
    """The connection, since when it is so, and why."""

    phase: LinkPhase = LinkPhase.CONNECTING
    since: float = 0.0
    reason: str = ""
    retry_at: float | None = None


@dataclass(frozen=True, slots=True)
class EventLog:
    """The newest lines of the event stream, by increasing ``seq``, without gaps unless counted."""

    lines: tuple[LogLine, ...] = ()
    num_missed: int = 0
    """Lines that the controller had already forgotten when the console asked."""


@dataclass(frozen=True, slots=True)
class State:
    """The console at one instant."""

    now: float = 0.0
    owns_demo: bool = False
    link: Link = field(default_factory=Link)
    view: ClusterView | None = None
    view_at: float = 0.0
    log: EventLog = field(default_factory=EventLog)
    armed_until: float | None = None
    activity: Activity | None = None
    progress: tuple[str, ...] = ()

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
    def cluster_now(self) -> float:
        """The controller's time now, by the console's clock since the newest view."""
        return self.view.now + self.age_s if self.view else 0.0

    @property
    def pending(self) -> PlanView | None:
        """The oldest plan that waits for a decision."""
        plans = self.view.plans if self.view else []
        return next((plan for plan in plans if plan.state is PlanState.PENDING), None)

    @property
    def out_of_contact(self) -> list[NodeView]:
        """The nodes that may be lost: those that are asked about first, the longest asked before."""
        nodes = self.view.nodes if self.view else []
        away = [node for node in nodes if node.condition is NodeCondition.UNREACHABLE]
        return sorted(away, key=lambda node: (node.asked_at is None, node.asked_at or 0.0))

    @property
    def asked(self) -> NodeView | None:
        """The node that the operator has been asked about for longest."""
        return next((node for node in self.out_of_contact if node.asked_at is not None), None)


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the controller arrived."""

    at: float
    message: FromServer


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """The connection entered another phase."""

    link: Link


@dataclass(frozen=True, slots=True)
class Progress:
    """The demo said how far its start has come."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    at: float


@dataclass(frozen=True, slots=True)
class ArmSwitched:
    """The operator armed or disarmed the console."""

    at: float
    is_armed: bool


@dataclass(frozen=True, slots=True)
class ActionSent:
    """A command left for the controller."""

    at: float
    request_id: str
    title: str
    effect: Effect = None


@dataclass(frozen=True, slots=True)
class ActionAnswered:
    """The controller replied to a command."""

    at: float
    reply: Reply


@dataclass(frozen=True, slots=True)
class ActionUnanswered:
    """No reply will come: time ran out, or the connection went."""

    at: float
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ActionBlocked:
    """The console itself refused a command: nothing was sent."""

    at: float
    title: str
    reason: str


Event = (
    Received
    | LinkChanged
    | Progress
    | Ticked
    | ArmSwitched
    | ActionSent
    | ActionAnswered
    | ActionUnanswered
    | ActionBlocked
)


def reduce(state: State, event: Event) -> State:
    """Return the state after ``event``. Total: no event is refused, none raises."""
    match event:
        case Received(at, message):
            return _received(replace(state, now=max(state.now, at)), message)
        case LinkChanged(link):
            return _link_changed(state, link)
        case Progress(_, text):
            lines = (*state.progress, text)[-MAX_PROGRESS_LINES:]
            return replace(state, progress=lines)
        case Ticked(at):
            return _ticked(state, at)
        case ArmSwitched(at, is_armed):
            return replace(state, armed_until=at + ARMED_FOR_S if is_armed else None)
        case ActionSent() | ActionAnswered() | ActionUnanswered() | ActionBlocked():
            return _acted(state, event)
        case _:
            assert_never(event)


def _received(state: State, message: FromServer) -> State:
    match message:
        case Greeting():
            return state
        case Snapshot(view=view):
            return _viewed(state, view)
        case LogLines(lines=lines):
            return replace(state, log=_logged(state.log, lines))
        case Reply():
            return _acted(state, ActionAnswered(state.now, message))
        case _:
            assert_never(message)


def _viewed(state: State, view: ClusterView) -> State:
    is_same_run = state.view is None or state.view.started_wall_s == view.started_wall_s
    activity = state.activity
    return replace(
        state,
        view=view,
        view_at=state.now,
        log=state.log if is_same_run else EventLog(),
        activity=followed(activity, view, state.now) if activity else None,
    )


def _logged(log: EventLog, lines: list[LogLine]) -> EventLog:
    newest = log.lines[-1].seq if log.lines else None
    fresh = [line for line in lines if newest is None or line.seq > newest]
    if not fresh:
        return log
    gap = 0 if newest is None else fresh[0].seq - newest - 1
    return EventLog((*log.lines, *fresh)[-MAX_LOG_LINES:], log.num_missed + gap)


def _link_changed(state: State, link: Link) -> State:
    # Whoever armed the console did so looking at live data.
    is_gone = link.phase is not LinkPhase.LIVE and state.view is not None
    return replace(
        state,
        now=max(state.now, link.since),
        link=link,
        armed_until=None if is_gone else state.armed_until,
    )


def _ticked(state: State, at: float) -> State:
    until = state.armed_until
    is_over = until is not None and at >= until
    return replace(state, now=max(state.now, at), armed_until=None if is_over else until)


def _acted(
    state: State, event: ActionSent | ActionAnswered | ActionUnanswered | ActionBlocked
) -> State:
    activity = state.activity
    match event:
        case ActionSent(at, request_id, title, effect):
            sent = Activity(request_id, title, ActionPhase.SENT, at, at, effect=effect)
            armed = at + ARMED_FOR_S if state.is_armed else None
            return replace(state, activity=sent, armed_until=armed)
        case ActionBlocked(at, title, reason):
            blocked = Activity("", title, ActionPhase.REFUSED, at, at, message=reason)
            return replace(state, activity=blocked)
        case ActionAnswered(at, reply):
            if activity is None or activity.request_id != reply.request_id:
                return state
            return replace(state, activity=answered(activity, reply, at))
        case ActionUnanswered(at, request_id, reason):
            if activity is None or activity.request_id != request_id:
                return state
            unknown = replace(activity, phase=ActionPhase.UNKNOWN, changed_at=at, message=reason)
            return replace(state, activity=unknown)


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
            return "the demo has ended"
        case LinkPhase.LIVE if state.view is not None:
            if state.view.is_closing:
                return "the cluster is closing down"
            return f"data is {state.age_s:.0f} s old" if state.is_stale else ""
        case _:
            return "not connected to the controller"
