"""Divisions of the workers in the planner's order, the best first, then the next best, and so on.

The order is the planner's: the largest sum of gains, the smallest sum of changes, the larger size for the task
whose name sorts first, then for the second, and so on. Each division appears once.

After a division x all others are those that agree with it on the first i tasks and differ at task i, for one i
(Lawler, Management Science 18, 1972). Each of these parts is a problem of the same kind, with some sizes
fixed and some excluded, and its best is found by the planner's own search (``controller.core.rules.planner.search``). So what
follows is the best of all parts that are left, and takes one search per task more.

Which of them can be placed is not known here (``controller.core.planning.plans``).
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.core.rules.planner.options import Options, score
from controller.core.rules.planner.search import best_division

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Subproblem:
    """Divisions that have the sizes of ``best`` before ``index``, and an option of ``options`` there.

    Attributes:
        best: The best of them.
        index: The first task whose size is not fixed.
        options: What the tasks may take here.
    """

    best: Sizes
    index: int
    options: tuple[Options, ...]


def ranked_divisions(tasks: Sequence[Options], capacity: int) -> Iterator[Sizes]:
    """Yield every division of up to ``capacity`` workers, in descending order.

    Takes one search for the first and at most one per task for each of the others.

    Args:
        tasks: What each task may take, in the order of their names.
        capacity: Workers there are.
    """
    waiting: list[tuple[tuple[int, int, Sizes], int, _Subproblem]] = []
    num_found = 0

    def add(index: int, options: tuple[Options, ...]) -> None:
        nonlocal num_found
        best = best_division(options, capacity)
        if best is not None:
            num_found += 1
            key = _descending(tasks, best)
            heapq.heappush(waiting, (key, num_found, _Subproblem(best, index, options)))

    add(0, tuple(tasks))
    while waiting:
        _, _, part = heapq.heappop(waiting)
        yield part.best
        options = list(part.options)
        for index in range(part.index, len(tasks)):
            others = options[index].without(part.best[index])
            add(index, (*options[:index], others, *options[index + 1 :]))
            options[index] = _only(options[index], part.best[index])


def _only(options: Options, size: int) -> Options:
    """Return one of the options alone."""
    is_it = options.sizes == size
    return Options(options.sizes[is_it], options.gains[is_it], options.changes[is_it])


def _descending(tasks: Sequence[Options], sizes: Sizes) -> tuple[int, int, Sizes]:
    """Return a key that is less for a better division."""
    gain, change = score(tasks, sizes)
    return -gain, -change, tuple(-size for size in sizes)
