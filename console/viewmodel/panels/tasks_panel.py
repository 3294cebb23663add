"""Training tasks: one row per task, with the loss as number and curve."""

from console.viewmodel.console_state import State, is_recovering
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import short, sparkline, weight
from console.viewmodel.drawing.table_layout import Column, TableRow, TextTable, draw
from console.viewmodel.drawing.text import Cell, Tone, cell, span
from console.viewmodel.panels.transition_steps import transition_words
from console.viewmodel.words import TASK_WORDS, marked, task_letter, task_tone
from controller.api.views import LayoutView, TaskPhase, TaskView

TREND_WIDTH = 20
NARROW_TREND_WIDTH = 10


def task_table(state: State, width: int, glyphs: Glyphs) -> TextTable:
    """Return one row per task, in the controller's order."""
    tasks = state.view.tasks if state.view else []
    trend = TREND_WIDTH if width >= 120 else NARROW_TREND_WIDTH
    columns = (
        Column("name", f"TASKS {len(tasks)}", 0, least=8, most=24),
        Column("phase", "phase", 0, least=10),
        Column("workers", "workers" if width >= 100 else "wk", 3, least=2, align_right=True),
        Column("layout", "layout", 6, least=11),
        Column("iteration", "iteration", 1, least=9, align_right=True),
        Column("loss", "loss", 2, least=6, align_right=True),
        Column("trend", "trend", 4, least=trend),
        Column("speed", "tok/s", 5, least=6, align_right=True),
        Column("checkpoint", "ckpt", 7, least=4, align_right=True),
        Column("generation", "gen", 10, least=3, align_right=True),
        Column("weight", "weight", 11, least=6, align_right=True),
        Column("rerun", "rerun", 9, least=5, align_right=True),
        Column("note", "note", 8, least=10, most=40, is_flexible=True),
    )
    rows = [_row(state, task, index, trend, glyphs) for index, task in enumerate(tasks)]
    return draw(columns, rows, width, glyphs)


def _row(state: State, task: TaskView, position: int, trend: int, glyphs: Glyphs) -> TableRow:
    tone = task_tone(position)
    none = cell(glyphs.dash, Tone.DIM)
    is_running = task.phase is TaskPhase.RUNNING
    cells = {
        "name": (
            span(f"{task_letter(position)} ", tone),
            span(task.name, Tone.STRONG),
        ),
        "phase": _phase(state, task, glyphs),
        "workers": cell(f"{task.workers}"),
        "layout": cell(layout_words(task.layout, glyphs)),
        "iteration": _iteration(task),
        "loss": none if task.loss is None else cell(loss_words(task.loss)),
        "trend": cell(sparkline(task.losses, trend, glyphs.spark), tone),
        "speed": none,
        "checkpoint": cell(f"{task.checkpoint_iteration}", Tone.DIM),
        "generation": cell(f"{task.generation}", Tone.DIM),
        "weight": cell(weight(task.weight), Tone.DIM),
        "rerun": cell(f"{task.num_rerun_iterations}", Tone.DIM),
    }
    if task.tokens_per_s is not None and is_running:
        cells["speed"] = cell(short(task.tokens_per_s))
    note = task.note
    if not note and task.transition and not task.transition.is_done:
        note = transition_words(task.transition)
    if note:
        cells["note"] = cell(note, Tone.DIM if is_running else Tone.WARN)
    return TableRow(task.name, cells)


def _phase(state: State, task: TaskView, glyphs: Glyphs) -> Cell:
    sign, text, tone = TASK_WORDS[task.phase]
    # The same phase is routine at the first start and part of the outage after a fault.
    return marked((sign, text, Tone.WARN if is_recovering(state, task) else tone), glyphs)


def _iteration(task: TaskView) -> Cell:
    target = "" if task.target_iterations is None else f"/{task.target_iterations}"
    return (span(f"{task.iteration}"), span(target, Tone.DIM))


def loss_words(loss: float) -> str:
    """Return a loss in six cells where it is of a sane size."""
    return f"{loss:.3f}" if abs(loss) < 100 else f"{loss:.3g}"


def layout_words(layout: LayoutView | None, glyphs: Glyphs) -> str:
    """Return a layout as Megatron's users write it."""
    if layout is None:
        return glyphs.dash
    return f"tp{layout.tp} pp{layout.pp} dp{layout.dp}"
