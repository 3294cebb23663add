"""A plan: the nodes that it changes, its pauses, and its cost terms.

A pause stands there as predicted, and as it was.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.details.labelled import commands, title
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, plural, short
from console.viewmodel.drawing.text import Cell, Line, Span, Tone, cells_wide, fit, span
from console.viewmodel.panels.plan_panel import plan_lines
from console.viewmodel.words import PLAN_WORDS, marked, task_letter, task_tone
from controller.api.views import (
    ClusterView,
    ExplanationView,
    PlanState,
    PlanView,
    TaskChangeView,
    TransitionView,
)

_MOST_NODES: Final = 64
_MOST_WORKERS: Final = 4096
"""Of a run of workers on one node; more is no number of a real node."""
_NAME_WIDTH: Final = 14
_UNMEASURED: Final = "not measured"
_NodeMap = Mapping[str, Mapping[int, str]]
"""By node and worker, the task that has a rank there."""


def plan_detail_lines(state: State, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all that is known of a plan."""
    view = state.view
    plan = next((each for each in view.plans if each.id == name), None) if view else None
    if view is None or plan is None:
        return [Line((span(f"{name} is no longer among the newest plans", Tone.WARN),))]
    head = (
        span(f"{plan.id} r{plan.revision}  ", Tone.STRONG),
        *marked(PLAN_WORDS[plan.state], glyphs),
    )
    by = f"  by {plan.approved_by}" if plan.approved_by else ""
    is_pending = plan.state is PlanState.PENDING
    numbered = f"{plan.id}:{plan.revision}"
    verbs = (f"unicron approve {numbered}", f"unicron reject {numbered}") if is_pending else ()
    return [
        Line((*head, span(by, Tone.DIM))),
        Line(),
        *plan_lines(state, plan, width, glyphs),
        *_placement_map(view, plan, width, glyphs),
        *_pauses(view, plan, width, glyphs),
        *_terms(plan.explanation, width, glyphs),
        *commands((f"unicron explain {plan.id}", *verbs)),
    ]


