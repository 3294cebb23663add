"""Requests drills when they are due, and reports when a headless run has settled."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from controller.clock import SystemClock
from controller.core.events import DrillRequested, EventBody
from controller.core.instructions import AnswerRequest
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.drills.drill_arguments import ScheduledDrill
from nodeagent.protocol.ids import TaskId

ACTOR = "schedule"
_PREFIX = "drill-"

ATTACH_LIMIT_S: Final = 5.0
"""How long a command may take to attach once its iteration is due; nodes report it every second."""

MUTE_LIMIT_S: Final = 30.0
"""How long a command may run without a line about an iteration, after ``command_settle_s``."""

_NO_ITERATIONS: Final = (
    "no iteration of it was seen, so that none is reached: have it print the lines that"
    " docs/bring-your-own.md describes, or attach, or leave the drill out"
)


class DrillSchedule:
    """Posts each drill once its task has committed the drill's iteration.

    The core may refuse a drill: the task does not run at that moment, or the target does not exist.
    Then the drill is posted again after a task or node has changed its state. If the task ends
    first, the drill is missed. If its program can't stage it, or shows no iterations, it is
    refused: a program gets a moment to attach and to print, since it may just have begun.

    Attributes:
        missed: Drills that were not carried out before their tasks ended.
        refused: Drills that can't be carried out, each with the reason.
    """

    def __init__(
        self,
        drills: Sequence[ScheduledDrill],
        post: Callable[[EventBody], None],
        now: Callable[[], float] | None = None,
    ) -> None:
        self._waiting = {f"{_PREFIX}{number}": drill for number, drill in enumerate(drills, 1)}
        self._situation_at_post: dict[str, object] = {}
        """The state of tasks and nodes when each drill was last posted."""
        self._unanswered: set[str] = set()
        self._post = post
        self._now = now or SystemClock().now
        self._unsupported_since: dict[str, float] = {}
        """When the core first refused each drill because its program can't stage it."""
        self._reasons: dict[str, str] = {}
        self._mute_since: dict[TaskId, float] = {}
        """When each command without an iteration was first seen to run."""
        self.missed: list[ScheduledDrill] = []
        self.refused: list[tuple[ScheduledDrill, str]] = []

    @property
    def is_done(self) -> bool:
        """Whether every drill was carried out, missed or refused."""
        return not self._waiting

    def post_due(self, state: ClusterState) -> None:
        """Post the drills that are due."""
        situation = (
            tuple(
                (task.lifecycle.phase, task.generation, _num_attached(task))
                for task in state.tasks.values()
            ),
            tuple(node.contact.condition for node in state.nodes.values()),
        )
        for name, drill in list(self._waiting.items()):
            task = state.tasks[drill.task]
            if reason := self._why_refused(name, task):
                self.refused.append((self._waiting.pop(name), reason))
            elif task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.HELD}:
                self.missed.append(self._waiting.pop(name))
            elif (
                task.progress.iteration >= drill.iteration
                and task.lifecycle.phase is TaskPhase.RUNNING
                and name not in self._unanswered
                and self._situation_at_post.get(name) != situation
            ):
                self._situation_at_post[name] = situation
                self._unanswered.add(name)
                self._post(_request(name, drill))

    def note_answer(self, answer: AnswerRequest) -> None:
        """Note that the core accepted or refused a drill."""
        self._unanswered.discard(answer.request_id)
        if answer.is_ok:
            self._waiting.pop(answer.request_id, None)
        elif answer.code == "unsupported" and answer.request_id in self._waiting:
            self._unsupported_since.setdefault(answer.request_id, self._now())
            self._reasons[answer.request_id] = answer.message

    def _why_refused(self, name: str, task: TaskState) -> str:
        """Return why the drill will never be carried out; empty while it may be."""
        since = self._unsupported_since.get(name, math.inf)
        if self._now() - since >= ATTACH_LIMIT_S and name not in self._unanswered:
            return self._reasons[name]
        if not task.spec.is_command or task.progress.iteration > 0:
            return ""
        if task.lifecycle.phase is TaskPhase.FINISHED:
            return f"{task.spec.task} has finished, and {_NO_ITERATIONS}"
        if task.lifecycle.phase is not TaskPhase.RUNNING:
            self._mute_since.pop(task.spec.task, None)
            return ""
        mute_s = self._now() - self._mute_since.setdefault(task.spec.task, self._now())
        return f"{task.spec.task} runs, and {_NO_ITERATIONS}" if mute_s >= MUTE_LIMIT_S else ""


def _num_attached(task: TaskState) -> int:
    return sum(rank.is_attached for rank in task.ranks.values())


def _request(name: str, drill: ScheduledDrill) -> DrillRequested:
    return DrillRequested(
        request_id=name,
        actor=ACTOR,
        drill=drill.kind,
        task=drill.task,
        global_rank=drill.global_rank,
        node=drill.node,
    )


def why_stuck(state: ClusterState) -> str | None:
    """Return why no unfinished task trains or will train; None if one does.

    The state may pass: a node may return, or an operator may ask for a plan.
    """
    unfinished = [
        task for task in state.tasks.values() if task.lifecycle.phase is not TaskPhase.FINISHED
    ]
    idle = {TaskPhase.HELD, TaskPhase.STOPPED, TaskPhase.WAITING, TaskPhase.PARKING}
    if not unfinished or not all(task.lifecycle.phase in idle for task in unfinished):
        return None
    return "; ".join(
        f"{task.spec.task} is {task.lifecycle.phase}"
        + (f" ({why})" if (why := task.lifecycle.note or _why_held(state, task)) else "")
        for task in unfinished
    )


def _why_held(state: ClusterState, task: TaskState) -> str:
    """Return the reason of the newest incident for which a task is held."""
    reasons = [
        incident.cause.reason
        for incident in state.incidents.all
        if incident.task == task.spec.task and incident.state is IncidentState.HELD
    ]
    return reasons[-1] if reasons and task.lifecycle.phase is TaskPhase.HELD else ""


def are_all_held(state: ClusterState) -> bool:
    """Return whether each unfinished task is held, and no plan is there that would start one."""
    phases = {task.lifecycle.phase for task in state.tasks.values()} - {TaskPhase.FINISHED}
    return phases == {TaskPhase.HELD} and state.plans.pending() is None


def has_settled(state: ClusterState) -> bool:
    """Return whether all tasks have finished, no incident is open and no node is unreachable.

    A command task ends on its own, so it may still run.
    """
    return (
        all(
            task.lifecycle.phase is TaskPhase.FINISHED
            or (task.spec.is_command and task.lifecycle.phase is TaskPhase.RUNNING)
            for task in state.tasks.values()
        )
        and all(
            incident.state in {IncidentState.RESOLVED, IncidentState.HELD}
            for incident in state.incidents.all
        )
        and all(
            node.contact.condition is not NodeCondition.UNREACHABLE for node in state.nodes.values()
        )
    )
