"""Which copies of a shard a process gives up for the next one."""

from collections.abc import Iterable
from importlib import import_module

import pytest

from nodeagent.protocol.ids import Generation
from tests.fakes.wrapped import Lazy

pytestmark = pytest.mark.ranks

FIRST, SECOND = Generation(1), Generation(2)


@pytest.fixture
def copies() -> Lazy:
    return import_module("nodeagent.rank.state.held_copies").HeldCopies()


def key() -> Lazy:
    return import_module("nodeagent.rank.state.held_copies").ShardKey(0, 0, 0, 1)


def place_of(copies: Lazy, generation: Generation = FIRST) -> Lazy:
    return copies.place_for(key(), 8, generation, is_pinned=False)


def fill(copies: Lazy, iterations: Iterable[int], generation: Generation = FIRST) -> None:
    for iteration in iterations:
        copies.complete(place_of(copies, generation), iteration)


def held(copies: Lazy) -> list[int]:
    return sorted(copy.iteration for copy in copies.held())


def test_what_is_kept_is_not_overwritten_however_many_follow(copies: Lazy) -> None:
    copies.enter(FIRST, ())
    fill(copies, [1, 2, 3])
    assert held(copies) == [2, 3]
    copies.enter(SECOND, (2, 3))
    fill(copies, [4, 5], SECOND)
    assert held(copies) == [2, 3, 5]
    copies.keep(5, {key()})
    assert held(copies) == [3, 5]
    fill(copies, [6, 7], SECOND)
    assert held(copies) == [5, 7]
    copies.keep(7, set())
    assert held(copies) == []


def test_a_thread_of_an_older_generation_changes_nothing(copies: Lazy) -> None:
    copies.enter(FIRST, ())
    fill(copies, [1, 2])
    late = place_of(copies)
    copies.leave()
    with pytest.raises(RuntimeError, match="generation 1 is over"):
        place_of(copies)
    copies.enter(SECOND, (2,))
    with pytest.raises(RuntimeError, match="generation 1 is over"):
        place_of(copies)
    copies.complete(late, 3)
    assert held(copies) == [2]
    fill(copies, [4], SECOND)
    assert held(copies) == [2, 4]


def test_a_copy_that_is_on_its_way_is_forgotten_with_what_is_complete(copies: Lazy) -> None:
    copies.enter(FIRST, ())
    fill(copies, [1])
    late = place_of(copies)
    copies.forget()
    copies.complete(late, 2)
    assert held(copies) == []
    assert copies.data_of(key(), 2) is None


def test_a_place_for_which_there_is_no_memory_costs_nothing_that_is_kept(copies: Lazy) -> None:
    copies.enter(FIRST, (1, 2))
    fill(copies, [1, 2])
    with pytest.raises(RuntimeError):
        copies.place_for(key(), 2**62, FIRST, is_pinned=False)
    assert held(copies) == [1, 2]
    fill(copies, [3])
    assert held(copies) == [1, 2, 3]
