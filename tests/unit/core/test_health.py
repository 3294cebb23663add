"""The judgement of an unreachable node."""

from dataclasses import replace

import pytest

from controller.core.health import NodeEvidence, judge
from controller.core.policy import Policy
from nodeagent.protocol.ids import NodeId

POLICY = Policy()
NOTHING = NodeEvidence(
    silent_s=1.0,
    answers={},
    num_peers=2,
    has_open_probes=False,
    advanced=None,
    has_failed_collective=False,
    stalled=None,
)
N1, N3 = NodeId("n1"), NodeId("n3")


def test_losing_sight_of_a_node_is_not_losing_the_node() -> None:
    assert not judge(replace(NOTHING, silent_s=10_000.0), POLICY).is_lost


def test_a_task_that_advances_outweighs_everything_else() -> None:
    evidence = replace(
        NOTHING,
        advanced="gpt-a has reached iteration 14 since",
        answers={N1: False, N3: False},
        has_failed_collective=True,
    )
    judgement = judge(evidence, POLICY)
    assert not judgement.is_lost
    assert "gpt-a has reached iteration 14" in judgement.reason


def test_a_node_whose_ssh_port_no_peer_finds_is_lost() -> None:
    judgement = judge(replace(NOTHING, answers={N1: False, N3: False}), POLICY)
    assert judgement.is_lost
    assert "n1, n3" in judgement.reason


def test_one_peer_alone_condemns_nobody_while_another_still_looks() -> None:
    evidence = replace(NOTHING, answers={N1: False}, has_open_probes=True)
    assert not judge(evidence, POLICY).is_lost


def test_one_answering_peer_is_enough_to_presume_training() -> None:
    assert not judge(replace(NOTHING, answers={N1: False, N3: True}), POLICY).is_lost


def test_failed_collectives_do_not_outweigh_an_answering_port() -> None:
    evidence = replace(NOTHING, answers={N1: True}, has_failed_collective=True)
    assert not judge(evidence, POLICY).is_lost


def test_an_answering_node_without_agent_is_given_up_in_the_end() -> None:
    evidence = replace(NOTHING, answers={N1: True}, has_failed_collective=True, silent_s=61.0)
    assert judge(evidence, POLICY).is_lost


@pytest.mark.parametrize(
    "evidence",
    [
        replace(NOTHING, num_peers=0, has_failed_collective=True),
        replace(NOTHING, num_peers=0, stalled="gpt-a has not advanced for 9 s"),
    ],
)
def test_failed_or_stopped_training_decides_where_no_peer_can_look(evidence: NodeEvidence) -> None:
    assert judge(evidence, POLICY).is_lost


def test_failed_collectives_wait_for_the_peers_that_were_asked() -> None:
    assert not judge(replace(NOTHING, has_failed_collective=True), POLICY).is_lost


def test_a_node_that_nobody_can_see_stays_unreachable() -> None:
    judgement = judge(replace(NOTHING, num_peers=0, silent_s=3600.0), POLICY)
    assert not judgement.is_lost
    assert "no other node can look" in judgement.reason
