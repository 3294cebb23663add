"""The judgement of an unreachable node."""

from dataclasses import replace

import pytest

from controller.core.rules.node_loss import NodeEvidence, judge
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId

POLICY = Policy()
HEALS = Policy(is_auto_heal=True)
NOTHING = NodeEvidence(
    silent_s=1.0, num_peers=2, answers={}, has_open_probes=False, advanced=None, suffering=None
)
N1, N3 = NodeId("n1"), NodeId("n3")
SUFFERING = "the collectives of gpt-a failed"


def is_lost(**fields: object) -> bool:
    return judge(replace(NOTHING, **fields), POLICY).is_lost  # type: ignore[arg-type]


def test_losing_sight_of_a_node_is_not_losing_the_node() -> None:
    assert not is_lost(silent_s=10_000.0)


def test_a_task_that_advances_outweighs_everything_else() -> None:
    assert not is_lost(advanced="gpt-a has reached iteration 14", answers={N1: "silent"})


def test_a_port_that_is_silent_to_every_peer_is_gone() -> None:
    judgement = judge(replace(NOTHING, answers={N1: "silent", N3: "silent"}), POLICY)
    assert judgement.is_lost
    assert "n1, n3" in judgement.reason


def test_one_peer_alone_condemns_nobody_while_another_still_looks() -> None:
    assert not is_lost(answers={N1: "silent"}, has_open_probes=True)


def test_one_answering_peer_is_enough_to_presume_training() -> None:
    assert not is_lost(answers={N1: "silent", N3: "answered"})


def test_a_refused_port_may_be_a_dead_ssh_server_alone() -> None:
    assert not is_lost(answers={N1: "refused", N3: "refused"})


def test_a_refused_port_and_suffering_training_are_a_lost_node() -> None:
    assert is_lost(answers={N1: "refused", N3: "silent"}, suffering=SUFFERING)


def test_a_port_that_is_refused_for_long_is_given_up_where_nothing_else_can_tell() -> None:
    assert is_lost(answers={N1: "refused"}, silent_s=POLICY.refusal_grace_s)


def test_suffering_training_does_not_outweigh_an_answering_port() -> None:
    assert not is_lost(answers={N1: "answered"}, suffering=SUFFERING)


def test_an_answering_node_without_agent_is_given_up_in_the_end() -> None:
    assert is_lost(answers={N1: "answered"}, suffering=SUFFERING, silent_s=61.0)


def test_an_answering_node_whose_training_goes_on_is_never_given_up() -> None:
    assert not is_lost(answers={N1: "answered"}, silent_s=10_000.0)


def test_suffering_training_decides_where_no_peer_could_look() -> None:
    assert is_lost(suffering=SUFFERING)


UNSEEN = {"unseen": "gpt-a", "silent_s": 400.0, "waited_s": POLICY.uncorroborated_limit_s}
"""Nobody sees the task of the node, and has not for the stated grace."""
BLIND: list[dict[str, object]] = [{"num_peers": 0}, {}, {"answers": {N1: "answered"}}]
"""Nobody can look; nobody could; whoever looks sees the port alone."""


@pytest.mark.parametrize("case", BLIND)
def test_operator_is_asked_where_nobody_can_tell_and_nothing_is_lost(
    case: dict[str, object],
) -> None:
    judgement = judge(replace(NOTHING, **UNSEEN, **case), POLICY)  # type: ignore[arg-type]
    assert (judgement.is_lost, judgement.asks) == (False, True)
    assert "no node in contact has seen gpt-a for 400 s" in judgement.reason


@pytest.mark.parametrize("case", BLIND[1:])
def test_under_auto_heal_a_node_that_nobody_can_corroborate_is_lost_after_the_grace(
    case: dict[str, object],
) -> None:
    evidence = replace(NOTHING, **UNSEEN, **case)  # type: ignore[arg-type]
    assert judge(evidence, HEALS).is_lost
    early = replace(evidence, waited_s=POLICY.uncorroborated_limit_s - 1.0)
    assert not judge(early, HEALS).is_lost
    assert not judge(replace(evidence, unseen=None), HEALS).is_lost
    cautious = judge(evidence, replace(HEALS, asks_before_loss=True))
    assert (cautious.is_lost, cautious.asks) == (False, True)


def test_controller_that_sees_nobody_asks_also_under_auto_heal() -> None:
    judgement = judge(replace(NOTHING, **UNSEEN, num_peers=0), HEALS)  # type: ignore[arg-type]
    assert (judgement.is_lost, judgement.asks) == (False, True)


def test_nothing_is_asked_about_a_node_that_is_corroborated() -> None:
    for case in (
        {"advanced": "gpt-b has reached iteration 14"},
        {"answers": {N1: "silent"}},
        {"has_open_probes": True},
        {"unseen": None},
    ):
        evidence = replace(NOTHING, **{**UNSEEN, **case})  # type: ignore[arg-type]
        assert not judge(evidence, POLICY).asks


@pytest.mark.parametrize("answers", [{}, {N1: "silent"}])
def test_nobody_is_judged_while_nobody_is_in_contact(answers: dict[NodeId, str]) -> None:
    assert not is_lost(num_peers=0, answers=answers, suffering=SUFFERING, silent_s=3600.0)


def test_where_nobody_is_in_contact_the_operator_is_asked_also_if_a_task_waits() -> None:
    waits = replace(NOTHING, num_peers=0, suffering="gpt-a waits for it")
    assert not judge(replace(waits, waited_s=POLICY.uncorroborated_limit_s - 1.0), HEALS).asks
    judgement = judge(replace(waits, waited_s=POLICY.uncorroborated_limit_s), HEALS)
    assert (judgement.is_lost, judgement.asks) == (False, True)
    assert "gpt-a waits for it" in judgement.reason
