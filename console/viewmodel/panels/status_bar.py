"""The status bar and the activity line.

The bar consists of segments, each in a long and a short wording. If the line is too narrow, the
least important segments are shortened first and then left out. Mode and connection always stay.
"""

from collections.abc import Callable
from dataclasses import dataclass

from console.viewmodel.activity import ActionPhase
from console.viewmodel.console_state import STALE_AFTER_S, LinkPhase, State, is_recovering
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import clock, date, latency, plural, seconds, share
from console.viewmodel.drawing.text import (
    Cell,
    Ground,
    Line,
    Span,
    Tone,
    cells_wide,
    fit,
    span,
    wrap,
)
from console.viewmodel.words import ACTION_WORDS, marked
from controller.api.views import ClusterView, NodeCondition, PlanState

_AGE_WIDTH = 13
DISARM_NOTICE_S = 120.0
"""The countdown is shown when armed mode ends this soon."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One statement of the bar in two lengths. A lower priority is kept longer.

    Of two that are equal, the one further right is.
    """

    priority: int
    long: Cell
    short: Cell


def status_line(state: State, width: int, glyphs: Glyphs) -> Line:
    """Return the status bar in exactly ``width`` cells."""
    segments = [segment for make in _SEGMENTS if (segment := make(state, glyphs))]
    tail = _clock(state)
    gap = (span(f" {glyphs.bar} ", Tone.DIM),)
    wordings: list[Cell | None] = [segment.long for segment in segments]
    places = sorted(range(len(segments)), key=lambda at: segments[at].priority, reverse=True)
    steps: list[tuple[int, Cell | None]] = [(at, segments[at].short) for at in places]
    steps += [(at, None) for at in places if segments[at].priority > 1]
    room = width - cells_wide(tail)
    for at, wording in steps:
        if cells_wide(_joined(wordings, gap)) <= room:
            break
        wordings[at] = wording
    spans = (*fit(_joined(wordings, gap), room, glyphs.ellipsis), *tail)
    return Line(fit(spans, width, glyphs.ellipsis), bar_ground(state))


def bar_ground(state: State) -> Ground:
    """Return the ground of the bar: its colour shows the mode."""
    if state.view is not None and not state.is_live:
        return Ground.BAR_LOST
    if state.playback is not None:
        return Ground.BAR_PAST
    return Ground.BAR_ARMED if state.is_armed else Ground.BAR_VIEW


def _joined(wordings: list[Cell | None], gap: Cell) -> Cell:
    spans: list[Span] = [Span(" ")]
    for wording in wordings:
        if wording is not None:
            if len(spans) > 1:
                spans += gap
            spans += wording
    return tuple(spans)


def _mode(state: State, _: Glyphs) -> Segment:
    if state.playback is not None:
        word = (span("PLAYBACK", Tone.STRONG),)
        return Segment(0, word, word)
    if not state.is_armed or state.armed_until is None:
        words = "VIEW ONLY" if state.is_view_only else "VIEW"
        return Segment(0, (span(words, Tone.STRONG),), (span(words, Tone.STRONG),))
    left = state.armed_until - state.now
    countdown = f" {seconds(left)}" if left < DISARM_NOTICE_S else ""
    word = (span(f"ARMED{countdown}", Tone.STRONG),)
    return Segment(0, word, word)


def _demo(state: State, _: Glyphs) -> Segment | None:
    if not state.owns_demo:
        return None
    return Segment(8, (span("demo, ends on quit"),), (span("demo"),))


def _link(state: State, glyphs: Glyphs) -> Segment:
    age = seconds(state.age_s)
    if state.playback is not None and state.is_live:
        source = state.playback.source
        return Segment(1, (span(f"of a {source}"),), (span(source),))
    match state.link.phase:
        case LinkPhase.LIVE if state.view is not None and state.age_s > STALE_AFTER_S:
            text = f"{glyphs.warn} no update for {age}"
            return Segment(1, (span(text, Tone.BAD),), (span(f"{glyphs.warn} {age}", Tone.BAD),))
        case LinkPhase.LIVE:
            text = f"{glyphs.ok} live +{age}"
            return Segment(1, (span(text, Tone.GOOD),), (span(text, Tone.GOOD),))
        case _:
            return _link_down(state, glyphs)


def _link_down(state: State, glyphs: Glyphs) -> Segment:
    link = state.link
    word = link.phase.value.upper()
    old = f", data {seconds(state.age_s)} old" if state.view is not None else ""
    retry = ""
    if link.retry_at is not None and link.retry_at > state.now:
        retry = f", next try in {seconds(link.retry_at - state.now)}"
    reason = f": {link.reason}" if link.reason else ""
    return Segment(
        1,
        (span(f"{glyphs.bad} {word}{old}{reason}{retry}", Tone.STRONG),),
        (span(f"{glyphs.bad} {word}{old}{reason}", Tone.STRONG),),
    )


def _cluster(state: State, _: Glyphs) -> Segment | None:
    if state.view is None:
        return Segment(5, (span("UNICRON", Tone.STRONG),), (span("UNICRON", Tone.STRONG),))
    name = state.view.cluster
    return Segment(5, (span(f"UNICRON {name}", Tone.STRONG),), (span(name, Tone.STRONG),))


