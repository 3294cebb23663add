"""Orders of an operator about a node, a task or a plan: consequence, victims, confirmation.

A verb is bound to one subject, as it was when the dialog opened. Those with a low danger are
confirmed by ``y``; the others by typing the subject's name. The texts say what happens next, as the
shell's help does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from console.viewmodel.activity import SeenEffect
from console.viewmodel.details.detail import DetailKind, DetailSubject
from console.viewmodel.drawing.numbers import seconds
from console.viewmodel.drill_targets import DrillTarget, hit_lines
from controller.api.views import ClusterView, NodeView, PlanState, PlanView, TaskPhase, TaskView
from controller.api.wire import (
    MOST_SUBMITTED,
    Command,
    DeferPlan,
    LimitTask,
    OrderNode,
    OrderTask,
    ResumeAutomation,
    SubmitTasks,
    UncordonNode,
)

_MINUTE_S: Final = 60.0
_MOST_MINUTES: Final = 10_000.0


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text that a verb takes.

    Attributes:
        label: What is asked.
        default: What stands in the field at first.
        mistake: Returns what is wrong with a text; empty if it can be sent.
    """

    label: str
    default: str = ""
    mistake: Callable[[str], str] = lambda _text: ""


@dataclass(frozen=True, slots=True)
class Verb:
    """One order of an operator.

    Attributes:
        id: The command's name in the registry.
        title: The question, with ``{name}``.
        button: The word that does it.
        effect: What happens next, in one or two sentences.
        subject: What it is about; None if it is about the cluster.
        is_high: Whether the subject's name must be typed.
        text: What it takes beside the subject; None if it takes nothing.
        why_not: Returns why it can't be ordered for the subject now, or an empty string.
        hits: Returns what it hits, a sentence each.
        supposes: Returns, from the name and the text, what the planner is asked about it before the
            confirmation: fields of ``AskWhatIf``. None if it moves nobody.
        command: Makes the request from its common fields, the view, the name and the text.
        done: Returns what in a view shows that it was done, or an empty string. None if the
            reply says it.
    """

    id: str
    title: str
    button: str
    effect: str
    subject: DetailKind | None
    is_high: bool
    why_not: Callable[[ClusterView, str], str]
    command: Callable[[dict[str, Any], ClusterView, str, str], Command]
    done: Callable[[ClusterView, str, str], str] | None
    hits: Callable[[ClusterView, str], list[str]] = lambda _view, _name: []
    text: AskedText | None = None
    supposes: Callable[[str, str], dict[str, Any]] | None = None


def node_of(view: ClusterView, name: str) -> NodeView | None:
    """Return a node by its name."""
    return next((each for each in view.nodes if each.node == name), None)


def task_of(view: ClusterView, name: str) -> TaskView | None:
    """Return a task by its name."""
    return next((each for each in view.tasks if each.name == name), None)


def plan_of(view: ClusterView, name: str) -> PlanView | None:
    """Return a plan by its name."""
    return next((each for each in view.plans if each.id == name), None)


def subject_state(view: ClusterView, subject: DetailSubject) -> str:
    """Return what a dialog about a subject is bound to: if it changes, the dialog freezes."""
    name = subject.name
    match subject.kind:
        case "node":
            node = node_of(view, name)
            if node is None:
                return "gone"
            out = "isolated" if node.isolated else "in service"
            return f"{node.condition.value}, {node.upkeep.state if node.upkeep else out}"
        case "task":
            task = task_of(view, name)
            return f"{task.phase.value}, weight {task.weight:g}" if task else "gone"
        case "plan":
            plan = plan_of(view, name)
            return f"{plan.state.value}, revision {plan.revision}" if plan else "gone"
        case "incident":
            return ""  # no verb is about one


# --- nodes ---------------------------------------------------------------------------------------


def _node_hits(view: ClusterView, name: str) -> list[str]:
    return hit_lines(view, DrillTarget(name))


def _not_ordered(state: str) -> Callable[[ClusterView, str], str]:
    """Return why a node can't get an order whose state it has already."""

    def why_not(view: ClusterView, name: str) -> str:
        node = node_of(view, name)
        if node is None:
            return f"there is no node {name} any more"
        if node.upkeep is not None and node.upkeep.state == state:
            return f"{name} is {state} already"
        return ""

    return why_not


def _ordered(*states: str) -> Callable[[ClusterView, str, str], str]:
    def done(view: ClusterView, name: str, _text: str) -> str:
        node = node_of(view, name)
        upkeep = node.upkeep if node is not None else None
        return f"{name} is {upkeep.state}" if upkeep and upkeep.state in states else ""

    return done


def _isolated(view: ClusterView, name: str, _text: str) -> str:
    node = node_of(view, name)
    return f"{name} is isolated" if node is not None and node.isolated else ""


def _not_isolated(view: ClusterView, name: str) -> str:
    node = node_of(view, name)
    if node is None:
        return f"there is no node {name} any more"
    return f"{name} is isolated already" if node.isolated else ""


