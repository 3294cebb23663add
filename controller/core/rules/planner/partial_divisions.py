"""The plain recurrence, on arrays: the least score that some of the tasks can have, by their workers.

A *suffix* is built from the last task to the first; a *prefix* from the first task on. Both keep only what is
within a limit, and tell which sizes lead to a score. Of equal scores the larger size for the first task wins,
then for the second, and so on: a suffix is read from its first task on, so that is the largest size at
every step; a prefix is read backwards, so it ranks its divisions.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Optional, TypeAlias

import numpy as np

from controller.core.rules.planner.options import IntArray

Scores: TypeAlias = IntArray
"""Lost gain and change in one number each; where 64 bits do not hold it, arrays of Python's numbers."""


class ScoreRow(NamedTuple):
    """What one task may take: sizes in units, ascending, and the score of each."""

    sizes: IntArray
    scores: Scores


class Bounds(NamedTuple):
    """Workers, in units, that are of use, both included, and the largest score that is."""

    least: int
    most: int
    limit: int


@dataclass(slots=True, eq=False)
class SuffixTable:
    """Least scores of the tasks from one on, idle workers included, by all of their workers.

    Attributes:
        begin: The workers of the first score.
        scores: Larger than the limit where nothing is within it.
        row: What the first of these tasks may take; None behind the last task.
        rest: The suffix of the others.
        known: The divisions that were read, by their workers.
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
        """Return the suffix with one more task before these; None where nothing is within bounds."""
        first = int(row.sizes[0])
        begin, width = self.begin + first, len(self.scores)
        total = np.full(width + int(row.sizes[-1]) - first, bounds.limit + 1, self.scores.dtype)
        for size, score in zip((row.sizes - first).tolist(), row.scores.tolist(), strict=True):
            part = total[size : size + width]
            np.minimum(part, self.scores + score, out=part)
        kept = _slice_within(total, begin, bounds)
        if kept is None:
            return None
        return SuffixTable(begin + kept.start, total[kept], row, self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, where all have ``workers``; its score is within the limit."""
        path: list[tuple[SuffixTable, int, int]] = []
        suffix = self
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
    """Return the largest size with which the score comes about."""
    left = workers - row.sizes
    fits = (left >= rest.begin) & (left < rest.end)
    attains = row.scores[fits] + rest.scores[left[fits] - rest.begin] == score
    return int(row.sizes[fits][attains][-1])


@dataclass(slots=True, eq=False)
class PrefixTable:
    """Least scores of the tasks before one, by all of their workers.

    Attributes:
        begin: The workers of the first score.
        scores: Larger than the limit where nothing is within it.
        ranks: The larger, the better among equal scores; no two are equal.
        taken: What the last of these tasks takes; empty before the first task.
        rest: The prefix of the others.
    """

    begin: int
    scores: Scores
    ranks: IntArray
    taken: IntArray
    rest: Optional["PrefixTable"] = None

    @classmethod
    def empty(cls, dtype: "np.dtype[np.int64]") -> "PrefixTable":
        """Return the prefix of no task."""
        nothing = np.zeros(1, np.int64)
        return cls(0, nothing.astype(dtype), nothing, nothing[:0])

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def append(self, row: ScoreRow, bounds: Bounds) -> "PrefixTable | None":
        """Return the prefix with one more task after these; None where nothing is within bounds."""
        first = int(row.sizes[0])
        begin, width = self.begin + first, len(self.scores)
        length = width + int(row.sizes[-1]) - first
        total = np.full(length, bounds.limit + 1, self.scores.dtype)
        ranks, taken = np.full(length, -1), np.zeros(length, np.int64)
        for size, score in zip(row.sizes.tolist(), row.scores.tolist(), strict=True):
            part = slice(size - first, size - first + width)
            scores = self.scores + score
            is_better = (scores < total[part]) | (
                (scores == total[part]) & (self.ranks > ranks[part])
            )
            np.copyto(total[part], scores, where=is_better)
            np.copyto(ranks[part], self.ranks, where=is_better)
            taken[part][is_better] = size
        kept = _slice_within(total, begin, bounds)
        if kept is None:
            return None
        order = np.lexsort((taken[kept], ranks[kept]))
        ranked = np.empty(len(order), np.int64)
        ranked[order] = np.arange(len(order))
        return PrefixTable(begin + kept.start, total[kept], ranked, taken[kept], self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, where all have ``workers``."""
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
    """Return the best division of all tasks; None where none is within the limit."""
    low = max(prefix.begin, capacity - suffix.end + 1)
    high = min(prefix.end, capacity - suffix.begin + 1)
    if low >= high:
        return None
    others = suffix.scores[capacity - high + 1 - suffix.begin : capacity - low + 1 - suffix.begin]
    scores = prefix.scores[low - prefix.begin : high - prefix.begin] + others[::-1]
    least = scores.min()
    if least > limit:
        return None
    (is_best,) = (scores == least).nonzero()
    place = int(is_best[prefix.ranks[low - prefix.begin + is_best].argmax()])
    return prefix.division(low + place) + suffix.division(capacity - low - place)


def _slice_within(scores: Scores, begin: int, bounds: Bounds) -> "slice[int, int, None] | None":
    """Return the part that is within bounds; None where nothing is."""
    low = max(bounds.least - begin, 0)
    (is_within,) = (scores[low : max(bounds.most + 1 - begin, low)] <= bounds.limit).nonzero()
    if not len(is_within):
        return None
    return slice(low + int(is_within[0]), low + int(is_within[-1]) + 1)
