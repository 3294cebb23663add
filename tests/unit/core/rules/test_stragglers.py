"""A straggler computes longer than its peers; a rank that waited for a core is none."""

import pytest

from controller.core.rules.policy import Policy
from controller.core.rules.stragglers import Computing, is_straggler

PEERS = [Computing(1.0, 0.01)] * 3
POLICY = Policy()


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
    assert is_straggler(own, PEERS, 1.2, POLICY) is is_slow


def test_peers_that_waited_for_a_core_make_no_rank_a_straggler() -> None:
    starved = [Computing(1.0, 0.01, waited_s=0.6)] * 3
    assert not is_straggler(Computing(1.0, 0.01), starved, 1.2, POLICY)


def test_a_rank_without_peers_is_no_straggler() -> None:
    assert not is_straggler(Computing(9.0, 0.0), [], 1.0, POLICY)
