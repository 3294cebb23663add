"""Solves many problems together that differ in a few tasks: the plans for the next events.

Every task has its usual options, and may have *replacements*: its options once it is faulted, has
finished, or has started. A *case* is a set of tasks that use their replacements. All cases divide
the same workers, so one price serves them all. Their common work is done once:

- One prefix table for every number of tasks from the first on, with the usual options.
- Suffix tables from the last task on. Cases whose last tasks agree share these tables. All cases
  with the same last changed task share the table up to that task.

Once the first changed task of a case is in the suffix table, all tasks before it have their usual
options. Then prefix table and suffix table are joined, and the case is solved. A case costs about
two steps of the recurrence; a separate search costs one step per task.

The loss of an option counts against the best option of its own list, as in a separate search. A
case without a division within the first gaps is searched separately
(``controller.core.rules.planner.search``).
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
"""The tasks that use their replacements, by index."""

_GAPS: Final = 6
"""Number of gaps that are tried for all cases together."""


def best_divisions(
    tasks: Sequence[Options],
    replacements: Mapping[int, Options],
    cases: Collection[Case],
    capacity: int,
    after_step: Callable[[], None] = lambda: None,
) -> dict[Case, tuple[int, ...] | None]:
    """Return the division that ``search.best_division`` returns, for each of many cases.

    Args:
        tasks: The usual options of each task. Every task may have size 0.
        replacements: The other options of some tasks, by index.
        cases: The tasks that have their other options in a case. Every index is in
            ``replacements``.
        capacity: Number of workers, equal in all cases.
        after_step: Called after every step of the recurrence. A step takes milliseconds.

    Returns:
        By case, the size of every task; None if no division fits.
    """
    if not tasks:
        return dict.fromkeys(cases, ())
    usable = {index: task for index, task in replacements.items() if len(task.sizes)}
    possible = [case for case in cases if case <= usable.keys()]
    found: dict[Case, tuple[int, ...] | None] = dict.fromkeys(cases)
    if possible:
        # The price only makes the search fast; any price gives the right answer. So a price for one
        # case in the middle is good enough for all.
        typical = sorted(possible, key=sorted)[len(possible) // 2]
        found |= _SharedSearch(tasks, usable, typical, capacity).solve(possible, after_step)
    for case in possible:
        # The shared passes stop early. A separate search widens its gap until it has proven the
        # answer.
        if found[case] is None:
            found[case] = best_division(_options_in(case, tasks, replacements), capacity)
            after_step()
    return found


def _options_in(
    case: Case, tasks: Sequence[Options], replacements: Mapping[int, Options]
) -> list[Options]:
    return [replacements[index] if index in case else task for index, task in enumerate(tasks)]


class _SharedSearch:
    """The options of all cases at one price: the shadow price of a typical case."""

    def __init__(
        self,
        tasks: Sequence[Options],
        replacements: Mapping[int, Options],
        typical: Case,
        capacity: int,
    ) -> None:
        self._unit = unit = common_unit([*tasks, *replacements.values()])
        self._capacity = capacity // unit
        present = _options_in(typical, tasks, replacements)
        room = max(0, capacity - sum(int(task.sizes[0]) for task in present))
        growing = [task.beyond_smallest(room) for task in present]
        self._price = find_shadow_price(growing, unit, room // unit)
        self._tasks = [PricedOptions.at(self._price.value, task, unit) for task in tasks]
        self._replacements = {
            index: PricedOptions.at(self._price.value, task, unit)
            for index, task in replacements.items()
        }

    def solve(
        self, cases: Collection[Case], after_step: Callable[[], None]
    ) -> dict[Case, tuple[int, ...]]:
        """Return the best divisions that lie within the first gaps."""
        found: dict[Case, tuple[int, ...]] = {}
        gap = self._price.first_gap
        for _ in range(_GAPS):
            # A case that was found is final: no division outside the gap can lose less.
            left = [case for case in cases if case not in found]
            if left:
                kept = [task.within(gap) for task in self._tasks]
                replacements = {
                    index: task.within(gap) for index, task in self._replacements.items()
                }
                price = self._price.value
                gap_pass = _GapPass(kept, replacements, gap, price, self._capacity, after_step)
                for case, division in gap_pass.run(left):
                    found[case] = tuple(self._unit * size for size in division)
            gap *= GAP_GROWTH
        return found


class _GapPass:
    """One pass with one gap: the prefix tables, and the rows that suffix tables are built from."""

    def __init__(
        self,
        tasks: Sequence[PricedOptions],
        replacements: Mapping[int, PricedOptions],
        gap: int,
        price: int,
        capacity: int,
        after_step: Callable[[], None],
    ) -> None:
        self._after_step = after_step
        self._scale = ScoreScale.of([*tasks, *replacements.values()], gap)
        self._rows = [self._scale.row(task) for task in tasks]
        self._replacements = {index: self._scale.row(task) for index, task in replacements.items()}
        self._capacity = capacity
        self._fewest, self._most = self._workers_before()
        self._idle = self._scale.idle_workers(price, max(0, capacity - self._fewest[-1]))
        self._prefixes = self._make_prefixes()

    def _workers_before(self) -> tuple[list[int], list[int]]:
        """Return the fewest and the most workers, in any case, of the tasks before each task."""
        fewest, most = [0], [0]
        for index, row in enumerate(self._rows):
            # The bounds must hold for every case, because cases share tables. So they allow both
            # lists of options.
            either = [row, self._replacements.get(index, row)]
            fewest.append(fewest[-1] + min(int(each.sizes[0]) for each in either))
            most.append(most[-1] + max(int(each.sizes[-1]) for each in either))
        return fewest, most

    def _make_prefixes(self) -> list[PrefixTable | None]:
        """Return the prefix table before each task, and the table of all tasks.

        An entry is None if no score is within the bounds.
        """
        prefixes: list[PrefixTable | None] = [PrefixTable.empty(self._scale.dtype)]
        for index, row in enumerate(self._rows, start=1):
            least = self._capacity - (self._most[-1] - self._most[index]) - (self._idle.end - 1)
            most = self._capacity - (self._fewest[-1] - self._fewest[index])
            bounds = Bounds(least, most, self._scale.limit)
            prefixes.append(prefixes[-1].append(row, bounds) if prefixes[-1] else None)
            self._after_step()
        return prefixes

    def run(self, cases: Collection[Case]) -> Iterator[tuple[Case, tuple[int, ...]]]:
        """Yield the cases with a division within the gap, and the best division in units."""
        yield from self._descend(len(self._rows), self._idle, [(case, case) for case in cases])

    def _descend(
        self, end: int, suffix: SuffixTable, cases: Sequence[tuple[Case, Case]]
    ) -> Iterator[tuple[Case, tuple[int, ...]]]:
        """Yield the solved cases among those that share the suffix table from task ``end`` on.

        Args:
            end: First task in the table.
            suffix: The shared table.
            cases: Each case, and its changed tasks that are not in the table yet.
        """
        by_next: dict[int, list[tuple[Case, Case]]] = defaultdict(list)
        for case, rest in cases:
            if rest:
                # The table grows towards the first task, so the last open change comes next.
                index = max(rest)
                by_next[index].append((case, rest - {index}))
                continue
            self._after_step()
            if (division := self._join(end, suffix)) is not None:
                yield case, division
        # Tasks before the first branch are covered by a prefix table; extending the suffix further
        # would be wasted.
        first = min(by_next, default=end)
        for index in range(end - 1, first - 1, -1):
            bounds = Bounds(
                self._capacity - self._most[index],
                self._capacity - self._fewest[index],
                self._scale.limit,
            )
            self._after_step()
            if index in by_next and (changed := suffix.prepend(self._replacements[index], bounds)):
                yield from self._descend(index, changed, by_next[index])
            # The cases that change an earlier task all need this table. Without it none of them has
            # a division within the gap.
            longer = suffix.prepend(self._rows[index], bounds) if index > first else None
            if longer is None:
                return
            suffix = longer

    def _join(self, end: int, suffix: SuffixTable) -> tuple[int, ...] | None:
        """Return the best joined division, in units; None if none is within the gap."""
        prefix = self._prefixes[end]
        return join(prefix, suffix, self._capacity, self._scale.limit) if prefix else None