def _nodes(state: State, glyphs: Glyphs) -> Segment | None:
    if state.view is None:
        return None
    nodes = state.view.nodes
    lost = sum(node.condition is NodeCondition.LOST for node in nodes)
    away = sum(node.condition is NodeCondition.UNREACHABLE for node in nodes)
    isolated = sum(
        bool(node.isolated) and node.condition is NodeCondition.HEALTHY for node in nodes
    )
    long, brief = [span(plural(len(nodes), "node"))], [span(f"{len(nodes)}n")]
    for count, sign, word, tone in (
        (lost, glyphs.bad, "lost", Tone.BAD),
        (isolated, glyphs.held, "isolated", Tone.BAD),
        (away, glyphs.ask, "unreachable", Tone.WARN),
    ):
        if count:
            long.append(span(f" {sign} {count} {word}", tone))
            brief.append(span(f" {sign}{count}", tone))
    return Segment(3, tuple(long), tuple(brief))


def _tasks(state: State, glyphs: Glyphs) -> Segment | None:
    if state.view is None:
        return None
    tasks = state.view.tasks
    num_recovering = sum(is_recovering(state, task) for task in tasks)
    long, brief = [span(plural(len(tasks), "task"))], [span(f"{len(tasks)}t")]
    if num_recovering:
        long.append(span(f" {glyphs.busy} {num_recovering} recovering", Tone.WARN))
        brief.append(span(f" {glyphs.busy}{num_recovering}", Tone.WARN))
    return Segment(4, tuple(long), tuple(brief))


def _waf(state: State, glyphs: Glyphs) -> Segment | None:
    if state.view is None:
        return None
    percent = share(state.view.waf, state.view.waf_full, glyphs.dash)
    is_short = state.view.waf < 0.995 * state.view.waf_full
    tone = Tone.WARN if is_short else Tone.GOOD
    long = (span("WAF "), span(percent, tone), span(" of full"))
    return Segment(2, long, (span("WAF "), span(percent, tone)))


def _plans(state: State, glyphs: Glyphs) -> Segment | None:
    if state.view is None:
        return None
    num_plans = sum(plan.state is PlanState.PENDING for plan in state.view.plans)
    num_asked = sum(node.asked_at is not None for node in state.view.nodes)
    waiting = [(num_plans, "plan"), (num_asked, "question")]
    words = ", ".join(plural(count, noun) for count, noun in waiting if count)
    if not words:
        return None
    verb = "waits" if num_plans + num_asked == 1 else "wait"
    brief = " ".join(f"{glyphs.warn}{count} {noun}" for count, noun in waiting if count)
    long = (span(f"{glyphs.warn} {words} {verb}", Tone.WARN),)
    return Segment(6, long, (span(brief, Tone.WARN),))


def _policy(state: State, glyphs: Glyphs) -> Segment | None:
    view = state.view
    if view is None:
        return None
    if view.is_closing:
        return Segment(7, (span("shutting down", Tone.WARN),), (span("closing", Tone.WARN),))
    if view.automation_stopped:
        word = f"{glyphs.bad} automation stopped"
        return Segment(2, (span(word, Tone.BAD),), (span(f"{glyphs.bad} stopped", Tone.BAD),))
    if not view.is_auto_heal:
        return None
    return Segment(7, (span("auto-heal"),), (span("auto"),))


_SEGMENTS: tuple[Callable[[State, Glyphs], Segment | None], ...] = (
    _cluster,
    _mode,
    _link,
    _nodes,
    _tasks,
    _waf,
    _plans,
    _policy,
    _demo,
)


def _clock(state: State) -> Cell:
    view: ClusterView | None = state.view
    if view is None or not state.is_live:
        return (Span(" "),)
    wall_s = view.started_wall_s + state.cluster_now
    day = f"{date(wall_s)} " if state.playback else ""
    return (span(f" {day}{clock(wall_s)}Z "),)


def activity_lines(state: State, width: int, glyphs: Glyphs) -> list[Line]:
    """Return what the operator has ordered since the console began, the newest first."""
    lines: list[Line] = []
    for activity in reversed(state.activities):
        since = f"{seconds(state.now - activity.sent_at):>7} ago  "
        head = (span(since, Tone.DIM), *marked(ACTION_WORDS[activity.phase], glyphs))
        lines.append(Line((*head, span(f"  {activity.title}", Tone.STRONG))))
        took = latency(activity.changed_at - activity.sent_at)
        message = activity.message or "the controller has not answered yet"
        room = max(8, width - _AGE_WIDTH)
        lines += [
            Line((Span(" " * _AGE_WIDTH), span(part)))
            for part in wrap(f"{message}, after {took}", room, 3, glyphs.ellipsis)
        ]
    return lines or [Line((span("nothing yet", Tone.DIM),))]


def activity_line(state: State, width: int, glyphs: Glyphs) -> Line:
    """Return the outcome of the operator's last action, or the mode if there was none."""
    activity = state.activity
    if activity is None and state.playback is not None:
        hint = f" the past: nothing can be changed; not in this {state.playback.source}: {state.playback.unknown}"
        return Line(fit((span(hint, Tone.DIM),), width, glyphs.ellipsis))
    if activity is None:
        hint = " view mode: no key changes the cluster, ctrl+t allows actions"
        if state.is_view_only:
            hint = " view only: this console can't change the cluster"
        elif state.is_armed:
            hint = (
                " armed: keys can change the cluster; the demo ends on quit"
                if state.owns_demo
                else " armed: keys can change the cluster"
            )
        return Line(fit((span(hint, Tone.DIM),), width, glyphs.ellipsis))
    word = ACTION_WORDS[activity.phase]
    ago = f"  {seconds(state.now - activity.changed_at)} ago"
    spans = [Span(" "), *marked(word, glyphs), span(f"  {activity.title}", Tone.STRONG)]
    if activity.message:
        spans.append(span(f": {activity.message}"))
    elif activity.phase is ActionPhase.SENT:
        spans.append(span(": waiting for the controller", Tone.DIM))
    room = width - len(ago) - 1
    return Line((*fit(spans, room, glyphs.ellipsis), span(ago, Tone.DIM), Span(" ")))
