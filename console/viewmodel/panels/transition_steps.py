"""The steps of a task's transition to its next generation, predicted beside actual.

Shown is the running transition, or the newest. Below it stand the source of the state after the
last fault, the micro-batches that were kept, and the reasons if a task cannot recover in process.
"""

from console.viewmodel.console_state import State
from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, seconds
from console.viewmodel.drawing.text import Cell, Line, Span, Tone, cells_wide, span, wrap
from console.viewmodel.words import marked, task_letter, task_tone
from controller.api.views import IncidentView, StepView, TaskView, TransitionView

_DONE = ("done", "done", Tone.GOOD)
_RUNNING = ("busy", "running", Tone.BUSY)
_TO_COME = ("idle", "to come", Tone.DIM)

_WORD_WIDTH = 10
_NAME_WIDTH = 15
_TIME_WIDTH = 8
_ROOMY = 64
"""From this width on it is said by how much a step took longer than predicted."""


def transition_lines(state: State, name: str | None, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the transitions of the task ``name``, or of all tasks."""
    tasks = state.view.tasks if state.view else []
    lines: list[Line] = []
    for position, task in enumerate(tasks):
        if name in (None, task.name):
            lines += [Line()] if lines else []
            lines += _task_lines(state, task, position, width, glyphs)
    return lines or [Line((span("the task no longer exists", Tone.DIM),))]


def transition_words(transition: TransitionView) -> str:
    """Return a transition that is under way in one line: ``restart: form, 0.3 s of 1.4 s``."""
    step = next((one.name for one in transition.steps if one.actual_s is None), "last step")
    took, predicted = seconds(transition.actual_s), seconds(transition.predicted_s)
    return f"{transition.kind}: {step}, {took} of {predicted}"


def _task_lines(
    state: State, task: TaskView, position: int, width: int, glyphs: Glyphs
) -> list[Line]:
    letter = span(f"{task_letter(position)} ", task_tone(position))
    head = (letter, span(task.name, Tone.STRONG), span(f"  generation {task.generation}  "))
    transition, limits = task.transition, _limit_lines(task, width, glyphs)
    if transition is None:
        return [Line((*head, span("no transition yet", Tone.DIM))), *limits]
    sign = marked(_DONE if transition.is_done else _RUNNING, glyphs)
    lines = [Line((*head, span(f"{transition.kind}  "), *sign))]
    running = next((step for step in transition.steps if step.actual_s is None), None)
    for step in transition.steps:
        is_running = step is running and not transition.is_done
        lines.append(Line(_step_cell(step, width, glyphs, is_running=is_running)))
    total = StepView(name="total", predicted_s=transition.predicted_s, actual_s=transition.actual_s)
    blank = Span("  " + " " * _WORD_WIDTH)
    lines.append(Line((blank, *_times_cell(total, Tone.STRONG, width, glyphs))))
    incident = _last_fault(state, task)
    return lines + (_resume_lines(incident, width, glyphs) if incident else []) + limits


def _step_cell(step: StepView, width: int, glyphs: Glyphs, *, is_running: bool) -> Cell:
    word = _DONE if step.actual_s is not None else _RUNNING if is_running else _TO_COME
    sign = marked(word, glyphs)
    pad = Span(" " * max(0, _WORD_WIDTH - cells_wide(sign)))
    return (Span("  "), *sign, pad, *_times_cell(step, Tone.PLAIN, width, glyphs))


def _times_cell(step: StepView, tone: Tone, width: int, glyphs: Glyphs) -> Cell:
    took = "" if step.actual_s is None else latency(step.actual_s)
    over_s = (step.actual_s or 0.0) - step.predicted_s
    sign = glyphs.warn if over_s > 0 else " "
    spans = (
        span(f"{step.name:<{_NAME_WIDTH}}", tone),
        span(f"{took:>{_TIME_WIDTH}}", tone),
        span(f" {sign} ", Tone.WARN),
        span(f"predicted {latency(step.predicted_s):>6}", Tone.DIM),
    )
    if over_s <= 0 or width < _ROOMY:
        return spans
    return (*spans, span(f"  +{latency(over_s)}", Tone.WARN))


def _last_fault(state: State, task: TaskView) -> IncidentView | None:
    incidents = state.view.incidents if state.view else []
    return next(
        (each for each in reversed(incidents) if each.task == task.name and each.resume), None
    )


def _resume_lines(incident: IncidentView, width: int, glyphs: Glyphs) -> list[Line]:
    source = incident.state_source or glyphs.dash
    saved, again = incident.saved_micro_batches, incident.recomputed_micro_batches
    kept = f"micro-batches {saved} kept, {again} computed again"
    head = f"last fault {incident.id}: state from {source}, {kept}"
    return [
        *_wrapped(head, Tone.PLAIN, width, glyphs),
        *_wrapped(incident.resume, Tone.DIM, width, glyphs),
    ]


def _limit_lines(task: TaskView, width: int, glyphs: Glyphs) -> list[Line]:
    if not task.unsupported:
        return []
    text = "a fault restarts all its processes from disk: " + "; ".join(task.unsupported)
    return _wrapped(text, Tone.WARN, width, glyphs)


def _wrapped(text: str, tone: Tone, width: int, glyphs: Glyphs) -> list[Line]:
    parts = wrap(text, max(8, width - 2), 3, glyphs.ellipsis)
    return [Line((span(f"  {part}", tone),)) for part in parts]
