"""The planner's problem: tasks that may change, available workers, and costs of moves.

The present state is put into the planner's terms here, and its answer, one size per task, is placed
on workers. Which sizes are best is decided in ``controller.core.rules.planner.solver``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from controller.core.rules.placement import Unplaceable, Worker, place
from controller.core.rules.planner.cost import PlanTask
from controller.core.rules.planner.solver import Division
from controller.core.rules.policy import Policy
from controller.core.rules.regroup.replicas import with_waiting
from controller.core.rules.transitions import TransitionKind
from controller.core.state.cluster import ClusterState
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout


class Available:
    """Workers that a plan may assign: on healthy nodes, neither held nor awaited by other tasks.

    Workers of a cordoned node are for the tasks that hold them already.

    Args:
        turn: The event.
        planned: The tasks that the plan may change.
        without: A node that is supposed to be out of service.
        refused: Further workers that no task may get.
    """

    def __init__(
        self,
        turn: Turn,
        planned: Sequence[TaskState],
        *,
        without: NodeId | None = None,
        refused: frozenset[Worker] = frozenset(),
    ) -> None:
        self._made_of = (turn, planned, without, refused)
        in_service = [
            node
            for name, node in turn.state.nodes.items()
            if node.is_in_service and name != without
        ]
        self.workers_by_node = {node.spec.node: node.spec.num_workers for node in in_service}
        self.blocked = {
            worker
            for task in turn.state.tasks.values()
            if task not in planned
            for worker in (
                *task.occupied_workers,
                *(task.assignment.target.placement if task.assignment.target else ()),
            )
            if worker.node in self.workers_by_node
        } | {
            Worker(node.spec.node, slot)
            for node in in_service
            if node.service.isolated_gpus
            for slot in node.service.isolated_gpus
        }
        self.blocked |= {worker for worker in refused if worker.node in self.workers_by_node}
        cordoned = [node for node in in_service if not node.upkeep.takes_new]
        self.held_only: dict[Worker, frozenset[TaskId]] = {}
        """Workers of cordoned nodes, with the tasks that may keep them."""
        if cordoned:
            self._keep_for_holders(planned, cordoned)
        self.domains = {node.spec.node: node.spec.failure_domain for node in in_service}
        """The failure domain of each node; empty where none is named."""
        num_blocked = Counter(worker.node for worker in self.blocked)
        self.rooms = [count - num_blocked[node] for node, count in self.workers_by_node.items()]
        """Workers of each node that may be given away."""
        self.num_workers = sum(self.rooms)

    @staticmethod
    def _all_workers(nodes: Iterable[NodeState]) -> Iterator[Worker]:
        for node in nodes:
            for slot in range(node.spec.num_workers):
                yield Worker(node.spec.node, slot)

    def _keep_for_holders(
        self, planned: Sequence[TaskState], cordoned: Sequence[NodeState]
    ) -> None:
        holders: dict[Worker, set[TaskId]] = {}
        for task in planned:
            target = task.assignment.target
            for worker in {*task.occupied_workers, *(target.placement if target else ())}:
                holders.setdefault(worker, set()).add(task.spec.task)
        for worker in self._all_workers(cordoned):
            if worker in self.blocked:
                continue
            if worker in holders:
                self.held_only[worker] = frozenset(holders[worker])
            else:
                self.blocked.add(worker)

    def refusing(self, workers: frozenset[Worker]) -> "Available":
        """Return the same without some workers."""
        turn, planned, without, refused = self._made_of
        return Available(turn, planned, without=without, refused=refused | workers)

    def misused(self, targets: Mapping[TaskId, Target]) -> frozenset[Worker]:
        """Return workers of cordoned nodes that a task would get without having held them."""
        return frozenset(
            worker
            for name, target in targets.items()
            for worker in target.placement
            if name not in self.held_only.get(worker, {name})
        )

    def has_places(self, layout: Layout) -> bool:
        """Return whether a task of this layout would find room if it were alone."""
        return sum(room // layout.tp for room in self.rooms) >= layout.pp * layout.dp


_PRIOR_CHANGES: Final = 2
"""The configured MTBF counts like this many observed intervals."""


def worker_mtbf_s(state: ClusterState, policy: Policy) -> float:
    """Return how long a worker stays, in seconds: as configured, corrected by what was observed.

    Where nodes come and go the configured time between faults says little about how long a plan
    will last. So the mean of the observed intervals between changes of the capacity is taken in.
    """
    changes = state.bursts.changes_at
    num_intervals = len(changes) - 1
    if num_intervals < 1:
        return policy.worker_mtbf_s
    num_workers = sum(
        node.spec.num_workers
        for node in state.nodes.values()
        if node.contact.condition is not NodeCondition.REMOVED
    )
    observed_s = num_workers * (changes[-1] - changes[0])
    return (_PRIOR_CHANGES * policy.worker_mtbf_s + observed_s) / (_PRIOR_CHANGES + num_intervals)


def planned_tasks(
    turn: Turn, *, includes_held: bool, tries: TaskId | None = None
) -> list[TaskState]:
    """Return the tasks that a plan may change; of held tasks, all, none or one.

    A task that trains on a node out of contact is presumed to train on; no order would reach it.
    """
    return [
        task
        for task in turn.state.tasks.values()
        if task.lifecycle.phase is not TaskPhase.FINISHED
        and task.is_wanted
        and (includes_held or task.spec.task == tries or not _is_the_operators(task))
        and not (task.can_regroup and task.assignment.target and _is_out_of_sight(turn, task))
    ]


def _is_the_operators(task: TaskState) -> bool:
    """Whether it is held, or will be once its ranks are gone."""
    is_going = task.lifecycle.phase is TaskPhase.STOPPING and task.stopping.intent == "hold"
    return task.lifecycle.phase is TaskPhase.HELD or is_going


def _is_out_of_sight(turn: Turn, task: TaskState) -> bool:
    nodes = turn.state.nodes
    return any(
        nodes[rank.worker.node].contact.condition is NodeCondition.UNREACHABLE and rank.is_alive
        for rank in task.ranks.values()
    )


def size_before(task: TaskState) -> int:
    """Return the workers of the task before the event, also while its ranks are down."""
    if task.lifecycle.phase is TaskPhase.STOPPED or task.assignment.granted is None:
        return 0
    return task.assignment.granted.num_workers


def is_faulted(task: TaskState) -> bool:
    """Return whether the task lost workers, or its recovery failed: it can't stay where it is."""
    return task.assignment.target is None and task.stopping.intent != "stop"


