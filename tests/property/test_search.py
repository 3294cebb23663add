"""The search for the best division against brute force, with ties and wide ranges."""

import itertools
from collections.abc import Sequence

import numpy as np
from hypothesis import example, given, strategies as st

from controller.core.rules.planner.options import Options, score
from controller.core.rules.planner.search import best_division
from tests.fakes.examples import examples

# Few values make plateaus and ties; the others leave no room for the change in the same 64 bits.
_GAINS = st.integers(-3, 3) | st.integers(-(2**50), 2**50)


@st.composite
def options(draw: st.DrawFn) -> Options:
    unit = draw(st.sampled_from([1, 2, 4]))
    sizes = [unit * size for size in sorted(draw(st.sets(st.integers(1, 8), max_size=5)))]
    present = draw(st.integers(0, 12))
    if draw(st.booleans()):
        sizes = [0, *sizes]
    return as_options([(size, draw(_GAINS)) for size in sizes], present)


def as_options(gains: Sequence[tuple[int, int]], present: int) -> Options:
    sizes = np.array([size for size, _ in gains], np.int64)
    return Options(sizes, np.array([gain for _, gain in gains], np.int64), abs(sizes - present))


def by_brute_force(tasks: Sequence[Options], capacity: int) -> tuple[int, ...] | None:
    best: tuple[int, int, tuple[int, ...]] | None = None
    for places in itertools.product(*(range(len(task.sizes)) for task in tasks)):
        pairs = list(zip(tasks, places, strict=True))
        sizes = tuple(int(task.sizes[place]) for task, place in pairs)
        if sum(sizes) > capacity:
            continue
        gain = sum(int(task.gains[place]) for task, place in pairs)
        change = sum(int(task.changes[place]) for task, place in pairs)
        best = max(best or (gain, -change, sizes), (gain, -change, sizes))
    return best[2] if best else None


@examples(300)
@given(tasks=st.lists(options(), max_size=6), capacity=st.integers(0, 16))
# A gap so wide that lost gain and change do not fit into one number of 64 bits.
@example(
    tasks=[as_options([(0, 0), (3, 2**52)], 2**20), as_options([(0, 0), (2, 2**52 - 1)], 0)],
    capacity=4,
)
# A price that is far beyond the gap, and changes of many workers.
@example(
    tasks=[as_options([(0, 0), (8192, 2**51)], 0), as_options([(0, 0), (8192, 2**51 - 1)], 8192)],
    capacity=8192,
)
# Two sizes are worth as much and as far from the present one: the larger wins.
@example(tasks=[as_options([(0, 0), (2, 5), (6, 5)], 4)], capacity=8)
def test_the_division_is_the_one_that_brute_force_finds(
    tasks: list[Options], capacity: int
) -> None:
    assert best_division(tasks, capacity) == by_brute_force(tasks, capacity)


@examples(30)
@given(seed=st.integers(0, 2**32 - 1), num_tasks=st.integers(1, 4), steps=st.integers(1, 40))
def test_with_many_sizes_the_gain_is_that_of_the_plain_recurrence(
    seed: int, num_tasks: int, steps: int
) -> None:
    source = np.random.default_rng(seed)
    sizes = np.arange(300)
    tasks = []
    for _ in range(num_tasks):
        gains = np.rint(1e9 * np.sqrt(sizes // steps * steps) * source.uniform(1, 3)).astype(int)
        noise = source.integers(0, 10**8, len(sizes)) * (source.random() < 0.5)
        tasks.append(Options(sizes, gains + noise, abs(sizes - source.integers(0, 300))))
    found = best_division(tasks, 299)
    assert found is not None
    best = np.zeros(300, np.int64)
    for task in tasks:
        best = np.array([(best[: n + 1][::-1] + task.gains[: n + 1]).max() for n in range(300)])
    gain, _ = score(tasks, found)
    assert (gain, sum(found) <= 299) == (best[299], True)


@examples(100)
@given(
    tasks=st.lists(options(), min_size=1, max_size=5), capacity=st.integers(0, 16), data=st.data()
)
def test_without_a_size_the_others_are_what_is_left(
    tasks: list[Options], capacity: int, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, len(tasks) - 1))
    size = data.draw(st.sampled_from([0, *tasks[row].sizes.tolist()]))
    tasks[row] = tasks[row].without(size)
    best = best_division(tasks, capacity)
    assert best == by_brute_force(tasks, capacity)
    assert best is None or best[row] != size