def _placement_map(view: ClusterView, plan: PlanView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the nodes on which a worker changes hands, before and after."""
    before = _node_map(plan.changes, is_after=False)
    after = _node_map(plan.changes, is_after=True)
    sizes = {node.node: len(node.workers) for node in view.nodes}
    names = [*sizes, *(name for name in {**before, **after} if name not in sizes)]
    changed = [name for name in names if before.get(name, {}) != after.get(name, {})]
    if not changed:
        return []
    letters = {task.name: place for place, task in enumerate(view.tasks)}
    heading = Line(
        (
            Span("PLACEMENT  ", Tone.TITLE),
            span(f"a letter is a worker's task, {glyphs.dot} has none", Tone.DIM),
        )
    )
    lines = [Line(), heading]
    for name in changed[:_MOST_NODES]:
        held = before.get(name, {}), after.get(name, {})
        workers = range(sizes.get(name, 1 + max([*held[0], *held[1]], default=0)))
        cells = [_cells(each, workers, letters, glyphs) for each in held]
        num_changed = sum(held[0].get(worker) != held[1].get(worker) for worker in workers)
        note = f"  {plural(num_changed, 'worker')} {'changes' if num_changed == 1 else 'change'}"
        out = "  out" if name in plan.isolated_nodes else ""
        spans = (
            *fit((span(name, Tone.STRONG),), _NAME_WIDTH, glyphs.ellipsis),
            *cells[0],
            span(f"  {glyphs.arrow}  ", Tone.DIM),
            *cells[1],
            span(note, Tone.WARN),
            span(out, Tone.BAD),
        )
        lines.append(Line(fit(spans, width, glyphs.ellipsis)))
    if len(changed) > _MOST_NODES:
        lines.append(Line((span(f"and {len(changed) - _MOST_NODES} nodes more", Tone.DIM),)))
    if num_others := len(names) - len(changed):
        text = f"{plural(num_others, 'other node')} without a change"
        lines.append(Line((span(text, Tone.DIM),)))
    return lines


def _node_map(changes: list[TaskChangeView], *, is_after: bool) -> _NodeMap:
    found: dict[str, dict[int, str]] = {}
    for change in changes:
        for run in change.placement_after if is_after else change.placement_before:
            node, _, slots = run.rpartition(":")
            first, _, last = slots.partition("-")
            if first.isdecimal() and (not last or last.isdecimal()):
                for worker in range(int(first), int(last or first) + 1)[:_MOST_WORKERS]:
                    found.setdefault(node, {})[worker] = change.task
    return found


def _cells(
    held: Mapping[int, str], workers: range, letters: Mapping[str, int], glyphs: Glyphs
) -> Cell:
    spans = []
    for worker in workers:
        task = held.get(worker)
        if task is None:
            spans.append(Span(glyphs.dot, Tone.DIM))
        else:
            place = letters.get(task, len(letters))
            spans.append(Span(task_letter(place), task_tone(place)))
    return tuple(spans)


def _pauses(view: ClusterView, plan: PlanView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return for how long tasks do not train: predicted, and as it was in this run."""
    moving = [change for change in plan.changes if change.moves or change.is_faulted]
    if not moving:
        return []
    transitions = {task.name: task.transition for task in view.tasks if task.transition}
    lines = [Line(), title("PAUSES  predicted, and as they were")]
    for change in moving:
        predicted = latency(change.transition_s) if change.transition_s > 0 else _UNMEASURED
        took, tone = _took(view, plan, change.task, transitions.get(change.task))
        spans = (
            *fit((span(change.task, Tone.STRONG),), _NAME_WIDTH, glyphs.ellipsis),
            span(f"{predicted:>12}  "),
            span(took, tone),
        )
        lines.append(Line(fit(spans, width, glyphs.ellipsis)))
    done = [f"{task} {_pair(each)}" for task, each in transitions.items() if each.is_done]
    known = "; ".join(done) or _UNMEASURED
    text = f"newest transitions of this run: {known}"
    return [*lines, Line(fit((span(text, Tone.DIM),), width, glyphs.ellipsis))]


def _took(
    view: ClusterView, plan: PlanView, task: str, transition: TransitionView | None
) -> tuple[str, Tone]:
    if plan.state is PlanState.PENDING:
        return "not yet", Tone.DIM
    if plan.state is not PlanState.APPLIED:
        return f"was {plan.state}", Tone.DIM
    if transition is None or not _is_of_plan(view, plan, task, transition):
        return "no longer known: the task has had another transition", Tone.DIM
    if not transition.is_done:
        return f"{latency(transition.actual_s)} so far", Tone.BUSY
    return latency(transition.actual_s), Tone.GOOD


def _is_of_plan(view: ClusterView, plan: PlanView, task: str, transition: TransitionView) -> bool:
    """Whether a task's transition follows a plan, and neither a later plan nor a later fault."""
    since, begun = plan.decided_at, transition.decided_at
    if since is None or begun is None or begun < since:
        return False
    plans = (each.decided_at for each in view.plans if each.state is PlanState.APPLIED)
    faults = (each.detected_at for each in view.incidents if each.task == task)
    return not any(at is not None and since < at <= begun for at in (*plans, *faults))


def _pair(transition: TransitionView) -> str:
    return (
        f"{transition.kind} {latency(transition.predicted_s)} predicted,"
        f" {latency(transition.actual_s)} taken"
    )


def _terms(explanation: ExplanationView | None, width: int, glyphs: Glyphs) -> list[Line]:
    if explanation is None:
        return [Line(), title("COST TERMS"), Line((span("not computed yet", Tone.DIM),))]
    if not explanation.terms:
        return []
    heading = Line(
        (
            Span("COST TERMS  ", Tone.TITLE),
            span("weighted FLOP until the next expected fault", Tone.DIM),
        )
    )
    return [Line(), heading, *_term_rows(explanation, width, glyphs)]


def _term_rows(explanation: ExplanationView, width: int, glyphs: Glyphs) -> Iterator[Line]:
    names = max((cells_wide((span(each.name),)) for each in explanation.terms), default=0)
    for each in explanation.terms:
        share = f", {100 * each.forgone / each.earned:.2g}%" if each.earned > 0 else ""
        spans = (
            *fit((span(each.name, Tone.STRONG),), min(names, 20) + 2, glyphs.ellipsis),
            span(f"earns {short(each.earned):>6}  "),
            span(f"its pause costs {short(each.forgone):>6}{share}"),
        )
        yield Line(fit(spans, width, glyphs.ellipsis))
