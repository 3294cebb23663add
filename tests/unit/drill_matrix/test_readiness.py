"""When the next drill may begin, and what an operator would mend before."""

import pytest

from controller.core.state.phases import NodeCondition
from controller.drill_matrix.readiness import (
    generations,
    have_advanced,
    isolated_nodes,
    iterations,
    lost_nodes,
    why_not_ready,
    why_stalled,
)
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

A = TaskId("gpt-a")


@pytest.fixture
def world() -> World:
    world = World(demo_machine(), seed=1, num_iterations=10**6)
    world.run_until(lambda: why_not_ready(world.machine.state) is None)
    return world


def test_a_cluster_that_starts_is_not_calm() -> None:
    assert why_not_ready(demo_machine().state) == "n1 is expected"


def test_a_killed_rank_ends_the_calm_until_it_is_replaced(world: World) -> None:
    state = world.machine.state
    before, since = generations(state), iterations(state)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: why_not_ready(state) is not None)
    world.run_until(lambda: why_not_ready(state) is None)
    assert why_stalled(state, since, before) == "gpt-a started a new generation"
    assert have_advanced(state, since, 1)


def test_a_lost_node_is_to_be_brought_back(world: World) -> None:
    state = world.machine.state
    world.lose_node("n2")
    world.run_until(lambda: bool(lost_nodes(state)))
    assert lost_nodes(state) == ["n2"]
    assert state.nodes[NodeId("n2")].contact.condition is NodeCondition.LOST
    world.run_until(lambda: all_run(world))
    assert why_not_ready(state) == "n2 is lost"
    world.restore_node("n2")
    world.run_until(lambda: why_not_ready(state) is None)


def test_an_isolated_node_in_contact_is_to_be_uncordoned(world: World) -> None:
    state = world.machine.state
    state.nodes[NodeId("n3")].service.isolated = "isolated by I-1"
    assert why_not_ready(state) == "n3 is isolated"
    assert isolated_nodes(state) == ["n3"]


def test_a_task_that_stands_still_is_said(world: World) -> None:
    state = world.machine.state
    assert why_stalled(state, iterations(state), generations(state)) == "gpt-a does not advance"
    since = iterations(state)
    world.run_until(lambda: have_advanced(state, since, 3))
    assert why_stalled(state, since, generations(state)) == ""
    assert state.tasks[A].progress.iteration >= since[A] + 3
