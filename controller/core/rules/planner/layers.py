"""The plain recurrence, on arrays: the least score that some of the tasks can have, by their workers.

A *layer* is built from the last task to the first; a *head* from the first task on. Both keep only what is
within a limit, and tell which sizes lead to a score. Of equal scores the larger size for the first task wins,
then for the second, and so on: a layer is read from its first task on, so that is the largest size at
every step; a head is read backwards, so it ranks its divisions.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, Optional, TypeAlias

import numpy as np

from controller.core.rules.planner.options import Whole

Scores: TypeAlias = Whole
"""Lost gain and change in one number each; where 64 bits do not hold it, arrays of Python's numbers."""


class ScoreRow(NamedTuple):
    """What one task may take: sizes in units, ascending, and the score of each."""

    sizes: Whole
    scores: Scores


class Bounds(NamedTuple):
    """Workers, in units, that are of use, both included, and the largest score that is."""

    least: int
    most: int
    limit: int


@dataclass(slots=True, eq=False)
class Layer:
    """Least scores of the tasks from one on, idle workers included, by all of their workers.

    Attributes:
        begin: The workers of the first score.
        scores: Larger than the limit where nothing is within it.
        row: What the first of these tasks may take; None behind the last task.
        rest: The layer of the others.
        known: The divisions that were read, by their workers.
    """

    begin: int
    scores: Scores
    row: ScoreRow | None = None
    rest: Optional["Layer"] = None
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def before(self, row: ScoreRow, bounds: Bounds) -> "Layer | None":
        """Return the layer with one more task before these; None where nothing is within bounds."""
        first = int(row.sizes[0])
        begin, width = self.begin + first, len(self.scores)
        total = np.full(width + int(row.sizes[-1]) - first, bounds.limit + 1, self.scores.dtype)
        for size, score in zip((row.sizes - first).tolist(), row.scores.tolist(), strict=True):
            part = total[size : size + width]
            np.minimum(part, self.scores + score, out=part)
        kept = _within(total, begin, bounds)
        if kept is None:
            return None
        return Layer(begin + kept.start, total[kept], row, self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, where all have ``workers``; its score is within the limit."""
        path: list[tuple[Layer, int, int]] = []
        layer = self
        while workers not in layer.known and layer.row is not None and layer.rest is not None:
            size = _largest(
                layer.row, int(layer.scores[workers - layer.begin]), layer.rest, workers
            )
            path.append((layer, workers, size))
            layer, workers = layer.rest, workers - size
        division = layer.known.get(workers, ())
        for layer, workers, size in reversed(path):
            division = (size, *division)
            layer.known[workers] = division
        return division


def _largest(row: ScoreRow, score: int, rest: Layer, workers: int) -> int:
    """Return the largest size with which the score comes about."""
    left = workers - row.sizes
    fits = (left >= rest.begin) & (left < rest.end)
    attains = row.scores[fits] + rest.scores[left[fits] - rest.begin] == score
    return int(row.sizes[fits][attains][-1])


@dataclass(slots=True, eq=False)
class Head:
    """Least scores of the tasks before one, by all of their workers.

    Attributes:
        begin: The workers of the first score.
        scores: Larger than the limit where nothing is within it.
        ranks: The larger, the better among equal scores; no two are equal.
        taken: What the last of these tasks takes; empty before the first task.
        rest: The head of the others.
    """

    begin: int
    scores: Scores
    ranks: Whole
    taken: Whole
    rest: Optional["Head"] = None

    @classmethod
    def empty(cls, dtype: "np.dtype[np.int64]") -> "Head":
        """Return the head of no task."""
        nothing = np.zeros(1, np.int64)
        return cls(0, nothing.astype(dtype), nothing, nothing[:0])

    @property
    def end(self) -> int:
        """One more than the largest number of workers."""
        return self.begin + len(self.scores)

    def after(self, row: ScoreRow, bounds: Bounds) -> "Head | None":
        """Return the head with one more task after these; None where nothing is within bounds."""
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
        kept = _within(total, begin, bounds)
        if kept is None:
            return None
        order = np.lexsort((taken[kept], ranks[kept]))
        ranked = np.empty(len(order), np.int64)
        ranked[order] = np.arange(len(order))
        return Head(begin + kept.start, total[kept], ranked, taken[kept], self)

    def division(self, workers: int) -> tuple[int, ...]:
        """Return the size of each task, in units, where all have ``workers``."""
        sizes: list[int] = []
        head: Head | None = self
        while head is not None and head.rest is not None:
            sizes.append(int(head.taken[workers - head.begin]))
            workers -= sizes[-1]
            head = head.rest
        return tuple(reversed(sizes))


def join(head: Head, layer: Layer, capacity: int, limit: int) -> tuple[int, ...] | None:
    """Return the best division of all tasks; None where none is within the limit."""
    low = max(head.begin, capacity - layer.end + 1)
    high = min(head.end, capacity - layer.begin + 1)
    if low >= high:
        return None
    others = layer.scores[capacity - high + 1 - layer.begin : capacity - low + 1 - layer.begin]
    scores = head.scores[low - head.begin : high - head.begin] + others[::-1]
    least = scores.min()
    if least > limit:
        return None
    (is_best,) = (scores == least).nonzero()
    place = int(is_best[head.ranks[low - head.begin + is_best].argmax()])
    return head.division(low + place) + layer.division(capacity - low - place)


def _within(scores: Scores, begin: int, bounds: Bounds) -> "slice[int, int, None] | None":
    """Return the part that is within bounds; None where nothing is."""
    low = max(bounds.least - begin, 0)
    (is_within,) = (scores[low : max(bounds.most + 1 - begin, low)] <= bounds.limit).nonzero()
    if not len(is_within):
        return None
    return slice(low + int(is_within[0]), low + int(is_within[-1]) + 1)
