"""``reduce(state, event)`` is the only function that changes the console's state.

It folds events of the connection, the operator and the clock into a ``State``. Live data and tests
feed the same function.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from console.viewmodel.absence import LinkAbsence, missed
from console.viewmodel.activity import (
    ActionPhase,
    Activity,
    Effect,
    answered,
    followed,
)
from console.viewmodel.console_state import EventWindow, Link, LinkPhase, SeenEvidence, State
from console.viewmodel.trend import Trend, followed_trend, past_trend
from controller.api.views import ClusterView, LogLine
from controller.api.wire import Greeting, LogLines, Reply, Snapshot

MAX_LOG_LINES: Final = 5_000
MAX_PROGRESS_LINES: Final = 200
MAX_ACTIVITIES: Final = 100
ARMED_FOR_S: Final = 600.0
"""Without an action for this long, the console goes back to view mode."""


FromController = Greeting | LogLines | Reply | Snapshot
"""What the controller sends, once its changes have been made to views."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of the controller arrived."""

    at: float
    message: FromController


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """The connection entered another phase."""

    link: Link


@dataclass(frozen=True, slots=True)
class ChildOutput:
    """The demo or playback that this console started printed a line."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""

    at: float


@dataclass(frozen=True, slots=True)
class ModeSwitched:
    """The operator switched between view mode and armed."""

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


@dataclass(frozen=True, slots=True)
class InstantMarked:
    """The operator marked an instant of a playback, to compare others with it; None ends that."""

    at: float
    view: ClusterView | None


@dataclass(frozen=True, slots=True)
class EvidenceSeen:
    """The controller has answered a question for the evidence of an incident."""

    evidence: SeenEvidence


ConsoleEvent = (
    Received
    | LinkChanged
    | ChildOutput
    | Ticked
    | ModeSwitched
    | ActionSent
    | ActionAnswered
    | ActionUnanswered
    | ActionBlocked
    | InstantMarked
    | EvidenceSeen
)


def reduce(state: State, event: ConsoleEvent) -> State:
    """Return the state after ``event``. Total: no event is refused, none raises."""
    match event:
        case Received(at, message):
            return _received(replace(state, now=max(state.now, at)), message)
        case LinkChanged(link):
            return _link_changed(state, link)
        case ChildOutput(_, text):
            lines = (*state.progress, text)[-MAX_PROGRESS_LINES:]
            return replace(state, progress=lines)
        case Ticked(at):
            return _ticked(state, at)
        case ModeSwitched() | InstantMarked() | EvidenceSeen():
            return _switched(state, event)
        case ActionSent() | ActionAnswered() | ActionUnanswered() | ActionBlocked():
            return _acted(state, event)
        case _:
            assert_never(event)


def _switched(state: State, event: ModeSwitched | InstantMarked | EvidenceSeen) -> State:
    if isinstance(event, EvidenceSeen):
        return replace(state, evidence=event.evidence)
    if isinstance(event, InstantMarked):
        return replace(state, compared=event.view)
    is_armed = event.is_armed and not state.is_view_only
    return replace(state, armed_until=event.at + ARMED_FOR_S if is_armed else None)


def _received(state: State, message: FromController) -> State:
    match message:
        case Greeting():
            return state
        case Snapshot(view=view):
            return _viewed(state, view)
        case LogLines(lines=lines, replaces=replaces):
            return replace(state, log=_logged(EventWindow() if replaces else state.log, lines))
        case Reply():
            return _acted(state, ActionAnswered(state.now, message))
        case _:
            assert_never(message)


def _viewed(state: State, view: ClusterView) -> State:
    is_same_run = state.view is None or state.view.started_wall_s == view.started_wall_s
    activities = tuple(followed(each, view, state.now) for each in state.activities)
    absence = state.absence
    if absence is not None and not any(each.is_open for each in state.activities):
        message = missed(absence, view, state.now)
        again = Activity(
            "", "connected again", ActionPhase.DONE, state.now, state.now, message=message
        )
        activities = _with(activities, again)
    return replace(
        state,
        view=view,
        view_at=state.now,
        absence=None,
        log=state.log if is_same_run else EventWindow(),
        trend=_trend(state.trend if is_same_run else (), view),
        activities=activities,
    )


def _trend(trend: Trend, view: ClusterView) -> Trend:
    if view.playback is not None:
        return past_trend(view.playback.wafs, view.now)
    return followed_trend(trend, view)


def _logged(log: EventWindow, lines: list[LogLine]) -> EventWindow:
    newest = log.lines[-1].seq if log.lines else None
    fresh = [line for line in lines if newest is None or line.seq > newest]
    if not fresh:
        return log
    gap = 0 if newest is None else fresh[0].seq - newest - 1
    return EventWindow((*log.lines, *fresh)[-MAX_LOG_LINES:], log.num_missed + gap)


def _link_changed(state: State, link: Link) -> State:
    # The operator armed the console while the data was live.
    is_gone = link.phase is not LinkPhase.LIVE and state.view is not None
    absence = state.absence
    if is_gone and absence is None and state.view is not None:
        absence = LinkAbsence(state.view_at, state.view)
    return replace(
        state,
        now=max(state.now, link.since),
        link=link,
        absence=absence,
        armed_until=None if is_gone else state.armed_until,
    )


def _ticked(state: State, at: float) -> State:
    until = state.armed_until
    is_over = until is not None and at >= until
    return replace(state, now=max(state.now, at), armed_until=None if is_over else until)


def _acted(
    state: State, event: ActionSent | ActionAnswered | ActionUnanswered | ActionBlocked
) -> State:
    known = state.activities
    match event:
        case ActionSent(at, request_id, title, effect):
            sent = Activity(request_id, title, ActionPhase.SENT, at, at, effect=effect)
            armed = at + ARMED_FOR_S if state.is_armed else None
            return replace(state, activities=_with(known, sent), armed_until=armed)
        case ActionBlocked(at, title, reason):
            blocked = Activity("", title, ActionPhase.REFUSED, at, at, message=reason)
            return replace(state, activities=_with(known, blocked))
        case ActionAnswered(at, reply):
            return _changed(state, reply.request_id, lambda each: answered(each, reply, at))
        case ActionUnanswered(at, request_id, reason):
            unknown = ActionPhase.UNKNOWN
            return _changed(
                state,
                request_id,
                lambda each: replace(each, phase=unknown, changed_at=at, message=reason),
            )


def _with(known: tuple[Activity, ...], new: Activity) -> tuple[Activity, ...]:
    """Return the activities with one more. Of what was never sent, only the newest is kept."""
    return (*(each for each in known if each.request_id), new)[-MAX_ACTIVITIES:]


def _changed(state: State, request_id: str, change: Callable[[Activity], Activity]) -> State:
    if not request_id:
        return state
    activities = tuple(
        change(each) if each.request_id == request_id else each for each in state.activities
    )
    return replace(state, activities=activities)
