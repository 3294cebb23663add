"""What-if planning: the core's own functions on a changed copy of the state.

A supposition changes the copy as the event would: a lost node is declared lost and its tasks are
stranded, a finished task gives its workers back. ``planning.plans.propose`` then makes the plan
that the core would propose, placement included. Several suppositions are one event. In a real
cluster they would be several, and one might arrive while the plan for another is applied.

Nothing is solved, placed or explained here, and nothing of the original changes.
"""

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import mode

from controller.core.events import ContactLost
from controller.core.instructions import Announce
from controller.core.lifecycle.start_stop import lose_rank
from controller.core.nodes.contact import declare_lost, lose_contact
from controller.core.planning.plans import propose
from controller.core.planning.problem import (
    Available,
    plan_task,
    planned_tasks,
    worker_mtbf_s,
)
from controller.core.rules.planner.cost import PlanTask, horizon_s
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.plan import Plan
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId


class ImpossibleError(Exception):
    """What is supposed can't be, of this cluster. The text is one line."""


@dataclass(frozen=True, slots=True)
class Supposition:
    """What is different.

    With nothing different the present state is planned for, as an operator may ask for.

    Attributes:
        lost: Nodes that are lost.
        added: Nodes that are in service: new ones, with their workers, or known ones that are not
            now, with 0.
        num_added: Workers of further new nodes, of the size that most nodes have; the last one may
            be smaller.
        weights: New weights, by task.
        finished: Tasks that are over.
        faulted: Tasks that can't continue as they are, though their workers are sound.
        keeps_running: Whether a task keeps running, by task.
    """

    lost: tuple[NodeId, ...] = ()
    added: Mapping[NodeId, int] = field(default_factory=dict)
    num_added: int = 0
    weights: Mapping[TaskId, float] = field(default_factory=dict)
    finished: tuple[TaskId, ...] = ()
    faulted: tuple[TaskId, ...] = ()
    keeps_running: Mapping[TaskId, bool] = field(default_factory=dict)

    def __str__(self) -> str:
        """In words, for operators."""
        return "; ".join(self._words()) or "nothing is different"

    def _words(self) -> Iterator[str]:
        if self.lost:
            yield f"{', '.join(self.lost)} lost"
        if self.added:
            yield f"{', '.join(self.added)} in service"
        if self.num_added:
            yield f"{self.num_added} more workers"
        yield from (f"{task} weighs {weight:g}" for task, weight in self.weights.items())
        if self.finished:
            yield f"{', '.join(self.finished)} finished"
        if self.faulted:
            yield f"{', '.join(self.faulted)} faulted"
        for task, keeps in self.keeps_running.items():
            yield f"{task} {'keeps running' if keeps else 'may be stopped'}"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the core would propose.

    Attributes:
        supposition: What was supposed.
        plan: The plan; None where there is none.
        why_none: Why there is none, in words for operators.
        num_workers: n', that could be given away.
        running_s: D_running, seconds.
        tasks: The tasks that a plan may change, as the planner sees them.
        before: Where each task is now, before anything is supposed; None where it has no ranks.
        after: Where each task that a plan may change would be to go; None where it would be
            stopped.
        left_alone: Tasks that no plan may change now, and their phase.
    """

    supposition: Supposition
    plan: Plan | None
    why_none: str
    num_workers: int
    running_s: float
    tasks: tuple[PlanTask, ...]
    before: Mapping[TaskId, Target | None]
    after: Mapping[TaskId, Target | None]
    left_alone: Mapping[TaskId, TaskPhase]


def snapshot(state: ClusterState) -> ClusterState:
    """Return a copy that has nothing in common with the original but what never changes.

    Whoever asks for it waits meanwhile, so values are shared, and records of values alone are not
    looked into.
    """
    memo: dict[int, object] = {id(node.spec): node.spec for node in state.nodes.values()}
    for task in state.tasks.values():
        for value in (task.spec, task.placement, task.assignment.target, task.assignment.interim):
            memo[id(value)] = value
        for rank in task.ranks.values():
            memo[id(rank)] = copy.copy(rank)
        memo[id(task.progress.losses)] = task.progress.losses.copy()
    for plan in state.plans.all:
        memo[id(plan.problem)] = plan.problem
        memo |= {id(change): change for change in plan.changes.values()}
    for incident in state.incidents.all:
        memo |= {id(evidence): evidence for evidence in incident.evidence}
    return copy.deepcopy(state, memo)


def rehearse(state: ClusterState, policy: Policy, at: float, supposition: Supposition) -> Rehearsal:
    """Return what the core would propose.

    Args:
        state: A ``snapshot``; it is changed.
        policy: The cluster's.
        at: Now, seconds since the start of the run.
        supposition: What is different.

    Raises:
        ImpossibleError: Something is supposed of a node or task that there is not, or that it can't
            be.
    """
    before = {name: _place_now(task) for name, task in state.tasks.items()}
    turn = Turn(
        state,
        replace(policy, is_auto_heal=False, is_rehearsal=False, auto_after_s=0.0, approvals=()),
        cause=0,
        at=at,
    )
    _suppose(turn, supposition)
    includes_held = supposition == Supposition()
    planned = planned_tasks(turn, includes_held=includes_held)
    tasks = tuple(plan_task(turn, task) for task in planned)
    num_workers = Available(turn, planned).num_workers
    plan = propose(
        turn, trigger="what-if", seen=f"supposed: {supposition}", includes_held=includes_held
    )
    return Rehearsal(
        supposition=supposition,
        plan=plan,
        why_none="" if plan else _why_none(turn),
        num_workers=num_workers,
        running_s=horizon_s(worker_mtbf_s(turn.state, policy), num_workers),
        tasks=tasks,
        before=before,
        after={
            task.spec.task: plan.changes[task.spec.task].target if plan else task.assignment.target
            for task in planned
        },
        left_alone={
            name: task.lifecycle.phase for name, task in state.tasks.items() if task not in planned
        },
    )


def _place_now(task: TaskState) -> Target | None:
    return task.place if task.living_ranks else None


def _why_none(turn: Turn) -> str:
    """Return the reason that the core announced for a plan that it could not make."""
    told = (each for each in turn.instructions if isinstance(each, Announce))
    errors = (each.text for each in told if each.kind == "plan" and each.level == "error")
    return next(errors, "no plan would change anything")


def _suppose(turn: Turn, supposition: Supposition) -> None:
    for name, weight in supposition.weights.items():
        _task(turn, name)
        turn.state.reweigh(name, weight=weight)
    for name, keeps in supposition.keeps_running.items():
        _task(turn, name)
        turn.state.reweigh(name, keeps_running=keeps)
    for name in supposition.finished:
        _finish(turn, _task(turn, name))
    for name in supposition.faulted:
        task = _task(turn, name)
        if task.lifecycle.phase is TaskPhase.FINISHED:
            raise ImpossibleError(f"{name} has finished: it can't be faulted")
        task.assignment.lose_target()
    for node, num_workers in supposition.added.items():
        _add(turn, node, num_workers)
    _add_workers(turn, supposition.num_added)
    _lose(turn, supposition.lost)


def _task(turn: Turn, name: TaskId) -> TaskState:
    task = turn.state.tasks.get(name)
    if task is None:
        known = ", ".join(turn.state.tasks)
        raise ImpossibleError(f"there is no task {str(name)!r:.80}; there are {known}")
    return task


def _finish(turn: Turn, task: TaskState) -> None:
    if not task.can_regroup:
        raise ImpossibleError(
            f"{task.spec.task} is {task.lifecycle.phase}: only what trains can finish"
        )
    for rank in task.ranks.values():
        rank.note_finished()
    for number in task.ranks:
        lose_rank(turn, task, number)


def _add(turn: Turn, name: NodeId, num_workers: int) -> None:
    node = turn.state.nodes.get(name)
    if node is None:
        size = num_workers or _usual_size(turn)
        turn.state.put_node(NodeSpec(name, "", size), NodeCondition.HEALTHY)
        return
    if node.is_in_service and not node.service.isolated_gpus:
        raise ImpossibleError(f"{name} is in service already; name a new node, or one that is not")
    if num_workers not in {0, node.spec.num_workers}:
        raise ImpossibleError(f"{name} has {node.spec.num_workers} workers, not {num_workers}")
    if node.contact.condition is not NodeCondition.HEALTHY:
        node.contact.gain(turn.at)
    node.service.release_all()


def _add_workers(turn: Turn, num_workers: int) -> None:
    size = _usual_size(turn)
    names = (NodeId(f"new-{number}") for number in itertools.count(1))
    free = (name for name in names if name not in turn.state.nodes)
    while num_workers > 0:
        _add(turn, next(free), min(size, num_workers))
        num_workers -= size


def _usual_size(turn: Turn) -> int:
    return mode(node.spec.num_workers for node in turn.state.nodes.values())


def _lose(turn: Turn, names: tuple[NodeId, ...]) -> None:
    nodes = []
    for name in dict.fromkeys(names):
        node = turn.state.nodes.get(name)
        if node is None:
            known = ", ".join(turn.state.nodes)
            raise ImpossibleError(f"there is no node {str(name)!r:.80}; there are {known}")
        if node.contact.condition in {NodeCondition.LOST, NodeCondition.EXPECTED}:
            is_lost = node.contact.condition is NodeCondition.LOST
            how = "is lost already" if is_lost else "has never been in contact"
            raise ImpossibleError(f"{name} {how}: it can't be lost")
        lose_contact(turn, ContactLost(name, turn.at, "supposed"))
        nodes.append(node)
    for node in nodes:
        declare_lost(turn, node, "supposed")
