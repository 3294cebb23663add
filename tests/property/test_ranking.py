"""The order of the divisions against all of them, sorted."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import given, strategies as st

from controller.core.rules.planner.options import Options
from controller.core.rules.planner.ranking import ranked_divisions
from tests.fakes.examples import examples


@st.composite
def options(draw: st.DrawFn) -> Options:
    sizes = np.array([0, *sorted(draw(st.sets(st.integers(1, 6), max_size=3)))], np.int64)
    # Few values make ties.
    gains = draw(st.lists(st.integers(-2, 4), min_size=len(sizes), max_size=len(sizes)))
    return Options(sizes, np.array(gains, np.int64), abs(sizes - draw(st.integers(0, 7))))


def sorted_divisions(tasks: Sequence[Options], capacity: int) -> list[tuple[int, ...]]:
    found = []
    for places in itertools.product(*(range(len(task.sizes)) for task in tasks)):
        pairs = list(zip(tasks, places, strict=True))
        sizes = tuple(int(task.sizes[place]) for task, place in pairs)
        gain = sum(int(task.gains[place]) for task, place in pairs)
        change = sum(int(task.changes[place]) for task, place in pairs)
        if sum(sizes) <= capacity:
            found.append((gain, -change, sizes))
    return [sizes for *_, sizes in sorted(found, reverse=True)]


@examples(150)
@given(tasks=st.lists(options(), max_size=4), capacity=st.integers(0, 12))
def test_every_division_comes_once_and_in_the_order_of_brute_force(
    tasks: list[Options], capacity: int
) -> None:
    assert list(ranked_divisions(tasks, capacity)) == sorted_divisions(tasks, capacity)
