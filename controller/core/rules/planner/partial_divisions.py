"""The recurrence of the dynamic program, on arrays: least scores of some tasks by their workers.

A *suffix table* covers the tasks from one task to the last; it grows towards the first task. A
*prefix table* covers the tasks before one task; it grows towards the last. Both keep only scores
within a limit, and both can show which sizes lead to a score.

Of equal scores the larger size for the first task wins, then for the second, and so on. A suffix
table is read from its first task on, so this is the largest size at each step. A prefix table is
read from its last task back, so it must store a rank for each division.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Optional, TypeAlias

import numpy as np

from controller.core.rules.planner.options import IntArray

Scores: TypeAlias = IntArray
"""Lost gain and change in one number each. Arrays of Python integers where 64 bits are too few."""


class ScoreRow(NamedTuple):
    """The options of one task: sizes in units, ascending, and the score of each size."""

    sizes: IntArray
    scores: Scores


class Bounds(NamedTuple):
    """The range of workers, in units and inclusive, and the largest score that can matter."""

    least: int
    most: int
    limit: int


@dataclass(slots=True, eq=False)
class SuffixTable:
    """Least scores of the tasks from one task on, by their workers, idle workers included.

    Attributes:
        begin: Number of workers that the first score belongs to.
        scores: Least score for each number of workers; above the limit if no division is within it.
        row: Options of the first of these tasks; None if the table covers idle workers only.
        rest: The table of the tasks after the first.
        known: Divisions that were read already, by number of workers.
    """

    begin: int
    scores: Scores
    row: ScoreRow | None = None
    rest: Optional["SuffixTable"] = None
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def prepend(self, row: ScoreRow, bounds: Bounds) -> "SuffixTable | None":
        """Return the table with one more task in front; None if no score is within the bounds."""
        first = int(row.sizes[0])
        begin, width = self.begin + first, len(self.scores)
        total = np.full(width + int(row.sizes[-1]) - first, bounds.limit + 1, self.scores.dtype)
        for size, score in zip((row.sizes - first).tolist(), row.scores.tolist(), strict=True):
            part = total[size : size + width]
            # One vector operation per size instead of one per pair of sizes: this loop is the hot
            # spot of the planner.
            np.minimum(part, self.scores + score, out=part)
        kept = _slice_within(total, begin, bounds)
        if kept is None:
            return None
        return SuffixTable(begin + kept.start, total[kept], row, self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, if together they have ``workers`` units.

        The score at ``workers`` must be within the limit.
        """
        path: list[tuple[SuffixTable, int, int]] = []
        suffix = self
        # The cases of ``variants`` share tables. Memoising each step lets a case stop at the first
        # table that another case has read.
        while workers not in suffix.known and suffix.row is not None and suffix.rest is not None:
            size = _largest_size(
                suffix.row, int(suffix.scores[workers - suffix.begin]), suffix.rest, workers
            )
            path.append((suffix, workers, size))
            suffix, workers = suffix.rest, workers - size
        division = suffix.known.get(workers, ())
        for suffix, workers, size in reversed(path):
            division = (size, *division)
            suffix.known[workers] = division
        return division


def _largest_size(row: ScoreRow, score: int, rest: SuffixTable, workers: int) -> int:
    """Return the largest size of the first task that leads to ``score``."""
    left = workers - row.sizes
    fits = (left >= rest.begin) & (left < rest.end)
    attains = row.scores[fits] + rest.scores[left[fits] - rest.begin] == score
    # Sizes ascend, so the last hit is the largest size: the tie rule of the planner.
    return int(row.sizes[fits][attains][-1])


