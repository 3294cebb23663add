"""A task: its settings, its progress, where each of its ranks is, its transition and its faults."""

from typing import Final

from console.viewmodel.console_state import State
from console.viewmodel.details.labelled import commands, events_of, label_line, labelled, title
from console.viewmodel.drawing.charts import ChartColumn, column_chart
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, plural, short, sparkline
from console.viewmodel.drawing.text import Cell, Line, Span, Tone, fit, span
from console.viewmodel.panels.incidents_panel import incident_line
from console.viewmodel.panels.tasks_panel import layout_words, loss_words
from console.viewmodel.panels.transition_steps import transition_lines
from console.viewmodel.words import TASK_WORDS, marked
from controller.api.views import NodeCondition, NodeView, TaskView, WorkerView
from profiles.layout import Layout

_CURVE: Final = 40
_RANK_WIDTH: Final = 22
_AXIS: Final = 9
_CHART_ROWS: Final = 5
_Place = tuple[NodeView, WorkerView]


def task_lines(state: State, name: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return all that is known of a task."""
    view = state.view
    task = next((each for each in view.tasks if each.name == name), None) if view else None
    if view is None or task is None:
        return [Line((span(f"there is no task {name} any more", Tone.WARN),))]
    lines = [
        label_line("phase", marked(TASK_WORDS[task.phase], glyphs)),
        *labelled("why", task.note, width, glyphs, Tone.WARN),
        *_settings(task, width, glyphs),
        *_progress(task, width, glyphs),
        *_iteration_times(task, width, glyphs),
        *_topology(state, task, width, glyphs),
        *_state_sources(task, width, glyphs),
        Line(),
        title("TRANSITION"),
        *transition_lines(state, name, width, glyphs),
    ]
    incidents = [each for each in view.incidents if each.task == name]
    lines += [Line(), title(f"INCIDENTS {len(incidents)}")]
    lines += [incident_line(state, each, width, glyphs) for each in reversed(incidents)]
    verbs = (f"unicron explain {name}", f"unicron logs {name} --follow", f"unicron stop {name}")
    return [*lines, *commands(verbs), *events_of(state, [name], width, glyphs)]


def _settings(task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    most = "or more" if task.max_workers is None else f"to {task.max_workers}"
    keeps = ", keeps running" if task.keeps_running else ""
    orders = "; ".join(
        f"{order.what}{'' if order.value is None else f' {order.value:g}'} by {order.by}"
        for order in task.orders
    )
    size = f"{task.workers}, of {task.min_workers} {most}{keeps}"
    return [
        *labelled("workers", size, width, glyphs),
        *labelled(
            "layout",
            f"{layout_words(task.layout, glyphs)}, generation {task.generation}",
            width,
            glyphs,
        ),
        *labelled("weight", f"{task.weight:g}", width, glyphs),
        *labelled("orders", orders, width, glyphs),
        *labelled("new ranks", "; ".join(task.unsupported), width, glyphs, Tone.WARN),
    ]


def _progress(task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    target = "" if task.target_iterations is None else f" of {task.target_iterations}"
    loss = glyphs.dash if task.loss is None else loss_words(task.loss)
    speed = glyphs.dash if task.flops_per_s is None else _flops(task.flops_per_s)
    tokens = "" if task.tokens_per_s is None else f", {short(task.tokens_per_s)} tokens/s"
    curve = sparkline(task.losses, min(_CURVE, max(8, width - 30)), glyphs.spark)
    return [
        *labelled("iteration", f"{task.iteration}{target}, {task.num_rerun_iterations} run again", width, glyphs),
        label_line("loss", (span(f"{loss}  "), span(curve, Tone.DIM))),
        *labelled("speed", f"{speed}{tokens}", width, glyphs),
    ]  # fmt: skip


def _state_sources(task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return where the state of a lost rank comes from, nearest first."""
    heading = Line(
        (Span("STATE OF A LOST RANK  ", Tone.TITLE), span("the nearest source first", Tone.DIM))
    )
    if task.is_command:
        text = "the program's own checkpoints, of which nothing is known here"
        return [Line(), heading, *labelled("disk", text, width, glyphs)]
    num_others = task.layout.dp - 1 if task.layout else 0
    if task.is_sharded:
        peer = "none: the optimizer state is sharded over the replicas"
    elif num_others > 0:
        peer = f"{plural(num_others, 'other replica')} with the same state: no iteration runs again"
    else:
        peer = "none: there is one replica"
    memory = (
        "a copy in another rank's process" if task.makes_copies else "none: memory_interval is 0"
    )
    disk = "none yet: training would begin from the seed"
    if task.checkpoint_iteration > 0:
        behind = task.iteration - task.checkpoint_iteration
        within = f", complete within {latency(task.checkpoint_s)}" if task.checkpoint_s else ""
        disk = f"iteration {task.checkpoint_iteration}, {plural(behind, 'iteration')} ago{within}"
    return [
        Line(),
        heading,
        *labelled("peer", peer, width, glyphs),
        *labelled("memory", memory, width, glyphs),
        *labelled("disk", disk, width, glyphs),
    ]


def _iteration_times(task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the newest iterations as columns, with the limit above which one is late."""
    pace = task.pace
    if pace is None:
        none = Line((span("not measured yet: no average of this layout is known", Tone.DIM),))
        return [Line(), title("ITERATION TIMES"), none]
    words = (
        f"average {latency(pace.average_s)}, late above {latency(pace.late_s)},"
        f" looked at as a hang after {latency(pace.hang_s)}"
    )
    heading = Line((span("ITERATION TIMES  ", Tone.TITLE), span(words, Tone.DIM)))
    top_s = 1.25 * max(pace.late_s, *pace.durations_s)
    columns: list[ChartColumn] = [
        (each / top_s, Tone.WARN if each > pace.late_s else Tone.GOOD)
        for each in pace.durations_s[-max(8, width - _AXIS) :]
    ]
    spread = [one for column in columns for one in (column, column)] if width > 90 else columns
    chart = column_chart(spread, _CHART_ROWS, glyphs.spark, (pace.late_s / top_s, glyphs.rule))
    labels = [latency(top_s), *[""] * (_CHART_ROWS - 2), "0"]
    rows = [
        Line((Span(f"{label:>{_AXIS - 1}} ", Tone.DIM), *line.spans))
        for label, line in zip(labels, chart, strict=True)
    ]
    return [Line(), heading, *rows]


def _flops(flops_per_s: float) -> str:
    text = short(flops_per_s)
    return f"{text[:-1]} {text[-1]}FLOP/s" if text[-1].isalpha() else f"{text} FLOP/s"


def _topology(state: State, task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    """Return replicas, stages and ranks: a row for each stage of a replica."""
    places = _places(state, task.name)
    if task.layout is None or not places:
        return [Line(), title("RANKS"), Line((span("no rank runs", Tone.DIM),))]
    layout = Layout(task.layout.tp, task.layout.pp, task.layout.dp)
    rows: dict[tuple[int, int], list[int]] = {}
    for number in range(layout.num_workers):
        rows.setdefault((layout.dp_rank(number), layout.pp_rank(number)), []).append(number)
    lines = [Line(), title(f"RANKS {len(places)}")]
    per_row = max(1, (width - 22) // _RANK_WIDTH)
    for (replica, stage), numbers in sorted(rows.items()):
        cells = [_rank(task, number, places.get(number), glyphs) for number in numbers]
        head = f"replica {replica}" if stage == 0 else ""
        for first in range(0, len(cells), per_row):
            label = f"{head:<12}{f'stage {stage}':<10}" if first == 0 else " " * 22
            spans = [part for cell in cells[first : first + per_row] for part in cell]
            lines.append(Line((Span(label, Tone.DIM), *spans)))
    return lines


def _places(state: State, task: str) -> dict[int, _Place]:
    nodes = state.view.nodes if state.view else []
    return {
        slot.global_rank: (node, slot)
        for node in nodes
        for slot in node.workers
        if slot.task == task and slot.global_rank is not None
    }


def _rank(task: TaskView, number: int, place: _Place | None, glyphs: Glyphs) -> Cell:
    """Return a rank: its sign, its number, its place, and by how much it is behind."""
    if place is None:
        return fit((span(f"{glyphs.bad} {number} gone", Tone.BAD),), _RANK_WIDTH, glyphs.ellipsis)
    node, slot = place
    behind = 0 if slot.iteration is None else task.iteration - slot.iteration
    sign, tone = glyphs.ok, Tone.GOOD
    if node.condition is NodeCondition.LOST:
        sign, tone = glyphs.bad, Tone.BAD
    elif node.condition is NodeCondition.UNREACHABLE:
        sign, tone = glyphs.ask, Tone.WARN
    elif slot.pid is None:
        sign, tone = glyphs.busy, Tone.BUSY
    elif behind > 1:
        sign, tone = glyphs.warn, Tone.WARN
    late = f" -{behind}" if behind > 1 else ""
    text = (span(f"{sign} ", tone), span(f"{number} {node.node}:{slot.worker}{late}"))
    return fit(text, _RANK_WIDTH, glyphs.ellipsis)
