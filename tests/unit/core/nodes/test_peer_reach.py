"""Peers count as witnesses of a silent node only if they have seen its SSH port before."""

from collections import Counter

import pytest

from controller.core.events import PeerProbed
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import newest_incident

POLICY = Policy(is_auto_heal=True)
NAMES = ("n1", "n2", "n3", "n4")


def closed_world(*, iteration_s: float = 10.0) -> World:
    """Nodes that train and can't reach each other's SSH port."""
    world = World(demo_machine(num_nodes=4, policy=POLICY), num_iterations=10**6)
    world.is_ssh_closed, world.iteration_s = True, iteration_s
    world.run(5 * iteration_s)
    return world


def condition(world: World, name: str) -> NodeCondition:
    [node] = [each for each in world.machine.state.nodes.values() if each.spec.node == name]
    return node.contact.condition


def test_where_ssh_between_nodes_is_closed_a_cut_control_link_costs_nothing() -> None:
    world = closed_world()
    generations = [task.generation for task in world.machine.state.tasks.values()]
    for name in NAMES:
        world.cut(name, 60.0)
        world.run(world.now + 61.0)
        assert condition(world, name) is NodeCondition.HEALTHY
    assert world.machine.state.incidents.all == []
    assert [task.generation for task in world.machine.state.tasks.values()] == generations
    texts = [line.text for _, line in world.announcements if line.kind == "unreachable"]
    assert len(texts) == len(NAMES)


@pytest.mark.parametrize("is_silent", [True, False])
def test_there_a_lost_node_is_found_by_what_its_tasks_suffer(is_silent: bool) -> None:
    world = closed_world()
    began = world.now
    world.lose_node("n2", is_silent=is_silent)
    world.run_until(lambda: condition(world, "n2") is NodeCondition.LOST, limit_s=100.0)
    assert world.now - began < POLICY.unreachable_limit_s
    assert "out of contact, and" in newest_incident(world).cause.reason


def test_where_it_is_open_silence_is_a_loss_at_once() -> None:
    world = World(demo_machine(num_nodes=4, policy=POLICY), num_iterations=10**6)
    world.iteration_s = 10.0
    world.run(50.0)
    world.lose_node("n2", is_silent=True)
    world.run(world.now + 4.0)
    assert condition(world, "n2") is NodeCondition.LOST
    assert "its SSH port is silent to n1, n3, n4" in newest_incident(world).cause.reason


def test_each_pair_is_tried_once_and_every_node_by_some() -> None:
    world = World(demo_machine(num_nodes=60, policy=POLICY), num_iterations=10**6)
    world.run(10.0)
    nodes = world.machine.state.nodes.values()
    assert all(len(node.reach.reached_by) >= 4 for node in nodes)
    pairs = Counter(
        (event.body.node, event.body.by)
        for event in world.events
        if isinstance(event.body, PeerProbed)
    )
    assert set(pairs.values()) == {1}
    assert len(pairs) < 10 * 60
    by_source = Counter(by for _, by in pairs)
    assert max(by_source.values()) < 30, "no node looks at all the others"


def test_a_peer_looks_at_a_silent_node_less_than_ten_times_a_minute() -> None:
    world = World(demo_machine(num_nodes=4, policy=POLICY), num_iterations=10**6)
    world.run(10.0)
    number = len(world.events)
    world.cut("n2", 60.0)
    world.run(world.now + 59.0)
    looks = Counter(
        event.body.by for event in world.events[number:] if isinstance(event.body, PeerProbed)
    )
    assert looks.keys() == {"n1", "n3", "n4"}
    assert max(looks.values()) < 10
