"""Problems that differ in a few tasks: solved together, alone, and by brute force."""

import numpy as np
from hypothesis import given, strategies as st

from controller.core.rules.planner.options import Options
from controller.core.rules.planner.variants import best_divisions
from tests.fakes.examples import examples
from tests.property.test_search import as_options, by_brute_force

_GAINS = st.integers(-3, 6) | st.integers(-40, 40) | st.integers(-(2**50), 2**50)


@st.composite
def usual_options(draw: st.DrawFn) -> Options:
    unit = draw(st.sampled_from([1, 2, 4]))
    sizes = [0, *(unit * size for size in sorted(draw(st.sets(st.integers(1, 8), max_size=5))))]
    present = draw(st.integers(0, 12) | st.sampled_from([2**13, 2**20]))
    return as_options([(size, draw(_GAINS)) for size in sizes], present)


@st.composite
def changed_options(draw: st.DrawFn, usual: Options) -> Options:
    """Faulted, finished, without a size, or something else altogether."""
    match draw(st.integers(0, 3)):
        case 0:
            paid = draw(st.integers(0, 10)) * (usual.changes == 0)
            return Options(usual.sizes, usual.gains - paid, usual.changes)
        case 1:
            nothing = np.zeros(1, np.int64)
            return Options(nothing, nothing, nothing)
        case 2:
            return usual.without(draw(st.sampled_from(usual.sizes.tolist())))
        case _:
            return draw(usual_options())


@examples(250)
@given(data=st.data(), capacity=st.integers(0, 16))
def test_every_case_is_what_brute_force_finds(data: st.DataObject, capacity: int) -> None:
    tasks = data.draw(st.lists(usual_options(), min_size=1, max_size=5))
    others = {
        index: data.draw(changed_options(task))
        for index, task in enumerate(tasks)
        if data.draw(st.booleans())
    }
    chosen = (
        st.frozensets(st.sampled_from(sorted(others)), max_size=3)
        if others
        else st.just(frozenset())
    )
    cases = data.draw(st.sets(chosen, min_size=1, max_size=8))
    found = best_divisions(tasks, others, cases, capacity)
    assert found.keys() == cases
    for case, division in found.items():
        present = [others[i] if i in case else task for i, task in enumerate(tasks)]
        assert division == by_brute_force(present, capacity)


def test_of_equal_divisions_before_a_task_the_one_with_the_larger_first_size_wins() -> None:
    tasks = [
        as_options([(0, -99), (1, 1), (3, 3)], 2),
        as_options([(0, 0), (4, 4)], 2),
        as_options([(0, -99), (1, 1), (3, 3)], 2),
        as_options([(0, 0)], 0),
    ]
    found = best_divisions(tasks, {}, {frozenset()}, 6)
    assert found[frozenset()] == by_brute_force(tasks, 6) == (3, 0, 3, 0)
