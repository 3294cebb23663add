"""All divisions of the workers, the best first, in the planner's order.

The order compares the sums of gains first, then the sums of changes. Ties go to the larger size for
the task with the first name, then for the second, and so on. Each division appears once.

The divisions after x are split by the first task i whose size differs from x (Lawler, Management
Science 18, 1972). Each part is a problem of the same kind with some sizes fixed and some excluded.
The planner's own search (``controller.core.rules.planner.search``) finds the best of each part. The
next division is the best of all open parts; each division takes at most one search per task.

This module does not know which divisions can be placed (``controller.core.planning.plans``).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.core.rules.planner.options import Options, score
from controller.core.rules.planner.search import best_division

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Subproblem:
    """All divisions that agree with ``best`` before ``index`` and use ``options`` from there on.

    Attributes:
        best: The best of these divisions.
        index: The first task whose size is not fixed.
        options: The options that each task has in this part.
    """

    best: Sizes
    index: int
    options: tuple[Options, ...]


def ranked_divisions(tasks: Sequence[Options], capacity: int) -> Iterator[Sizes]:
    """Yield every division of up to ``capacity`` workers, the best first.

    The first division takes one search. Each further division takes at most one search per task.

    Args:
        tasks: The options of each task, in the order of their names.
        capacity: Number of workers.
    """
    waiting: list[tuple[tuple[int, int, Sizes], int, _Subproblem]] = []
    num_found = 0

    def add(index: int, options: tuple[Options, ...]) -> None:
        nonlocal num_found
        best = best_division(options, capacity)
        if best is not None:
            num_found += 1
            # ``num_found`` keeps the heap from ever comparing two parts, which have no order.
            key = _descending(tasks, best)
            heapq.heappush(waiting, (key, num_found, _Subproblem(best, index, options)))

    add(0, tuple(tasks))
    while waiting:
        _, _, part = heapq.heappop(waiting)
        yield part.best
        options = list(part.options)
        # Each new part fixes the sizes before ``index`` and excludes the size at ``index``. The
        # parts are disjoint, so no division appears twice, and together they hold all divisions but
        # the best.
        for index in range(part.index, len(tasks)):
            others = options[index].without(part.best[index])
            add(index, (*options[:index], others, *options[index + 1 :]))
            options[index] = options[index].only(part.best[index])


def _descending(tasks: Sequence[Options], sizes: Sizes) -> tuple[int, int, Sizes]:
    """Return a sort key that is smaller for a better division."""
    gain, change = score(tasks, sizes)
    return -gain, -change, tuple(-size for size in sizes)
