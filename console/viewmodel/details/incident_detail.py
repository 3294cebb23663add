"""An incident: its times as bars, its cause, its evidence, its cure and its cost."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from console.viewmodel.console_state import SeenEvidence, State
from console.viewmodel.details.labelled import (
    commands,
    events_of,
    instant,
    label_line,
    labelled,
    title,
)
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, plural
from console.viewmodel.drawing.text import Line, Span, Tone, fit, span
from console.viewmodel.panels.incidents_panel import where
from console.viewmodel.words import INCIDENT_WORDS, SEVERITY_TONES, marked
from controller.api.views import IncidentState, IncidentView, PlanState, TransitionView

_BAR: Final = 30
_NAME_WIDTH: Final = 22
_NOTABLE_S: Final = 0.05
"""A step that is this much longer than predicted is said to be."""
_UNTIL_CURE: Final = "until the cure began"
_BY_POLICY: Final = "policy"


def incident_lines(state: State, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all that is known of an incident."""
    view = state.view
    incident = next((each for each in view.incidents if each.id == name), None) if view else None
    if view is None or incident is None:
        text = f"{name} is no longer among the newest: `unicron explain {name}` finds older ones"
        return [Line((span(text, Tone.WARN),))]
    drill = " (a drill)" if incident.is_drill else ""
    tone = SEVERITY_TONES.get(incident.severity, Tone.PLAIN)
    lines = [
        label_line("state", marked(INCIDENT_WORDS[incident.state], glyphs)),
        label_line(
            "what", (span(f"{incident.severity} ", tone), span(f"{incident.status}{drill}"))
        ),
        *labelled("where", where(incident, glyphs), width, glyphs),
        *labelled("why", incident.reason, width, glyphs),
        *labelled("found by", incident.method, width, glyphs),
        *labelled("action", incident.action, width, glyphs),
        *labelled("resumed", incident.resume, width, glyphs),
        *_cost(incident, width, glyphs),
        *_rehearsed(state, incident, width, glyphs),
        *commands(_verbs(incident)),
        Line(),
        title(f"TIMES  fault at {instant(state, incident.fault_at)}"),
        *_bars(state, incident, width, glyphs),
        *_predicted(state, incident, width, glyphs),
        Line(),
        title(f"EVIDENCE {len(incident.evidence)}"),
    ]
    for evidence in incident.evidence:
        lines += labelled("", evidence, width, glyphs)
    plans = [plan for plan in view.plans if plan.trigger == name]
    lines += [Line(), title(f"PLANS {len(plans)}")]
    for plan in plans:
        by = f" by {plan.approved_by}" if plan.approved_by else ""
        lines += labelled(
            f"{plan.id} r{plan.revision}", f"{plan.state.value}{by}: {plan.why}", width, glyphs
        )
    seen = state.evidence
    if seen is not None and seen.incident == name:
        lines += _in_full(seen, width, glyphs)
    sources = [each for each in (name, incident.task, *incident.nodes) if each]
    return [*lines, *events_of(state, sources, width, glyphs)]


def known_evidence(state: State, name: str) -> object:
    """Return what changes when an incident gets evidence; None if there is no such incident."""
    incidents = state.view.incidents if state.view else []
    incident = next((each for each in incidents if each.id == name), None)
    return None if incident is None else (tuple(incident.evidence), incident.state)


@lru_cache(maxsize=4)
def _in_full(seen: SeenEvidence, width: int, glyphs: Glyphs) -> tuple[Line, ...]:
    """Return tracebacks, stacks and lines of logs, or why there are none.

    They may be thousands of lines, and a screen is drawn four times a second.
    """
    pieces = [each for each in seen.pieces if each.detail]
    if not (pieces or seen.refusal):
        return ()
    lines = [Line(), title("TRACEBACKS, STACKS AND LOG LINES")]
    lines += labelled("", seen.refusal, width, glyphs, Tone.WARN)
    for each in pieces:
        rank = f"rank {each.rank} " if each.rank is not None else ""
        head = f"{each.kind}  {rank}{f'on {each.node}  ' if each.node else ''}{each.log}"
        lines.append(Line(fit((span(head, Tone.STRONG),), width, glyphs.ellipsis)))
        for text in each.detail.splitlines():
            spans = (Span(f"{glyphs.side} ", Tone.DIM), span(text.expandtabs(4)))
            lines.append(Line(fit(spans, width, glyphs.ellipsis)))
    if seen.num_left_out:
        text = f"{plural(seen.num_left_out, 'later piece')} of evidence left out"
        lines.append(Line((span(text, Tone.DIM),)))
    return tuple(lines)


def _verbs(incident: IncidentView) -> list[str]:
    """Return the commands that help now, the most urgent first."""
    verbs = [f"unicron explain {incident.id}", f"unicron post-mortem {incident.id}"]
    is_open = incident.state is not IncidentState.RESOLVED
    if is_open and incident.rehearsed is not None and incident.rehearsed.approved_at is None:
        verbs.insert(0, f"unicron approve {incident.id}")
    return verbs


def phases(state: State, incident: IncidentView) -> list[tuple[str, float, bool]]:
    """Return the phases of an incident, how long each lasted, and whether it is over."""
    marks = (
        ("until it was found", incident.detected_at),
        ("until it had a cause", incident.decided_at),
        (_UNTIL_CURE, incident.acting_at),
        ("until it was cured", incident.resolved_at),
    )
    found: list[tuple[str, float, bool]] = []
    since = incident.fault_at
    for name, at in marks:
        if at is None:
            if incident.state is not IncidentState.RESOLVED:
                found.append((name, max(0.0, state.cluster_now - since), False))
                break
            continue
        found.append((name, max(0.0, at - since), True))
        since = max(since, at)
    return found


