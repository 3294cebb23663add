"""The waiting plan: observation, changes, WAF, the cost of waiting, reason and steps.

Shares are of the cluster's weighted FLOP/s with every node in place. The most important lines stand
first, since a small terminal shows only the beginning.
"""

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import gpu_minutes, seconds, share
from console.viewmodel.drawing.text import (
    Cell,
    Ground,
    Line,
    Span,
    Tone,
    cell,
    cells_wide,
    fit,
    span,
    wrap,
)
from console.viewmodel.panels.playback_strip import playback_line
from console.viewmodel.panels.tasks_panel import layout_words
from console.viewmodel.words import PLAN_WORDS, task_letter, task_tone
from controller.api.views import (
    AlternativeView,
    ClusterView,
    ExplanationView,
    NodeView,
    PlanState,
    PlanView,
    SensitivityView,
    TaskChangeView,
)

LABEL_WIDTH = 8
FATE_WIDTH = 9
MAX_HISTORY = 4


def plan_heading(state: State, plan: PlanView, glyphs: Glyphs) -> Line:
    """Return the panel's heading: which plan, for what, since when."""
    age = seconds(state.cluster_now - plan.created_at)
    countdown = ""
    if plan.apply_at is not None:
        left = seconds(max(0.0, plan.apply_at - state.cluster_now))
        countdown = f"  applied in {left} unless rejected"
    return Line(
        (
            Span("  "),
            span(f"PLAN {plan.id} r{plan.revision}", Tone.TITLE),
            span(f"  {glyphs.warn} waits {age}", Tone.WARN),
            span(countdown, Tone.BUSY),
            span(f"  for {plan.trigger}", Tone.DIM),
        ),
        Ground.HEADING,
    )