def plan_task(turn: Turn, task: TaskState) -> PlanTask:
    """Return the task as the planner sees it."""
    return PlanTask(
        name=task.spec.task,
        weight=task.spec.weight,
        rates=task.spec.rates,
        workers=size_before(task),
        min_workers=task.spec.min_workers,
        is_faulted=is_faulted(task),
        transition_s=expected_transition_s(turn.policy, task),
        remaining_s=_rounded(task.remaining_s),
        keeps_running=task.spec.keeps_running,
        layout_change_s=expected_layout_change_s(turn.policy, task),
        model=task.layout.model if task.layout else None,
    )


def _rounded(seconds: float | None) -> float | None:
    """Return an estimate in two digits: it is no better, and so seldom becomes another one."""
    return None if seconds is None else float(f"{seconds:.1e}")


def expected_transition_s(policy: Policy, task: TaskState) -> float:
    """Return the planner's D_transition: what going to another size or place takes this task.

    Its layout there splits the model as the present one does.
    """
    kinds: tuple[TransitionKind, ...] = ("shrink", "grow", "move")
    return task.transitions.experience.expected_s(kinds, policy.step_s)


def expected_layout_change_s(policy: Policy, task: TaskState) -> float | None:
    """Return D_transition to a layout that splits the model in another way.

    None if all its layouts split it alike.
    """
    models = task.spec.table.rates.models
    if models is None or (models == models[0]).all():
        return None
    return task.transitions.experience.expected_s(("layout change",), policy.step_s)


def _held(task: TaskState, layout: Layout | None) -> Target | None:
    """Return where a task is, with what waits beside it as parts of the replicas that it gets more.

    Of no others: what waits has no state, and must not take the place of a rank that has.
    """
    place, spares = task.place, task.spares
    if place is None or not spares.ranks or layout is None:
        return place
    waiting = [(rank.worker, spares.parts[n]) for n, rank in spares.ranks.items()]
    is_same_model = (layout.tp, layout.pp) == (place.layout.tp, place.layout.pp)
    num_more = max(0, layout.dp - place.layout.dp) if is_same_model else 0
    return Target(*with_waiting(place.layout, place.placement, waiting, num_more))


def place_targets(
    tasks: Sequence[TaskState], decision: Division, available: Available
) -> dict[TaskId, Target] | Unplaceable:
    """Return where each task that gets workers is to be, with as few moves as can be."""
    layouts = {
        task.spec.task: task.spec.table.layout(size)
        for task in tasks
        if (size := decision.assignments[task.spec.task])
    }
    current = {
        task.spec.task: held
        for task in tasks
        if task.lifecycle.phase is not TaskPhase.STOPPED
        and (held := task.assignment.target or _held(task, layouts.get(task.spec.task)))
    }
    placements = place(
        layouts,
        {name: each.placement for name, each in current.items()},
        available.workers_by_node,
        layouts_before={name: each.layout for name, each in current.items()},
        blocked=available.blocked,
        domains=available.domains,
    )
    if isinstance(placements, Unplaceable):
        return placements
    return {
        name: Target(layout=layout, placement=placements[name]) for name, layout in layouts.items()
    }
