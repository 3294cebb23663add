"""Which tasks that keep running have places on nodes, and where the smallest of them would fit.

The planner counts workers only (``controller.core.rules.planner.floors``). Where a plan by count
has no placement, the same rule is applied to places: from the heaviest task to the lightest, a task
is kept if it and the tasks kept before it have a placement at some sizes, with nothing else placed.

A layout asks for so many groups of so many workers in one node. A size that asks for as large
groups and no fewer of them than another is not tried: it fits only where the other does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Final

from controller.core.rules.planner.cost import PlanTask
from controller.core.rules.planner.floors import heaviest_with_room
from nodeagent.protocol.ids import TaskId
from profiles.layout import Layout

_MAX_TRIES: Final = 256
"""Combinations of sizes that are tried for one set of tasks."""

SizesByTask = Mapping[TaskId, int]


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
