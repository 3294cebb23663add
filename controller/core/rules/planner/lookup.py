"""The lookup table: the division for each event that may come next, computed in advance.

The events are: one node lost, two nodes lost, a node joined, a task finished, a queued task
launched. An event changes three inputs of the planner: the number of workers, the faulted tasks,
and the set of tasks. These three are the key. All other inputs are the table's *version*: sizes,
weights, throughput tables, transition times and the MTBF. A lookup with another version finds
nothing.

A division from the table equals the one that ``planner.solve`` would return. If the table has no
entry, the problem is solved at once.

Cases with the same number of workers are solved together
(``controller.core.rules.planner.variants``).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from controller.core.rules.planner.cost import PlanTask, Problem, Quantum, horizon_of, horizon_s
from controller.core.rules.planner.floors import kept_tasks, options_of
from controller.core.rules.planner.options import Options
from controller.core.rules.planner.solver import Division, decide, solve
from controller.core.rules.planner.variants import Case, best_divisions
from nodeagent.protocol.ids import TaskId


class Loss(NamedTuple):
    """The effect of losing a node: workers that plans can't use any more, and its tasks."""

    num_workers: int
    faulted: frozenset[TaskId]


@dataclass(frozen=True, slots=True)
class Outlook:
    """The present, as the planner sees it, and the events that may come next.

    Attributes:
        tasks: Tasks that a plan divides the workers among.
        queued: Tasks that may be launched.
        num_workers: Workers that a plan may assign.
        worker_mtbf_s: Mean time between faults of one worker that force a reconfiguration.
        losses: One per node.
        joins: Numbers of workers that a joining node may bring.
    """

    tasks: tuple[PlanTask, ...]
    queued: tuple[PlanTask, ...]
    num_workers: int
    worker_mtbf_s: float
    losses: tuple[Loss, ...]
    joins: frozenset[int]


_MAX_SIZES: Final = 10**6
"""Limit for the number of sizes in the whole table: about 50 MB."""


class LookupKey(NamedTuple):
    """The planner's input, within one version."""

    num_workers: int
    faulted: frozenset[TaskId]
    tasks: frozenset[TaskId]


def _terms(task: PlanTask, running_s: float) -> tuple[object, ...]:
    """Return all inputs of a task except whether it is faulted."""
    # The remaining time is compared through ``horizon_of``: an end after the horizon changes
    # nothing, and must not make the table stale with every iteration.
    return (
        task.rates,
        task.weight,
        task.workers,
        task.min_workers,
        task.transition_s,
        task.layout_change_s,
        task.model,
        task.keeps_running,
        horizon_of(task, running_s),
    )


@dataclass(slots=True)
class LookupTable:
    """Divisions by the planner's input.

    Attributes:
        version: The tasks that the divisions are valid for.
        worker_mtbf_s: The MTBF that the divisions are valid for.
        divisions: Sizes of the tasks in the order of their names.
        num_found: Divisions that were found here.
        num_missed: Divisions that had to be solved at once.
    """

    version: Mapping[TaskId, PlanTask] = field(default_factory=dict)
    worker_mtbf_s: float = 0.0
    divisions: Mapping[LookupKey, tuple[int, ...]] = field(default_factory=dict)
    num_found: int = 0
    num_missed: int = 0

    def decide(self, problem: Problem) -> Division:
        """Return the division that ``planner.solve`` returns, from the table if possible.

        Counts in ``num_found`` or ``num_missed``; changes nothing else.
        """
        sizes = self._find(problem)
        if sizes is None:
            self.num_missed += 1
            return solve(
                problem.tasks, num_workers=problem.num_workers, running_s=problem.running_s
            )
        self.num_found += 1
        ordered = tuple(sorted(problem.tasks, key=lambda task: task.name))
        return decide(replace(problem, tasks=ordered), sizes)

    def _find(self, problem: Problem) -> tuple[int, ...] | None:
        tasks, num_workers = problem.tasks, problem.num_workers
        running_s = horizon_s(self.worker_mtbf_s, num_workers)
        # The horizon follows from the MTBF. Another horizon means another version.
        if problem.running_s != running_s:
            return None
        for task in tasks:
            known = self.version.get(task.name)
            if known is None or _terms(known, running_s) != _terms(task, running_s):
                return None
        faulted = frozenset(task.name for task in tasks if task.is_faulted)
        names = frozenset(task.name for task in tasks)
        return self.divisions.get(LookupKey(num_workers, faulted, names))


