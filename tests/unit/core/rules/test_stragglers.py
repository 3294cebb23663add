"""A straggler computes longer than its peers; a rank that waited for a core is none."""

from statistics import median

import pytest
from hypothesis import given, strategies as st

from controller.core.rules.policy import Policy
from controller.core.rules.stragglers import Computing, Peers, is_straggler

POLICY = Policy()


def is_slow_beside(own: Computing, peers: list[Computing], average_s: float = 1.2) -> bool:
    stage = Peers()
    for one in (*peers, own):
        stage.add(one)
    return is_straggler(own, stage, average_s, POLICY)


@pytest.mark.parametrize(
    ("own", "is_slow"),
    [
        (Computing(1.5, 0.01), True),
        (Computing(1.0, 0.01), False),
        (Computing(1.5, 0.01, waited_s=0.45), False),
        (Computing(1.5, 0.01, waited_s=0.1), True),
        (Computing(1.5, 0.01, waited_s=9.0), False),
    ],
)
def test_only_computing_with_a_core_counts(own: Computing, is_slow: bool) -> None:
    assert is_slow_beside(own, [Computing(1.0, 0.01)] * 3) is is_slow


def test_peers_that_waited_for_a_core_make_no_rank_a_straggler() -> None:
    starved = [Computing(1.0, 0.01, waited_s=0.6)] * 3
    assert not is_slow_beside(Computing(1.0, 0.01), starved)


def test_a_rank_without_peers_is_no_straggler() -> None:
    assert not is_slow_beside(Computing(9.0, 0.0), [])


TIMES = st.integers(1, 6).map(lambda number: number / 4)  # few values, so that ranks are equal
RANKS = st.builds(Computing, TIMES, TIMES, TIMES)


@given(st.lists(RANKS, max_size=9), st.lists(RANKS, min_size=1, max_size=4), st.data())
def test_medians_without_one_rank_are_those_of_the_others(
    stay: list[Computing], leave: list[Computing], data: st.DataObject
) -> None:
    stage = Peers()
    for one in data.draw(st.permutations([*stay, *leave])):
        stage.add(one)
    for one in leave[1:]:
        stage.remove(one)
    own = leave[0]
    assert stage.has_others() is bool(stay)
    if stay:
        assert stage.median_s(own) == median(one.median_s for one in stay)
        assert stage.working_s(own) == median(one.working_s for one in stay)
        assert stage.spread_s(own) == median(one.spread_s for one in stay)
