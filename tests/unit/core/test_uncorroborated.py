"""Nodes that nobody can corroborate: a grace, a question, and the operator's answer."""

import pytest

from controller.core.events import LossDecided, PeerProbed
from controller.core.instructions import AnswerRequest
from controller.core.rules.policy import Policy
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import node, task, task_trained

LIMIT_S = 30.0
A = TaskId("gpt-a")
NODES_OF_A = ("n1", "n2")


def training(*, is_auto_heal: bool = False, asks_before_loss: bool = False) -> World:
    """Return a cluster of five nodes in training, of which ``n1`` and ``n2`` hold all of gpt-a."""
    policy = Policy(
        is_auto_heal=is_auto_heal,
        uncorroborated_limit_s=LIMIT_S,
        asks_before_loss=asks_before_loss,
    )
    world = World(demo_machine(num_nodes=5, policy=policy), num_iterations=10**6)
    task_trained(world, 7)
    return world


def hide(world: World, *names: str, for_s: float = 1000.0) -> None:
    for name in names:
        world.cut(name, for_s)


def say(world: World, name: str, *, is_lost: bool) -> AnswerRequest:
    world.post(LossDecided("r", "op", NodeId(name), is_lost=is_lost))
    return world.answers[-1]


def questions(world: World) -> list[str]:
    return [line.source for _, line in world.announcements if line.kind == "question"]


def lost_nodes(world: World) -> list[str]:
    lost = NodeCondition.LOST
    return [name for name in NODES_OF_A if node(world, name).contact.condition is lost]


def test_operator_is_asked_once_after_the_grace_and_training_is_left_alone() -> None:
    world = training()
    hide(world, *NODES_OF_A)
    world.run(world.now + LIMIT_S - 2.0)
    assert questions(world) == []
    world.run(world.now + 60.0)
    assert questions(world) == ["n1", "n2"]
    assert node(world, "n1").inquiry.asked_at is not None
    assert "its SSH port answers" in node(world, "n1").contact.note
    assert not world.machine.state.incidents.all
    assert task(world).generation == 1


def test_question_stands_while_peers_try_in_vain_to_look() -> None:
    world = training()
    world.can_probe = False
    hide(world, *NODES_OF_A)
    world.run(world.now + 2 * LIMIT_S)
    assert questions(world) == ["n1", "n2"]
    assert "its peer nodes could not probe it" in node(world, "n1").contact.note


def test_question_stands_while_the_only_node_in_contact_comes_and_goes() -> None:
    world = training()
    hide(world, "n1", "n2", "n3", "n4")
    world.run(world.now + LIMIT_S + 5.0)
    hide(world, "n5", for_s=3.0)
    world.run(world.now + LIMIT_S)
    asked = questions(world)
    assert {"n1", "n2"} <= set(asked)
    assert len(asked) == len(set(asked)), "each was asked about once"
    assert not [line for _, line in world.announcements if line.kind == "question_over"]


def test_node_that_comes_back_withdraws_the_question_and_is_readopted() -> None:
    world = training()
    pids = {rank.pid for rank in task(world).ranks.values()}
    hide(world, *NODES_OF_A, for_s=LIMIT_S + 5.0)
    world.run(world.now + LIMIT_S + 10.0)
    assert questions(world) == ["n1", "n2"]
    assert [node(world, name).inquiry.asked_at for name in NODES_OF_A] == [None, None]
    assert {rank.pid for rank in task(world).ranks.values()} == pids
    assert not world.machine.state.incidents.all


def test_question_is_withdrawn_once_a_rank_in_contact_shows_that_training_goes_on() -> None:
    world = training()
    hide(world, "n1")
    hide(world, "n2", for_s=LIMIT_S + 5.0)
    world.run(world.now + LIMIT_S + 10.0)
    assert questions(world) == ["n1", "n2"]
    assert node(world, "n1").inquiry.asked_at is None
    assert "gpt-a has reached iteration" in node(world, "n1").contact.note
    assert node(world, "n1").contact.condition is NodeCondition.UNREACHABLE


def test_node_that_the_operator_gives_up_is_lost_and_the_rest_goes_on_without_it() -> None:
    world = training(is_auto_heal=True, asks_before_loss=True)
    hide(world, *NODES_OF_A)
    world.run(world.now + LIMIT_S + 5.0)
    for name in NODES_OF_A:
        assert say(world, name, is_lost=True).is_ok
    world.run(world.now + 60.0)
    assert {node(world, name).contact.condition for name in NODES_OF_A} == {NodeCondition.LOST}
    assert {i.cause.status for i in world.machine.state.incidents.all} == {"lost_connection"}
    assert "op declared it lost" in world.machine.state.incidents.all[0].cause.reason
    assert task(world).lifecycle.phase is TaskPhase.RUNNING
    assert not {worker.node for worker in task(world).placement} & set(NODES_OF_A)