@dataclass(slots=True, eq=False)
class PrefixTable:
    """Least scores of the tasks before one task, by their workers.

    Attributes:
        begin: Number of workers that the first score belongs to.
        scores: Least score for each number of workers; above the limit if no division is within it.
        ranks: Rank of each division in the tie rule. Larger wins; no two ranks are equal.
        taken: Size of the last of these tasks; empty if there is no task.
        rest: The table of the tasks before the last.
    """

    begin: int
    scores: Scores
    ranks: IntArray
    taken: IntArray
    rest: Optional["PrefixTable"] = None

    @classmethod
    def empty(cls, dtype: "np.dtype[np.int64]") -> "PrefixTable":
        """Return the table of no task."""
        nothing = np.zeros(1, np.int64)
        return cls(0, nothing.astype(dtype), nothing, nothing[:0])

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def append(self, row: ScoreRow, bounds: Bounds) -> "PrefixTable | None":
        """Return the table with one more task at the end; None if no score is within the bounds."""
        first = int(row.sizes[0])
        begin, width = self.begin + first, len(self.scores)
        length = width + int(row.sizes[-1]) - first
        total = np.full(length, bounds.limit + 1, self.scores.dtype)
        ranks, taken = np.full(length, -1), np.zeros(length, np.int64)
        for size, score in zip(row.sizes.tolist(), row.scores.tolist(), strict=True):
            part = slice(size - first, size - first + width)
            scores = self.scores + score
            # Of equal scores the better shorter prefix wins: the tie rule looks at earlier tasks
            # first. Ranks are distinct, so the size of the new task can't decide here.
            is_better = (scores < total[part]) | (
                (scores == total[part]) & (self.ranks > ranks[part])
            )
            np.copyto(total[part], scores, where=is_better)
            np.copyto(ranks[part], self.ranks, where=is_better)
            taken[part][is_better] = size
        kept = _slice_within(total, begin, bounds)
        if kept is None:
            return None
        # ``join`` compares divisions with different numbers of workers. So all kept divisions are
        # ranked together: by their shorter prefix, then by the size of the new task.
        order = np.lexsort((taken[kept], ranks[kept]))
        ranked = np.empty(len(order), np.int64)
        ranked[order] = np.arange(len(order))
        return PrefixTable(begin + kept.start, total[kept], ranked, taken[kept], self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, if together they have ``workers`` units."""
        sizes: list[int] = []
        prefix: PrefixTable | None = self
        while prefix is not None and prefix.rest is not None:
            sizes.append(int(prefix.taken[workers - prefix.begin]))
            workers -= sizes[-1]
            prefix = prefix.rest
        return tuple(reversed(sizes))


def join(
    prefix: PrefixTable, suffix: SuffixTable, capacity: int, limit: int
) -> tuple[int, ...] | None:
    """Return the best division of all tasks, sizes in units; None if none is within the limit.

    Args:
        prefix: The table of the tasks before some task.
        suffix: The table of that task, all later ones, and idle workers.
        capacity: Number of units that all of them have together.
        limit: The largest score that counts.
    """
    low = max(prefix.begin, capacity - suffix.end + 1)
    high = min(prefix.end, capacity - suffix.begin + 1)
    if low >= high:
        return None
    # Prefix and suffix share the capacity exactly. Idle workers are part of the suffix, so nothing
    # is lost by asking for equality.
    others = suffix.scores[capacity - high + 1 - suffix.begin : capacity - low + 1 - suffix.begin]
    scores = prefix.scores[low - prefix.begin : high - prefix.begin] + others[::-1]
    least = scores.min()
    if least > limit:
        return None
    (is_best,) = (scores == least).nonzero()
    # Several splits may have the least score. The prefix with the highest rank decides, because it
    # holds the first tasks.
    place = int(is_best[prefix.ranks[low - prefix.begin + is_best].argmax()])
    return prefix.division(low + place) + suffix.division(capacity - low - place)


def _slice_within(scores: Scores, begin: int, bounds: Bounds) -> "slice[int, int, None] | None":
    """Return the range of scores that are within the bounds; None if there is none."""
    low = max(bounds.least - begin, 0)
    (is_within,) = (scores[low : max(bounds.most + 1 - begin, low)] <= bounds.limit).nonzero()
    if not len(is_within):
        return None
    # Scores above the limit may remain inside the range. Only the ends are cut off: that keeps the
    # table an array without gaps.
    return slice(low + int(is_within[0]), low + int(is_within[-1]) + 1)