def plan_lines(state: State, plan: PlanView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the plan as labelled lines, without its heading."""
    view = state.view
    if view is None:
        return []
    lines = _labelled("seen", plan.seen, width, glyphs, max_lines=3)
    lines += change_lines(view, plan, width, glyphs)
    lines.append(Line((*_label("WAF"), *waf_cell(view, plan, glyphs))))
    lines += _labelled("cost", waiting_words(view, plan), width, glyphs, max_lines=2)
    if plan.isolated_nodes:
        lines += _labelled("out", ", ".join(plan.isolated_nodes), width, glyphs, max_lines=2)
    lines += _labelled("why", plan.why, width, glyphs, max_lines=6)
    lines += _explanation_lines(plan.explanation, width, glyphs)
    for number, step in enumerate(plan.steps, 1):
        text = f"{number} {step}"
        lines += _labelled("steps" if number == 1 else "", text, width, glyphs, max_lines=2)
    moving = [change for change in plan.changes if change.moves]
    for number, change in enumerate(moving):
        text = f"{change.task}  {_places(change, glyphs)}"
        lines += _labelled("ranks" if number == 0 else "", text, width, glyphs, max_lines=2)
    return lines


def _places(change: TaskChangeView, glyphs: Glyphs) -> str:
    """Return the workers of a task before and after, in the order of its ranks."""
    before, after = " ".join(change.placement_before), " ".join(change.placement_after)
    return f"{before or glyphs.dash} {glyphs.arrow} {after or glyphs.dash}"


def _explanation_lines(
    explanation: ExplanationView | None, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return the nearest other plans, and the estimates that would lead to another plan."""
    if explanation is None:
        return []
    texts = [("or", f"{_sizes(each)} {each.verdict}") for each in explanation.alternatives]
    if explanation.floors:
        texts.append(("floor", explanation.floors.verdict))
    texts += [
        ("if", f"the {each.estimate} were {each.factor:g} times as long: {_sizes(each)}")
        for each in explanation.sensitivity
    ]
    lines: list[Line] = []
    before = ""
    for label, text in texts:
        shown = label if label != before else ""
        lines += _labelled(shown, text, width, glyphs, max_lines=2)
        before = label
    return lines


def _sizes(other: AlternativeView | SensitivityView) -> str:
    return ", ".join(f"{task} on {number}" for task, number in other.differs.items()) + " workers"


def change_lines(view: ClusterView, plan: PlanView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return one line per task: workers, fate, share of WAF and layout, before and after.

    Where all of it does not fit, every line loses the same parts.
    """
    names = max((cells_wide(cell(change.task)) for change in plan.changes), default=0)
    heads = [_change_head(view, change, min(names, 20), glyphs) for change in plan.changes]
    tails = [_change_tails(view, change, glyphs) for change in plan.changes]
    size = max((cells_wide(head) for head in heads), default=0) + LABEL_WIDTH
    detail = 0
    while (
        detail < 3 and size + max((cells_wide(tail[detail]) for tail in tails), default=0) > width
    ):
        detail += 1
    lines = []
    for number, (head, tail) in enumerate(zip(heads, tails, strict=True)):
        label = _label("tasks" if number == 0 else "")
        lines.append(Line((*label, *head, *tail[detail])))
    return lines


def _change_head(view: ClusterView, change: TaskChangeView, names: int, glyphs: Glyphs) -> Cell:
    position = next(
        (index for index, task in enumerate(view.tasks) if task.name == change.task),
        len(view.tasks),
    )
    fate, tone = _fate(change)
    return (
        span(f"{task_letter(position)} ", task_tone(position)),
        *fit((span(change.task, Tone.STRONG),), names, glyphs.ellipsis),
        span(f"  {change.workers_before} {glyphs.arrow} {change.workers_after} workers"),
        span(f"  {fate:<{FATE_WIDTH}}", tone),
    )


def _change_tails(
    view: ClusterView, change: TaskChangeView, glyphs: Glyphs
) -> tuple[Cell, Cell, Cell, Cell]:
    """Return WAF and layout in four lengths, the longest first."""
    layout_before = next((task.layout for task in view.tasks if task.name == change.task), None)
    before, after = layout_words(layout_before, glyphs), layout_words(change.layout_after, glyphs)
    layouts = after if before == after else f"{before} {glyphs.arrow} {after}"
    waf = span(f"  {_waf_change(view, change, glyphs):<15}")
    return (
        (waf, span(f"  {layouts}", Tone.DIM)),
        (waf, span(f"  {after}", Tone.DIM)),
        (waf,),
        (),
    )


def _waf_change(view: ClusterView, change: TaskChangeView, glyphs: Glyphs) -> str:
    before = share(change.waf_before, view.waf_full, glyphs.dash)
    after = share(change.waf_after, view.waf_full, glyphs.dash)
    return f"WAF {after}" if before == after else f"WAF {before} {glyphs.arrow} {after}"


def _fate(change: TaskChangeView) -> tuple[str, Tone]:
    if change.workers_after == 0:
        return "stops", Tone.BAD
    if change.is_faulted:
        return "restarts", Tone.WARN
    if change.moves:
        return "moves", Tone.WARN
    return "untouched", Tone.GOOD


def waf_cell(view: ClusterView, plan: PlanView, glyphs: Glyphs) -> Cell:
    """Return WAF before the fault, at present, and after the plan."""
    full = view.waf_full
    now, after = share(view.waf, full, glyphs.dash), share(plan.waf_after, full, glyphs.dash)
    return (
        span(f"{share(plan.waf_before, full, glyphs.dash)} before", Tone.DIM),
        span(f"  {glyphs.arrow} "),
        span(f"{now} now", Tone.WARN if view.waf < plan.waf_after else Tone.PLAIN),
        span(f"  {glyphs.arrow} "),
        span(f"{after} after", Tone.GOOD),
        span("  of full", Tone.DIM),
    )


def waiting_words(view: ClusterView, plan: PlanView) -> str:
    """Return the price of each minute in which ``plan`` is not applied.

    This is the WAF that the plan would add, divided by the WAF of one GPU in the whole cluster.
    Example: if a cluster of 16 GPUs lacks a fifth of its WAF, it loses 3.2 GPU-minutes a minute.
    """
    lost = max(0.0, plan.waf_after - view.waf)
    if lost == 0.0 or view.waf_full <= 0.0:
        return "waiting costs no throughput"
    num_gpus = sum(len(node.workers) for node in view.nodes)
    rate = gpu_minutes(num_gpus * lost / view.waf_full)
    return f"waiting costs {rate} a minute ({share(lost, view.waf_full, '')} of the cluster)"


def decision_line(state: State, width: int, glyphs: Glyphs) -> Line:
    """Return the decision that waits for the operator, or else the newest decided plans."""
    view, plan = state.view, state.pending
    if view is None:
        return Line()
    if state.playback is not None:
        return playback_line(state, width, glyphs)
    if plan is None and state.asked is not None:
        return _question_line(state, state.asked, width, glyphs)
    if plan is None:
        return Line(fit(history_cell(state, glyphs), width, glyphs.ellipsis))
    waited = seconds(state.cluster_now - plan.created_at)
    now, after = (
        share(view.waf, view.waf_full, glyphs.dash),
        share(plan.waf_after, view.waf_full, glyphs.dash),
    )
    keys = _decision_keys(state)
    # The shortest wording that fits comes last; the keys are always on screen.
    moves = ", ".join(_move(change, glyphs) for change in plan.changes if _is_move(change))
    out = f"{', '.join(plan.isolated_nodes)} out" if plan.isolated_nodes else ""
    gain = f"WAF {now} {glyphs.arrow} {after}"
    head = f" {glyphs.warn} {plan.id} r{plan.revision} waits {waited}"
    if plan.apply_at is not None:
        left = seconds(max(0.0, plan.apply_at - state.cluster_now))
        head = f" {glyphs.warn} {plan.id} r{plan.revision} applied in {left}"
    room = width - cells_wide(keys)
    text = head
    for parts in ((out, moves, gain), (out, gain), (gain,), ()):
        text = ": ".join(part for part in (head, ", ".join(filter(None, parts))) if part)
        if cells_wide((span(text),)) <= room:
            break
    spans = (*fit((span(text, Tone.STRONG),), room, glyphs.ellipsis), *keys)
    return Line(spans, Ground.DECISION)


def _question_line(state: State, node: NodeView, width: int, glyphs: Glyphs) -> Line:
    """Return the question whether an unreachable node is lost."""
    waited = seconds(state.cluster_now - (node.asked_at or 0.0))
    keys = _keys(state, ("L", "lost"), ("W", "wait"))
    text = f" {glyphs.warn} is {node.node} lost? waits {waited}: {node.note.removeprefix('lost? ')}"
    room = width - cells_wide(keys)
    return Line((*fit((span(text, Tone.STRONG),), room, glyphs.ellipsis), *keys), Ground.DECISION)


def _decision_keys(state: State) -> Cell:
    return _keys(state, ("A", "approve"), ("X", "reject"))


def _keys(state: State, yes: tuple[str, str], no: tuple[str, str]) -> Cell:
    if state.is_view_only:
        return (span(" view only "),)
    if not state.is_armed:
        return (span(" ctrl+t", Tone.KEY), span(f", then {yes[0]} or {no[0]} "))
    return tuple(
        part
        for key, word in (yes, no)
        for part in (span(f"{' ' if key == yes[0] else ''}<{key}>", Tone.KEY), span(f"{word} "))
    )


def _is_move(change: TaskChangeView) -> bool:
    return change.workers_before != change.workers_after


def _move(change: TaskChangeView, glyphs: Glyphs) -> str:
    return f"{change.task} {change.workers_before} {glyphs.arrow} {change.workers_after} workers"


def history_cell(state: State, glyphs: Glyphs) -> Cell:
    """Return the newest decided plans on one line, newest first."""
    plans = state.view.plans if state.view else []
    decided = [plan for plan in reversed(plans) if plan.state is not PlanState.PENDING]
    if not decided:
        return (span(" no plan waits", Tone.DIM), *_prepared(state))
    spans = [span(" plans ", Tone.DIM)]
    for plan in decided[:MAX_HISTORY]:
        sign, word, tone = PLAN_WORDS[plan.state]
        spans += [
            span(f" {plan.id} ", Tone.STRONG),
            span(f"{getattr(glyphs, sign)} {word}", tone),
            span(f"{_by(plan)}{_ago(state, plan)} ", Tone.DIM),
        ]
    return (*spans, *_prepared(state))


def _prepared(state: State) -> Cell:
    """Return the number of precomputed plans."""
    prepared = state.view.prepared if state.view else None
    if prepared is None or not prepared.is_current:
        return ()
    return (span(f"   plans for {prepared.num_events} next events are ready", Tone.DIM),)


def _by(plan: PlanView) -> str:
    return f" by {plan.approved_by}" if plan.approved_by else ""


def _ago(state: State, plan: PlanView) -> str:
    if plan.decided_at is None:
        return ""
    return f" {seconds(state.cluster_now - plan.decided_at)} ago"


def _label(text: str) -> Cell:
    return (span(f"  {text}".ljust(LABEL_WIDTH), Tone.DIM),)


def _labelled(label: str, text: str, width: int, glyphs: Glyphs, *, max_lines: int) -> list[Line]:
    texts = wrap(text, max(8, width - LABEL_WIDTH - 1), max_lines, glyphs.ellipsis)
    return [
        Line((*_label(label if number == 0 else ""), span(part)))
        for number, part in enumerate(texts)
    ]
