"""The best division of the workers that has a placement.

The planner knows nothing of nodes: where single GPUs are out of service, or nodes are of several
sizes, its best division may have no placement, since a tensor-parallel group does not span nodes.
Then the next best is taken that has one, in the planner's own order
(``controller.core.rules.planner.ranking``) and with its D_running; sizes that a task could not have
even if it were alone are left out beforehand. The reason that operators read says which better
division had no placement, and why.

That takes one search per task for every division that is tried. After ``_MAX_SEARCHES`` it is given
up, and some workers are left idle: the division is the best of so many workers less, that number
found by halving.

Tasks that keep running are not stopped while they have places; if need be they get the sizes that
``FloorPlaces`` found for them. The planner counts workers only
(``controller.core.rules.planner.floors``). Where a plan by count has no placement, the same rule is
applied to places: from the heaviest task to the lightest, a task is kept if it and the tasks kept
before it have a placement at some sizes, with nothing else placed. A layout asks for so many groups
of so many workers in one node. A size that asks for as large groups and no fewer of them than
another is not tried: it fits only where the other does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Final

from controller.core.planning.problem import Available, place_targets, plan_task, worker_mtbf_s
from controller.core.rules.placement import Unplaceable
from controller.core.rules.planner.cost import PlanTask, Problem, Quantum, horizon_s
from controller.core.rules.planner.floors import heaviest_with_room
from controller.core.rules.planner.options import Options
from controller.core.rules.planner.ranking import ranked_divisions
from controller.core.rules.planner.search import best_division
from controller.core.rules.planner.solver import Division, decide
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import TaskId
from profiles.layout import Layout

_MAX_SEARCHES: Final = 512
"""The planner's searches for divisions in their order, of one event."""

Targets = Mapping[TaskId, Target]
"""Where each task that gets workers is to be."""

_MAX_TRIES: Final = 256
"""Combinations of sizes that are tried for one set of tasks."""

SizesByTask = Mapping[TaskId, int]


def divide(
    turn: Turn, tasks: Sequence[TaskState], available: Available
) -> tuple[Division, Targets]:
    """Return the best division that has a placement, and that placement.

    No task gets workers of a cordoned node that it does not hold.
    """
    while True:
        found = _divide(turn, tasks, available)
        if not (misused := available.misused(found[1])):
            return found
        # Its holder leaves this worker, and nobody else may have it.
        available = available.refusing(misused)


def _divide(
    turn: Turn, tasks: Sequence[TaskState], available: Available
) -> tuple[Division, Targets]:
    num_workers = available.num_workers
    asked = tuple(plan_task(turn, task) for task in tasks)
    running_s = horizon_s(worker_mtbf_s(turn.state, turn.policy), num_workers)
    best = turn.table.decide(Problem(asked, num_workers, running_s))
    targets = place_targets(tasks, best, available)
    if not isinstance(targets, Unplaceable):
        return best, targets
    return _Others.of(tasks, available, best).find(targets.reason)