def _bars(state: State, incident: IncidentView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one bar per phase, each begun where the one before ends."""
    found = phases(state, incident)
    trained_s = incident.recovery_s
    whole = max(sum(took for _, took, _ in found), trained_s or 0.0) or 1.0
    room = max(8, min(_BAR * 2, width - _NAME_WIDTH - 10))
    scale = _Scale(whole, room, glyphs.spark[-1])
    lines, begun = [], 0.0
    for name, took, is_over in found:
        bar = scale.bar(name, took, begun, Tone.GOOD if is_over else Tone.WARN)
        note = "" if is_over else " so far"
        if name == _UNTIL_CURE and took > _NOTABLE_S:
            note += _who_was_waited_for(state, incident)
        lines.append(Line(fit((*bar.spans, span(note, Tone.WARN)), width, glyphs.ellipsis)))
        begun += took
    if trained_s is not None:
        # Often long before the cure: what is left trains while a plan waits.
        lines.append(scale.bar("fault to training", trained_s, 0.0, Tone.STRONG))
    return lines


def _who_was_waited_for(state: State, incident: IncidentView) -> str:
    """Return the plan of an incident that a person has decided on, or is to decide on."""
    plans = state.view.plans if state.view else []
    for plan in plans:
        by = plan.approved_by or _BY_POLICY
        is_by_person = not by.startswith(_BY_POLICY)
        if plan.trigger == incident.id and (plan.state is PlanState.PENDING or is_by_person):
            return f" {plan.id} for approval"
    return ""


def _predicted(state: State, incident: IncidentView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the steps of the cure, each with its prediction above its duration."""
    transition = _transition_of(state, incident)
    if transition is None or not transition.steps:
        return []
    whole = max(
        sum(step.predicted_s for step in transition.steps),
        sum(step.actual_s or 0.0 for step in transition.steps),
    )
    room = max(8, min(_BAR * 2, width - _NAME_WIDTH - 22))
    lines = [Line(), title(f"STEPS OF THE CURE  {transition.kind}, predicted above actual")]
    scale = _Scale(whole, room, glyphs.spark[-1])
    predicted_begun = actual_begun = 0.0
    for step in transition.steps:
        name, took = step.name, step.actual_s
        lines.append(scale.bar(name, step.predicted_s, predicted_begun, Tone.DIM))
        predicted_begun += step.predicted_s
        if took is None:
            lines.append(Line((Span(" " * _NAME_WIDTH), Span(f"{'not yet':>8}", Tone.DIM))))
            continue
        over_s = took - step.predicted_s
        tone = Tone.WARN if over_s > _NOTABLE_S else Tone.GOOD
        bar = scale.bar("", took, actual_begun, tone)
        more = f"  {glyphs.warn} +{latency(over_s)}" if over_s > _NOTABLE_S else ""
        lines.append(Line((*bar.spans, Span(more, Tone.WARN))))
        actual_begun += took
    return lines


def _transition_of(state: State, incident: IncidentView) -> TransitionView | None:
    """Return the newest transition of the incident's task if it is the cure of this incident."""
    tasks = state.view.tasks if state.view else []
    task = next((each for each in tasks if each.name == incident.task), None)
    transition = task.transition if task else None
    if transition is None or transition.decided_at is None:
        return None
    until = state.cluster_now if incident.resolved_at is None else incident.resolved_at
    return transition if incident.fault_at <= transition.decided_at <= until else None


@dataclass(frozen=True, slots=True)
class _Scale:
    """Seconds as cells: ``whole`` seconds take ``room`` cells."""

    whole: float
    room: int
    block: str

    def bar(self, name: str, took: float, begun: float, tone: Tone) -> Line:
        """Return a name, a duration, and a bar that begins where the one before it ends."""
        per_s = self.room / (self.whole or 1.0)
        first = min(self.room - 1, round(begun * per_s))
        size = max(1, round((begun + took) * per_s) - first)
        bar = (" " * first + self.block * size)[: self.room]
        number_tone = Tone.DIM if tone is Tone.DIM else Tone.PLAIN
        return Line(
            (
                span(f"{name:<{_NAME_WIDTH}}", Tone.DIM),
                Span(f"{latency(took):>8}  ", number_tone),
                Span(f"{bar:<{self.room}}", tone),
            )
        )


def _cost(incident: IncidentView, width: int, glyphs: Glyphs) -> list[Line]:
    recovered = (
        ""
        if incident.recovery_s is None
        else f"{latency(incident.recovery_s)} from the fault to the next iteration, "
    )
    text = (
        f"{recovered}{incident.saved_micro_batches} micro-batches kept,"
        f" {incident.recomputed_micro_batches} computed again"
    )
    return labelled("cost", text, width, glyphs)


def _rehearsed(state: State, incident: IncidentView, width: int, glyphs: Glyphs) -> list[Line]:
    asked = incident.rehearsed
    if asked is None:
        return []
    outcome = "waits for an approval"
    if asked.approved_at is not None:
        outcome = f"approved by {asked.approved_by} at {instant(state, asked.approved_at)}"
    text = f"{asked.action} at {instant(state, asked.at)}; {outcome}"
    return labelled("auto-heal", text, width, glyphs, Tone.WARN)