def test_given_up_node_that_returns_is_in_service_and_its_stale_ranks_are_ended() -> None:
    world = training(is_auto_heal=True)
    hide(world, *NODES_OF_A, for_s=LIMIT_S + 60.0)
    world.run(world.now + LIMIT_S + 40.0)
    generation = task(world).generation
    assert lost_nodes(world), "the other one has no task any more"
    world.run(world.now + 60.0)
    assert {node(world, name).contact.condition for name in NODES_OF_A} == {NodeCondition.HEALTHY}
    living = [rank for each in world.nodes.values() for rank in each.ranks.values()]
    assert all(rank.generation >= generation for rank in living if rank.task == A)
    assert all(i.state is IncidentState.RESOLVED for i in world.machine.state.incidents.all)


def test_waiting_is_asked_about_again_after_the_same_time() -> None:
    world = training()
    hide(world, *NODES_OF_A)
    world.run(world.now + LIMIT_S + 5.0)
    answer = say(world, "n1", is_lost=False)
    assert answer.is_ok
    assert answer.message == f"Unicron waits for n1; it judges n1 again after {LIMIT_S:g} s"
    assert node(world, "n1").inquiry.asked_at is None
    world.run(world.now + LIMIT_S - 2.0)
    assert questions(world) == ["n1", "n2"]
    world.run(world.now + 5.0)
    assert questions(world) == ["n1", "n2", "n1"]


def test_waiting_also_holds_auto_heal_back() -> None:
    world = training(is_auto_heal=True)
    hide(world, *NODES_OF_A)
    world.run(world.now + LIMIT_S - 5.0)
    for name in NODES_OF_A:
        say(world, name, is_lost=False)
    world.run(world.now + LIMIT_S - 5.0)
    assert not lost_nodes(world)
    world.run(world.now + 10.0)
    assert lost_nodes(world), "the other one has no task any more"


def test_controller_that_is_cut_off_asks_and_gives_nobody_up_by_itself() -> None:
    world = training(is_auto_heal=True)
    hide(world, *(str(name) for name in world.nodes), for_s=10 * LIMIT_S)
    world.run(world.now + 9 * LIMIT_S)
    assert sorted(questions(world)) == ["n1", "n2", "n3", "n4"], "n5 holds no rank"
    assert not world.machine.state.incidents.all
    world.run(world.now + 2 * LIMIT_S)
    assert {each.generation for each in world.machine.state.tasks.values()} == {1}


@pytest.mark.parametrize("is_lost", [True, False])
def test_verdict_on_what_is_in_contact_or_unknown_is_refused_and_changes_nothing(
    *, is_lost: bool
) -> None:
    world = training()
    assert say(world, "n9", is_lost=is_lost).code == "unknown"
    answer = say(world, "n1", is_lost=is_lost)
    assert (answer.is_ok, answer.code) == (False, "nothing")
    assert node(world, "n1").contact.condition is NodeCondition.HEALTHY


def test_node_whose_task_advances_is_not_given_up() -> None:
    world = training()
    hide(world, "n2")
    world.run(world.now + 6.0)
    answer = say(world, "n2", is_lost=True)
    assert (answer.is_ok, answer.code) == (False, "unfit")
    assert "gpt-a has reached iteration" in answer.message
    assert node(world, "n2").contact.condition is NodeCondition.UNREACHABLE


def test_operator_need_not_wait_for_the_question() -> None:
    world = training(is_auto_heal=True)
    hide(world, *NODES_OF_A)
    world.run(world.now + 1.0)
    assert say(world, "n1", is_lost=True).is_ok
    assert node(world, "n1").contact.condition is NodeCondition.LOST


def test_a_node_lives_while_those_asked_about_it_are_out_of_contact_too_and_others_see_it() -> None:
    world = World(demo_machine(num_nodes=24, policy=Policy()), num_iterations=10**6)
    task_trained(world, 7)
    hide(world, "n2")
    asked = set(node(world, "n2").inquiry.last_asked)
    assert "n1" in asked
    assert len(asked) < 12
    hide(world, *(asked - {"n1"}))  # a switch took them with it
    world.post(PeerProbed(NodeId("n2"), NodeId("n1"), None))
    world.fail_collective("gpt-a", 0)
    world.run(world.now + 0.5)
    assert node(world, "n2").contact.condition is NodeCondition.UNREACHABLE
    assert node(world, "n2").inquiry.last_asked.keys() - asked
    assert "answers" in node(world, "n2").contact.note
