"""Questions to the planner: what it would do if something were different. Nothing changes.

What is supposed is typed as words, for instance ``lose n2,n3 add 8 weight gpt-a=2``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from console.viewmodel.drawing.glyphs import Glyphs
from console.viewmodel.drawing.numbers import latency, plural, share
from console.viewmodel.drawing.text import Line, Span, Tone, span, wrap
from controller.api.views import ClusterView, WhatIfTaskView, WhatIfView
from controller.api.wire import Reply

GRAMMAR: Final = "lose NODE,..  add WORKERS  finish TASK,..  fault TASK,..  weight TASK=NUMBER"
MOST_COMPARED: Final = 3
_MOST_STEPS: Final = 8
_INDENT: Final = 2


class SuppositionError(Exception):
    """The words can't be understood. The text says which, and what to write."""


@dataclass(frozen=True, slots=True)
class SupposedCase:
    """What was supposed, and what the planner would do then."""

    words: str
    answer: WhatIfView | None = None
    refusal: str = ""
    """Why there is no answer; both are empty while it is awaited."""


def supposition(words: str) -> dict[str, Any]:
    """Return the fields of ``AskWhatIf`` for the words that were typed.

    Raises:
        SuppositionError: They can't be understood.
    """
    parts = words.split()
    if not parts:
        raise SuppositionError(f"write what is different: {GRAMMAR}")
    if len(parts) % 2:
        raise SuppositionError(f"{parts[-1]} lacks its value, or its verb: {GRAMMAR}")
    found: dict[str, Any] = {}
    for verb, value in zip(parts[::2], parts[1::2], strict=True):
        read = _READERS.get(verb.lower())
        if read is None:
            raise SuppositionError(f"{verb} is no verb: {GRAMMAR}")
        read(found, value)
    return found


def _names(field: str) -> Callable[[dict[str, Any], str], None]:
    def read(found: dict[str, Any], value: str) -> None:
        names = tuple(filter(None, value.split(",")))
        found[field] = (*found.get(field, ()), *names)

    return read


def _added(found: dict[str, Any], value: str) -> None:
    if not value.isdecimal() or int(value) > 10**6:
        raise SuppositionError(f"add {value}: write a number of workers, for instance add 8")
    found["num_added"] = found.get("num_added", 0) + int(value)


def _weight(found: dict[str, Any], value: str) -> None:
    task, _, number = value.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        weight = -1.0
    if not task or not 0.0 <= weight <= 1e30:
        raise SuppositionError(f"weight {value}: write TASK=NUMBER, for instance gpt-a=2")
    found.setdefault("weights", {})[task] = weight


_READERS: Final[Mapping[str, Callable[[dict[str, Any], str], None]]] = {
    "lose": _names("lost"), "add": _added, "finish": _names("finished"),
    "fault": _names("faulted"), "weight": _weight,
}  # fmt: skip


class SupposedOrder(NamedTuple):
    """An order of an operator that makes a part of a supposition real.

    Attributes:
        verb_id: The verb, as in ``console.viewmodel.verbs``.
        kind: What it is about: "node" or "task".
        name: Name of that node or task.
        text: What the verb takes beside it, empty if it takes nothing or asks for it.
        shell: What to type in a shell for the same.
    """

    verb_id: str
    kind: Literal["node", "task"]
    name: str
    text: str
    shell: str


def orders_of(fields: Mapping[str, Any]) -> tuple[SupposedOrder, ...]:
    """Return the orders that make a supposition real, as far as an operator can.

    A task that is supposed to be over is stopped: that gives its workers away, too, and it can be
    started again.
    """
    return (
        *(
            SupposedOrder("node.drain", "node", node, "", f"unicron drain {node}")
            for node in fields.get("lost", ())
        ),
        *(
            SupposedOrder(
                "task.weight", "task", task, f"{each:g}", f"unicron weight {task} {each:g}"
            )
            for task, each in fields.get("weights", {}).items()
        ),
        *(
            SupposedOrder("task.stop", "task", task, "", f"unicron stop {task}")
            for task in fields.get("finished", ())
        ),
    )