@dataclass(frozen=True, slots=True)
class _Others:
    """Divisions to be tried after the best, which has no placement."""

    tasks: Sequence[TaskState]
    available: Available
    best: Division
    options: Sequence[Options]
    kept: SizesByTask
    """Tasks that may not be stopped, with sizes at which they have places together."""

    @classmethod
    def of(cls, tasks: Sequence[TaskState], available: Available, best: Division) -> "_Others":
        problem, spec_of = best.problem, {task.spec.task: task.spec for task in tasks}
        quantum = Quantum.for_tasks(problem.tasks, problem.running_s)
        options: list[Options] = []
        layouts: dict[TaskId, dict[int, Layout]] = {}
        for task in problem.tasks:
            each = quantum.options(task, problem.num_workers, problem.running_s)
            layouts[task.name] = {}
            for size in filter(None, each.sizes.tolist()):
                layout = spec_of[task.name].table.layout(size)
                if available.has_places(layout):
                    layouts[task.name][size] = layout
                else:
                    each = each.without(size)
            options.append(each)

        def is_placeable(sizes: SizesByTask) -> bool:
            decision = decide(problem, [sizes.get(task.name, 0) for task in problem.tasks])
            return not isinstance(place_targets(tasks, decision, available), Unplaceable)

        kept = FloorPlaces(problem.num_workers, layouts, is_placeable).kept(problem.tasks)
        for number, task in enumerate(problem.tasks):
            if task.name in kept:
                options[number] = options[number].without(0)
        return cls(tasks, available, best, options, kept)

    def find(self, reason: str) -> tuple[Division, Targets]:
        """Return the next best division that has a placement.

        ``reason`` is why the best has none.
        """
        num_workers, num_vain = self.best.problem.num_workers, 0
        limit = _MAX_SEARCHES // len(self.tasks)
        for sizes in islice(ranked_divisions(self.options, num_workers), limit):
            found = self._place(sizes)
            if found:
                return self._explained(found, reason, num_vain, "the next best that has one")
            num_vain += tuple(self.best.assignments.values()) != sizes
        found, num_idle = self._leave_idle()
        which = f"the best of {num_idle} workers less, since the search for the next best timed out"
        return self._explained(found, reason, num_vain, which)

    def _leave_idle(self) -> tuple[tuple[Division, Targets], int]:
        """Return the division that leaves few workers idle, and how many."""
        if found := self._with_fewer_workers(self.options):
            return found
        names = [task.name for task in self.best.problem.tasks]
        fixed = [
            each.only(self.kept[name]) if name in self.kept else each
            for name, each in zip(names, self.options, strict=True)
        ]
        found = self._with_fewer_workers(fixed)
        assert found is not None, "these sizes have places, and all others may be stopped"
        return found

    def _with_fewer_workers(
        self, options: Sequence[Options]
    ) -> tuple[tuple[Division, Targets], int] | None:
        num_workers = self.best.problem.num_workers
        most = num_workers - sum(int(each.sizes[0]) for each in options)
        found, too_few, enough = None, 0, most
        while found is None or enough - too_few > 1:
            middle = (too_few + enough + 1) // 2
            sizes = best_division(options, num_workers - middle)
            assert sizes is not None, "the smallest sizes fit"
            if placed := self._place(sizes):
                found, enough = placed, middle
            elif middle == most:
                return None
            else:
                too_few = middle
        return found, enough

    def _place(self, sizes: Sequence[int]) -> tuple[Division, Targets] | None:
        decision = decide(self.best.problem, sizes)
        targets = place_targets(self.tasks, decision, self.available)
        return None if isinstance(targets, Unplaceable) else (decision, targets)

    def _explained(
        self, found: tuple[Division, Targets], reason: str, num_vain: int, which: str
    ) -> tuple[Division, Targets]:
        decision, targets = found
        sizes = ", ".join(
            f"{task} {size}"
            for task, size in self.best.assignments.items()
            if size != decision.assignments[task]
        )
        more = f", like {num_vain} more" if num_vain else ""
        why = f"{sizes} would be better, but has no placement ({reason}){more}; {which}: {decision.why}"
        return replace(decision, why=why), targets


@dataclass(slots=True)
class FloorPlaces:
    """Finds who is kept.

    Attributes:
        num_workers: Workers that a plan may assign.
        layouts: The layout of each size that has places if the task is alone, by task.
        is_placeable: Whether tasks of these sizes have a placement together.
    """

    num_workers: int
    layouts: Mapping[TaskId, Mapping[int, Layout]]
    is_placeable: Callable[[SizesByTask], bool]
    _found: dict[frozenset[TaskId], SizesByTask | None] = field(default_factory=dict, init=False)

    def kept(self, tasks: Sequence[PlanTask]) -> SizesByTask:
        """Return the tasks that are kept, with sizes at which all of them have places."""
        kept = heaviest_with_room(tasks, lambda some: self._sizes(some) is not None)
        return self._sizes(kept) or {}

    def _sizes(self, tasks: Sequence[PlanTask]) -> SizesByTask | None:
        names = [task.name for task in tasks]
        key = frozenset(names)
        if key not in self._found:
            choices = [_smallest(self.layouts[name]) for name in names]
            tries = (dict(zip(names, sizes, strict=True)) for sizes in product(*choices))
            fitting = (
                sizes
                for sizes in islice(tries, _MAX_TRIES)
                if sum(sizes.values()) <= self.num_workers and self.is_placeable(sizes)
            )
            self._found[key] = next(fitting, None)
        return self._found[key]


def _smallest(layouts: Mapping[int, Layout]) -> list[int]:
    """Return the sizes that are worth a try, the smallest first."""
    tried: list[tuple[int, int]] = []
    sizes: list[int] = []
    for size, layout in sorted(layouts.items()):
        num_groups = layout.pp * layout.dp
        if not any(tp <= layout.tp and num <= num_groups for tp, num in tried):
            tried.append((layout.tp, num_groups))
            sizes.append(size)
    return sizes
