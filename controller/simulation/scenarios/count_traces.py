"""Turns counts of present nodes, one per tick, into nodes that leave and return.

Public data on spot instances often has this form. Which node leaves is not in it: one is drawn of
those that are present, always the same for the same counts, and the node that left first returns
first.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CountChange:
    """One node leaves or returns at a tick."""

    tick: int
    node: str
    is_away: bool


def node_names(counts: Sequence[int]) -> tuple[str, ...]:
    """Return a name for each node of the largest count; those present at the start come first."""
    most = max(counts)
    return tuple(f"node{number:0{len(str(most))}d}" for number in range(most))


def changes_of(counts: Sequence[int]) -> list[CountChange]:
    """Return the changes that give the counts; nodes beyond the first count leave at tick 0."""
    names = node_names(counts)
    present, away = list(names), deque[str]()
    rng = random.Random(0)  # noqa: S311 - not for secrets
    found: list[CountChange] = []
    for tick, count in enumerate(counts):
        while len(present) > count:
            # The first count decides who is absent from the start: the last names.
            number = rng.randrange(len(present)) if tick else len(present) - 1
            away.append(present.pop(number))
            found.append(CountChange(tick, away[-1], is_away=True))
        while len(present) < count:
            present.append(away.popleft())
            found.append(CountChange(tick, present[-1], is_away=False))
    return found