def not_ordered(fields: Mapping[str, Any]) -> str:
    """Return the words of a supposition that no order makes real; empty if there are none."""
    words = [f"fault {task}" for task in fields.get("faulted", ())]
    return "  ".join([f"add {fields['num_added']}", *words] if "num_added" in fields else words)


def answered(words: str, reply: Reply) -> SupposedCase:
    """Return a scenario with the controller's answer."""
    if not reply.is_ok:
        return SupposedCase(words, refusal=reply.message)
    try:
        return SupposedCase(words, WhatIfView.model_validate(reply.data))
    except ValidationError:
        return SupposedCase(
            words, refusal="the controller's answer can't be read: it has another version"
        )


def scenario_lines(
    view: ClusterView, scenario: SupposedCase, width: int, glyphs: Glyphs
) -> list[Line]:
    """Return a scenario with all that the planner says."""
    lines = [Line((span(scenario.words, Tone.STRONG),))]
    if scenario.answer is None:
        text = scenario.refusal or "asked"
        tone = Tone.WARN if scenario.refusal else Tone.DIM
        return lines + _wrapped(text, width, glyphs, tone)
    answer = scenario.answer
    is_reweighed = "weights" in supposition(scenario.words)
    lines += division_lines(view, answer, width, glyphs, is_reweighed=is_reweighed)
    lines += _wrapped(answer.why, width, glyphs, Tone.DIM)
    for name, phase in answer.left_alone.items():
        lines += _wrapped(f"{name} is {phase}: no plan changes it now", width, glyphs, Tone.DIM)
    for number, step in enumerate(answer.steps[:_MOST_STEPS], start=1):
        lines += _wrapped(f"{number} {step}", width, glyphs)
    if len(answer.steps) > _MOST_STEPS:
        rest = len(answer.steps) - _MOST_STEPS
        lines += _wrapped(f"and {plural(rest, 'step')} more", width, glyphs, Tone.DIM)
    return lines


def division_lines(
    view: ClusterView, answer: WhatIfView, width: int, glyphs: Glyphs, *, is_reweighed: bool
) -> list[Line]:
    """Return the WAF and the size of each task, before and after.

    With other weights the cluster's full WAF is another one, too: then only the change is shown.
    """
    if is_reweighed:
        change = answer.waf_after / answer.waf_before - 1 if answer.waf_before else 0.0
        lines = _wrapped(f"WAF {change:+.0%} with these weights", width, glyphs)
    else:
        before = share(view.waf, view.waf_full, glyphs.dash)
        after = share(answer.waf_after, view.waf_full, glyphs.dash)
        lines = _wrapped(f"WAF {before} now {glyphs.arrow} {after} of full", width, glyphs)
    for task in answer.tasks:
        lines += _wrapped(_task_words(task, glyphs), width, glyphs, _tone(task))
    return lines


def _task_words(task: WhatIfTaskView, glyphs: Glyphs) -> str:
    sizes = f"{task.name}  {task.workers_before} {glyphs.arrow} {task.workers} workers"
    if task.workers == 0:
        return f"{sizes}  stops" if task.workers_before else f"{sizes}  has none"
    if not task.moves:
        return f"{sizes}  untouched"
    layouts = task.layout or ""
    if task.layout_before and task.layout_before != task.layout:
        layouts = f"{task.layout_before} {glyphs.arrow} {layouts}"
    pause = f"  pauses {latency(task.transition_s)}" if task.transition_s > 0 else ""
    return f"{sizes}  {layouts}{pause}"


def _tone(task: WhatIfTaskView) -> Tone:
    if task.workers < task.workers_before:
        return Tone.BAD if task.workers == 0 else Tone.WARN
    return Tone.GOOD if task.workers > task.workers_before else Tone.PLAIN


def _wrapped(text: str, width: int, glyphs: Glyphs, tone: Tone = Tone.PLAIN) -> list[Line]:
    room = max(8, width - _INDENT)
    return [
        Line((Span(" " * _INDENT), span(part, tone)))
        for part in (wrap(text, room, 4, glyphs.ellipsis) if text else ())
    ]