def _is_out(view: ClusterView, name: str) -> str:
    node = node_of(view, name)
    if node is None:
        return f"there is no node {name} any more"
    gpus = any(each.isolated for each in node.workers)
    return "" if node.isolated or node.upkeep or gpus else f"{name} is in service already"


def _in_service(view: ClusterView, name: str, _text: str) -> str:
    node = node_of(view, name)
    if node is None:
        return ""
    is_back = not (node.isolated or (node.upkeep and node.upkeep.state != "returning"))
    return f"{name} is {'returning' if node.upkeep else 'in service'}" if is_back else ""


def _order(order: str) -> Callable[[dict[str, Any], ClusterView, str, str], Command]:
    def command(head: dict[str, Any], _view: ClusterView, name: str, text: str) -> Command:
        return OrderNode(**head, order=order, node=name, reason=text)  # type: ignore[arg-type]

    return command


def _return(head: dict[str, Any], view: ClusterView, name: str, _text: str) -> Command:
    node = node_of(view, name)
    if node is not None and node.upkeep is not None and node.upkeep.state == "repair":
        return OrderNode(**head, order="return", node=name)
    return UncordonNode(**head, node=name)


# --- tasks ---------------------------------------------------------------------------------------


def _task_hits(view: ClusterView, name: str) -> list[str]:
    task = task_of(view, name)
    if task is None or task.workers == 0:
        return [f"{name} has no workers"]
    nodes = [each.node for each in view.nodes if any(slot.task == name for slot in each.workers)]
    word = "worker" if task.workers == 1 else "workers"
    return [f"{task.workers} {word} of {name} on {', '.join(nodes)}"]


def _is_stoppable(view: ClusterView, name: str) -> str:
    task = task_of(view, name)
    if task is None:
        return f"there is no task {name} any more"
    is_over = task.phase in (TaskPhase.STOPPED, TaskPhase.FINISHED)
    return f"{name} is {task.phase.value} already" if is_over else ""


def _is_startable(view: ClusterView, name: str) -> str:
    task = task_of(view, name)
    if task is None:
        return f"there is no task {name} any more"
    is_so = task.phase in (TaskPhase.STOPPED, TaskPhase.HELD)
    return "" if is_so else f"{name} is {task.phase.value}: only a stopped or held task is started"


def _stopped(view: ClusterView, name: str, _text: str) -> str:
    task = task_of(view, name)
    return f"{name} is stopped" if task is not None and task.phase is TaskPhase.STOPPED else ""


def _started(view: ClusterView, name: str, _text: str) -> str:
    task = task_of(view, name)
    is_so = task is not None and task.phase not in (TaskPhase.STOPPED, TaskPhase.HELD)
    return f"{name} is {task.phase.value}" if is_so and task is not None else ""


def _task_order(order: str) -> Callable[[dict[str, Any], ClusterView, str, str], Command]:
    def command(head: dict[str, Any], _view: ClusterView, name: str, _text: str) -> Command:
        return OrderTask(**head, order=order, task=name)  # type: ignore[arg-type]

    return command


def _is_weighable(view: ClusterView, name: str) -> str:
    task = task_of(view, name)
    if task is None:
        return f"there is no task {name} any more"
    return f"{name} has finished" if task.phase is TaskPhase.FINISHED else ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0.0 < number < 1e30 else None


def _weight_mistake(text: str) -> str:
    return "" if _number(text) is not None else "write a number above 0, for instance 2.5"


def _weigh(head: dict[str, Any], _view: ClusterView, name: str, text: str) -> Command:
    return LimitTask(**head, task=name, weight=float(text))


def _weighed(view: ClusterView, name: str, text: str) -> str:
    task = task_of(view, name)
    is_so = task is not None and task.weight == float(text)
    return f"the weight of {name} is {float(text):g}" if is_so else ""


# --- plans and the cluster -----------------------------------------------------------------------


def _counts_down(view: ClusterView, name: str) -> str:
    plan = plan_of(view, name)
    if plan is None or plan.state is not PlanState.PENDING:
        return f"{name} does not wait any more"
    return "" if plan.apply_at is not None else f"{name} waits without an end"


def _minutes_mistake(text: str) -> str:
    minutes = _number(text)
    is_ok = minutes is not None and minutes <= _MOST_MINUTES
    return "" if is_ok else f"write minutes, at most {_MOST_MINUTES:.0f}"


def _defer(head: dict[str, Any], view: ClusterView, name: str, text: str) -> Command:
    plan = plan_of(view, name)
    revision = plan.revision if plan else 0
    return DeferPlan(**head, plan=name, revision=revision, for_s=float(text) * _MINUTE_S)


def _deferred(view: ClusterView, name: str, text: str) -> str:
    plan = plan_of(view, name)
    left = plan.apply_at - view.now if plan is not None and plan.apply_at is not None else 0.0
    # Shown once the countdown is nearly as long as was asked for.
    is_so = left > 0.9 * float(text) * _MINUTE_S
    return f"{name} is applied in {seconds(left)} at the earliest" if is_so else ""