def look_ahead(outlook: Outlook, after_step: Callable[[], None] = lambda: None) -> LookupTable:
    """Return the table for all events that may come next.

    Args:
        outlook: The present. The table is valid as long as its tasks and its MTBF are.
        after_step: Called every few milliseconds during the computation.

    Returns:
        Divisions for one lost node, two lost nodes, a joined node, a finished and a launched task.
        Pairs of lost nodes are left out if they are too many.
    """
    outlook = replace(outlook, tasks=_by_name(outlook.tasks), queued=_by_name(outlook.queued))
    by_workers: dict[int, set[LookupKey]] = defaultdict(set)
    for key in _keys(outlook):
        by_workers[key.num_workers].add(key)
    divisions: dict[LookupKey, tuple[int, ...]] = {}
    for keys in by_workers.values():
        divisions |= _solve_together(outlook, keys, after_step)
    every = (*outlook.tasks, *outlook.queued)
    version = {task.name: task for task in every}
    return LookupTable(version, outlook.worker_mtbf_s, divisions)


def _by_name(tasks: Sequence[PlanTask]) -> tuple[PlanTask, ...]:
    return tuple(sorted(tasks, key=lambda task: task.name))


def _keys(outlook: Outlook) -> set[LookupKey]:
    num_workers = outlook.num_workers
    faulted = frozenset(task.name for task in outlook.tasks if task.is_faulted)
    names = frozenset(task.name for task in outlook.tasks)
    keys = {LookupKey(num_workers, faulted, names)}
    keys |= {
        LookupKey(num_workers - loss.num_workers, faulted | loss.faulted, names)
        for loss in _losses(outlook.losses, _MAX_SIZES // max(1, len(outlook.tasks)))
    }
    keys |= {LookupKey(num_workers + joined, faulted, names) for joined in outlook.joins}
    keys |= {LookupKey(num_workers, faulted - {name}, names - {name}) for name in names}
    launched: list[tuple[PlanTask, ...]] = [(task,) for task in outlook.queued]
    if len(launched) > 1:
        launched.append(outlook.queued)
    for tasks in launched:
        hit = {task.name for task in tasks if task.is_faulted}
        keys.add(LookupKey(num_workers, faulted | hit, names | {task.name for task in tasks}))
    return keys


def _losses(losses: Sequence[Loss], limit: int) -> set[Loss]:
    """Return the effects of one lost node and of any two; only of one if pairs exceed ``limit``."""
    # Nodes with the same tasks and workers have the same effect, so a homogeneous cluster has few
    # distinct losses.
    counts = Counter(losses)
    twice = [loss for loss, count in counts.items() if count > 1]
    kinds = set(counts)
    if len(kinds) ** 2 // 2 > limit:
        return kinds
    pairs = [*combinations(kinds, 2), *((loss, loss) for loss in twice)]
    return kinds | {
        Loss(one.num_workers + other.num_workers, one.faulted | other.faulted)
        for one, other in pairs
    }


_NOTHING: Final = Options(*(np.zeros(1, np.int64) for _ in range(3)))
"""The options of a task that is not in the problem: size 0 only."""


def _solve_together(
    outlook: Outlook, keys: Collection[LookupKey], after_step: Callable[[], None]
) -> dict[LookupKey, tuple[int, ...]]:
    """Return the divisions of keys with the same number of workers."""
    present = frozenset(task.name for task in outlook.tasks)
    by_tasks: dict[frozenset[TaskId], list[LookupKey]] = defaultdict(list)
    for key in keys:
        by_tasks[key.tasks].append(key)
    num_workers = next(iter(keys)).num_workers
    running_s = horizon_s(outlook.worker_mtbf_s, num_workers)
    others: dict[tuple[Quantum, frozenset[TaskId]], list[LookupKey]] = defaultdict(list)
    found: dict[LookupKey, tuple[int, ...]] = {}
    for names, group in by_tasks.items():
        there = [task for task in (*outlook.tasks, *outlook.queued) if task.name in names]
        # The unit of gains depends on the set of tasks. Using the unit that ``solve`` would use
        # makes the answers identical, ties included.
        quantum = Quantum.for_tasks(there, running_s)
        kept = kept_tasks(there, num_workers)
        if names == present:
            found |= _with_faults(outlook.tasks, group, quantum, running_s, kept, after_step)
        else:
            # Sets of tasks are solved together if they agree on who may be stopped. Mostly every
            # task that keeps running has room, and all sets agree.
            marked = frozenset(task.name for task in there if task.keeps_running)
            others[quantum, marked - kept] += group
    for (quantum, without_room), group in others.items():
        found |= _with_other_tasks(outlook, group, quantum, running_s, without_room, after_step)
    return found


def _with_faults(
    tasks: Sequence[PlanTask],
    keys: Sequence[LookupKey],
    quantum: Quantum,
    running_s: float,
    kept: frozenset[TaskId],
    after_step: Callable[[], None],
) -> dict[LookupKey, tuple[int, ...]]:
    """Return the divisions for the present set of tasks with other tasks faulted."""
    num_workers = keys[0].num_workers
    usual = options_of(tasks, quantum, num_workers, running_s, kept)
    faulted = [replace(task, is_faulted=True) for task in tasks]
    options = options_of(faulted, quantum, num_workers, running_s, kept)
    # A task that is faulted already has these options as its usual ones.
    hit = {index: options[index] for index, task in enumerate(tasks) if not task.is_faulted}
    cases = {
        key: frozenset(index for index in hit if tasks[index].name in key.faulted) for key in keys
    }
    found = best_divisions(usual, hit, set(cases.values()), num_workers, after_step)
    return _by_key(cases, found)


def _with_other_tasks(
    outlook: Outlook,
    keys: Sequence[LookupKey],
    quantum: Quantum,
    running_s: float,
    without_room: frozenset[TaskId],
    after_step: Callable[[], None],
) -> dict[LookupKey, tuple[int, ...]]:
    """Return the divisions for sets with one task fewer, or with queued tasks launched."""
    num_workers = keys[0].num_workers
    every = sorted((*outlook.tasks, *outlook.queued), key=lambda task: task.name)
    used = frozenset().union(*(key.tasks for key in keys))
    present = [task for task in every if task.name in used]
    kept = {task.name for task in present if task.keeps_running} - without_room
    usable = options_of(present, quantum, num_workers, running_s, kept)
    by_name = {task.name: each for task, each in zip(present, usable, strict=True)}
    options = [by_name.get(task.name, _NOTHING) for task in every]
    is_here = [task in outlook.tasks for task in every]
    usual = [each if here else _NOTHING for each, here in zip(options, is_here, strict=True)]
    others = {index: _NOTHING if here else options[index] for index, here in enumerate(is_here)}
    cases = {
        key: frozenset(
            index for index, task in enumerate(every) if (task.name in key.tasks) != is_here[index]
        )
        for key in keys
    }
    divisions = best_divisions(usual, others, set(cases.values()), num_workers, after_step)
    found = _by_key(cases, divisions)
    return {
        key: tuple(size for task, size in zip(every, sizes, strict=True) if task.name in key.tasks)
        for key, sizes in found.items()
    }


def _by_key(
    cases: Mapping[LookupKey, Case], divisions: Mapping[Case, tuple[int, ...] | None]
) -> dict[LookupKey, tuple[int, ...]]:
    return {
        key: division for key, case in cases.items() if (division := divisions[case]) is not None
    }
