"""Many problems at once that differ in a few tasks: the plans for what may happen next.

Every task has its usual options, and may have others: those that it has once it is faulted, or has finished,
say. A *case* is a set of tasks that have their others. All cases divide the same workers, so one price serves
them all, and what they share is computed once:

- a head for every number of tasks from the first on, with their usual options;
- suffixs from the last task on. Cases whose last tasks agree share the suffixs of these: those with others in
  the last of the case are built once, whichever other tasks the case has.

Where the first of a case's tasks has been added to its suffix, all before it have their usual options: head and
suffix are joined, and the case is solved. So it costs about two steps of the recurrence where a search of its
own costs one per task.

The gap counts from what the case's own options could lose least, as in a search of its own. A case
of which no division is found in the first gaps is searched on its own (``controller.core.rules.planner.search``).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from controller.core.rules.planner.options import Options, common_unit
from controller.core.rules.planner.partial_divisions import Bounds, PrefixTable, SuffixTable, join
from controller.core.rules.planner.search import (
    GAP_GROWTH,
    PricedOptions,
    ScoreScale,
    best_division,
)
from controller.core.rules.planner.shadow_price import find_shadow_price

Case = frozenset[int]
"""The tasks that have their other options, by their index."""

_GAPS: Final = 6
"""How many gaps are tried for all cases together."""


def best_divisions(
    tasks: Sequence[Options],
    others: Mapping[int, Options],
    cases: Collection[Case],
    capacity: int,
    after_step: Callable[[], None] = lambda: None,
) -> dict[Case, tuple[int, ...] | None]:
    """Return the best division of every case; None where no division fits.

    Args:
        tasks: The usual options; size 0 is among those of every task.
        others: What tasks may have in their stead, by index.
        cases: Every index is in ``others``.
        capacity: Workers that all have together.
        after_step: Called after every step of the recurrence, of milliseconds.
    """
    if not tasks:
        return dict.fromkeys(cases, ())
    usable = {index: task for index, task in others.items() if len(task.sizes)}
    possible = [case for case in cases if case <= usable.keys()]
    found: dict[Case, tuple[int, ...] | None] = dict.fromkeys(cases)
    if possible:
        typical = sorted(possible, key=sorted)[len(possible) // 2]
        found |= _SharedSearch(tasks, usable, typical, capacity).solve(possible, after_step)
    for case in possible:
        if found[case] is None:
            found[case] = best_division(_options_in(case, tasks, others), capacity)
            after_step()
    return found


def _options_in(
    case: Case, tasks: Sequence[Options], others: Mapping[int, Options]
) -> list[Options]:
    return [others[index] if index in case else task for index, task in enumerate(tasks)]


class _SharedSearch:
    """The options of all cases at one price, that of a typical case."""

    def __init__(
        self,
        tasks: Sequence[Options],
        others: Mapping[int, Options],
        typical: Case,
        capacity: int,
    ) -> None:
        self._unit = unit = common_unit([*tasks, *others.values()])
        self._capacity = capacity // unit
        present = _options_in(typical, tasks, others)
        room = max(0, capacity - sum(int(task.sizes[0]) for task in present))
        growing = [task.beyond_smallest(room) for task in present]
        self._price = find_shadow_price(growing, unit, room // unit)
        self._tasks = [PricedOptions.at(self._price.value, task, unit) for task in tasks]
        self._others = {
            index: PricedOptions.at(self._price.value, task, unit) for index, task in others.items()
        }

    def solve(
        self, cases: Collection[Case], after_step: Callable[[], None]
    ) -> dict[Case, tuple[int, ...]]:
        """Return the best divisions that are found in the first gaps."""
        found: dict[Case, tuple[int, ...]] = {}
        gap = self._price.first_gap
        for _ in range(_GAPS):
            left = [case for case in cases if case not in found]
            if left:
                kept = [task.within(gap) for task in self._tasks]
                others = {index: task.within(gap) for index, task in self._others.items()}
                price = self._price.value
                gap_pass = _GapPass(kept, others, gap, price, self._capacity, after_step)
                for case, division in gap_pass.run(left):
                    found[case] = tuple(self._unit * size for size in division)
            gap *= GAP_GROWTH
        return found


class _GapPass:
    """One gap: the prefixes, and what the suffixs of all cases are built of."""

    def __init__(
        self,
        tasks: Sequence[PricedOptions],
        others: Mapping[int, PricedOptions],
        gap: int,
        price: int,
        capacity: int,
        after_step: Callable[[], None],
    ) -> None:
        self._after_step = after_step
        self._scale = ScoreScale.of([*tasks, *others.values()], gap)
        self._rows = [self._scale.row(task) for task in tasks]
        self._others = {index: self._scale.row(task) for index, task in others.items()}
        self._capacity = capacity
        self._fewest, self._most = self._workers_before()
        self._idle = self._scale.idle_workers(price, max(0, capacity - self._fewest[-1]))
        self._prefixes = self._make_prefixes()

    def _workers_before(self) -> tuple[list[int], list[int]]:
        """Return the fewest and the most workers of the tasks before each, whatever the case."""
        fewest, most = [0], [0]
        for index, row in enumerate(self._rows):
            either = [row, self._others.get(index, row)]
            fewest.append(fewest[-1] + min(int(each.sizes[0]) for each in either))
            most.append(most[-1] + max(int(each.sizes[-1]) for each in either))
        return fewest, most

    def _make_prefixes(self) -> list[PrefixTable | None]:
        """Return the head before each task, and that of all; None where nothing is within bounds."""
        prefixes: list[PrefixTable | None] = [PrefixTable.empty(self._scale.dtype)]
        for index, row in enumerate(self._rows, start=1):
            least = self._capacity - (self._most[-1] - self._most[index]) - (self._idle.end - 1)
            most = self._capacity - (self._fewest[-1] - self._fewest[index])
            bounds = Bounds(least, most, self._scale.limit)
            prefixes.append(prefixes[-1].append(row, bounds) if prefixes[-1] else None)
            self._after_step()
        return prefixes

    def run(self, cases: Collection[Case]) -> Iterator[tuple[Case, tuple[int, ...]]]:
        """Yield the cases of which a division is found, with the best, in units."""
        yield from self._descend(len(self._rows), self._idle, [(case, case) for case in cases])

    def _descend(
        self, end: int, suffix: SuffixTable, cases: Sequence[tuple[Case, Case]]
    ) -> Iterator[tuple[Case, tuple[int, ...]]]:
        """Yield the cases that share the suffix of the tasks from ``end`` on; with each what is to come of it."""
        by_next: dict[int, list[tuple[Case, Case]]] = defaultdict(list)
        for case, rest in cases:
            if rest:
                index = max(rest)
                by_next[index].append((case, rest - {index}))
                continue
            self._after_step()
            if (division := self._join(end, suffix)) is not None:
                yield case, division
        first = min(by_next, default=end)
        for index in range(end - 1, first - 1, -1):
            bounds = Bounds(
                self._capacity - self._most[index],
                self._capacity - self._fewest[index],
                self._scale.limit,
            )
            self._after_step()
            if index in by_next and (changed := suffix.prepend(self._others[index], bounds)):
                yield from self._descend(index, changed, by_next[index])
            longer = suffix.prepend(self._rows[index], bounds) if index > first else None
            if longer is None:
                return
            suffix = longer

    def _join(self, end: int, suffix: SuffixTable) -> tuple[int, ...] | None:
        prefix = self._prefixes[end]
        return join(prefix, suffix, self._capacity, self._scale.limit) if prefix else None