def _is_stormy(view: ClusterView, _name: str) -> str:
    return "" if view.automation_stopped else "policy applies plans already"


def _calm(view: ClusterView, _name: str, _text: str) -> str:
    return "" if view.automation_stopped else "policy applies plans again"


def _file_mistake(text: str) -> str:
    try:
        content = Path(text).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError, RuntimeError) as error:
        return f"it can't be read: {getattr(error, 'strerror', None) or 'is no text'}".lower()
    is_long = len(content) > MOST_SUBMITTED
    return f"it has more than {MOST_SUBMITTED:,} characters" if is_long else ""


def _submit(head: dict[str, Any], _view: ClusterView, _name: str, text: str) -> Command:
    path = Path(text).expanduser().absolute()
    content = path.read_text(encoding="utf-8")
    return SubmitTasks(**head, name=path.name, text=content, folder=str(path.parent))


_REASON: Final = AskedText("why, for the record (may be empty)")


def _without_node(name: str, _text: str) -> dict[str, Any]:
    return {"lost": (name,)}


VERBS: Final = (
    Verb(
        "node.cordon", "Cordon {name}?", "Cordon",
        "Nothing new is placed on it. What is there stays.",
        "node", False, _not_ordered("cordoned"), _order("cordon"), _ordered("cordoned"),
        _node_hits, _REASON,
    ),
    Verb(
        "node.drain", "Drain {name}?", "Drain",
        "A plan moves its tasks elsewhere: each finishes its iteration first. It is refused if a task would"
        " have to stop for it.",
        "node", True, _not_ordered("drained"), _order("drain"), _ordered("draining", "drained"),
        _node_hits, _REASON, _without_node,
    ),
    Verb(
        "node.isolate", "Isolate {name}?", "Isolate",
        "Its ranks are ended at once, and a plan divides the remaining nodes.",
        "node", True, _not_isolated, _order("isolate"), _isolated, _node_hits, _REASON,
        _without_node,
    ),
    Verb(
        "node.repair", "Put {name} under repair?", "Repair",
        "It may come and go without an incident. It must not be in use: drain it first.",
        "node", False, _not_ordered("repair"), _order("repair"), _ordered("repair"),
        _node_hits, _REASON,
    ),
    Verb(
        "node.return", "Return {name} to service?", "Return",
        "Its checks must pass. After a repair it returns once it is in contact.",
        "node", False, _is_out, _return, _in_service,
    ),
    Verb(
        "task.stop", "Stop {name}?", "Stop",
        "Its ranks finish the iteration, save a checkpoint and end. Its workers go to other tasks, and it stays"
        " stopped until it is started.",
        "task", True, _is_stoppable, _task_order("stop"), _stopped, _task_hits,
        supposes=lambda name, _text: {"finished": (name,)},
    ),
    Verb(
        "task.start", "Start {name}?", "Start",
        "A stopped task waits for a plan to give it workers. A held task is tried again.",
        "task", False, _is_startable, _task_order("start"), _started,
    ),
    Verb(
        "task.weight", "Give {name} another weight?", "Set",
        "A plan gives workers to where weight times FLOP/s is highest. The order holds until the cluster file"
        " gets another weight.",
        "task", False, _is_weighable, _weigh, _weighed, _task_hits,
        AskedText("weight", "", _weight_mistake),
        lambda name, text: {"weights": {name: float(text)}},
    ),
    Verb(
        "plan.defer", "Hold {name}?", "Hold",
        "The plan is not applied by policy before this time is over. You may still approve or reject it.",
        "plan", False, _counts_down, _defer, _deferred,
        text=AskedText("for so many minutes from now", "10", _minutes_mistake),
    ),
    Verb(
        "cluster.automation", "Let policy apply plans again?", "Resume",
        "A storm of faults has stopped that. Plans that wait count down again.",
        None, False, _is_stormy, lambda head, _view, _name, _text: ResumeAutomation(**head), _calm,
    ),
    Verb(
        "cluster.submit", "Submit tasks?", "Submit",
        "A file with [[task]] tables, as in a cluster file. Its paths are relative to its folder. The tasks are"
        " queued until a plan gives them workers.",
        None, False, lambda _view, _name: "", _submit, None,
        text=AskedText("file", "", _file_mistake),
    ),
)  # fmt: skip

VERB_BY_ID: Final = {verb.id: verb for verb in VERBS}


def prefilled(verb: Verb, text: str) -> Verb:
    """Return a verb whose field has a text already."""
    if verb.text is None or not text:
        return verb
    return replace(verb, text=replace(verb.text, default=text))


def effect_of(verb: Verb, name: str, text: str) -> SeenEffect | None:
    """Return what shows in later views that a verb was carried out; None if the reply says it."""
    done = verb.done
    return None if done is None else SeenEffect(lambda view: done(view, name, text))
