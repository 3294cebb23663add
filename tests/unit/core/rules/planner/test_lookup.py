"""The lookup table in the running core: next events are looked up, with their divisions."""

from collections.abc import Callable

import pytest

from controller.core.events import PlanRequested
from controller.core.rules.planner.lookup import look_ahead
from controller.core.state.phases import PlanState, TaskPhase
from nodeagent.protocol.ids import TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World

A, B = TaskId("gpt-a"), TaskId("gpt-b")


def quiet_world(*, num_iterations: int = 10**6) -> World:
    world = World(
        demo_machine(num_nodes=5, num_iterations=num_iterations), num_iterations=num_iterations
    )
    world.run(4.0)
    return world


def look_up(world: World) -> None:
    world.machine.table = look_ahead(world.machine.outlook())


def num_plans(world: World) -> int:
    return sum(plan.state is PlanState.APPLIED for plan in world.machine.state.plans.all)


def lose_two(world: World) -> None:
    world.lose_node("n1")
    world.lose_node("n2")


@pytest.mark.parametrize(
    "happen",
    [
        lambda world: world.lose_node("n1"),
        lambda world: world.lose_node("n4"),
        lose_two,
        lambda world: world.raise_in_rank(
            "gpt-a", 1, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"
        ),
    ],
    ids=["a node is lost", "another node is lost", "two nodes are lost", "a node is isolated"],
)
def test_the_first_plan_after_an_event_is_in_the_table(happen: Callable[[World], None]) -> None:
    world = quiet_world()
    look_up(world)
    happen(world)
    world.run_until(lambda: bool(world.machine.state.plans.all))
    assert world.machine.table.num_found >= 1
    assert world.machine.table.num_missed == 0


def test_a_node_that_comes_back_is_in_the_table() -> None:
    world = quiet_world()
    world.lose_node("n1")
    world.lose_node("n2")
    world.lose_node("n3")
    world.run_until(lambda: num_plans(world) > 0)
    world.run(world.now + 30.0)
    look_up(world)
    planned = len(world.machine.state.plans.all)
    world.restore_node("n1")
    world.run_until(lambda: len(world.machine.state.plans.all) > planned)
    assert (world.machine.table.num_found, world.machine.table.num_missed) == (1, 0)


def test_the_table_changes_nothing_but_the_time_a_plan_takes() -> None:
    worlds = [quiet_world(), quiet_world()]
    look_up(worlds[0])
    for world in worlds:
        world.lose_node("n1")
        world.run(world.now + 60.0)
    assert worlds[0].machine.table.num_found > 0
    assert worlds[1].machine.table.num_found == 0
    assert worlds[0].machine.state == worlds[1].machine.state


def test_the_outlook_knows_what_every_node_would_take() -> None:
    outlook = quiet_world().machine.outlook()
    assert [task.name for task in outlook.tasks] == [A, B]
    assert outlook.queued == ()
    assert sum(loss.num_workers for loss in outlook.losses) == outlook.num_workers == 10
    hit = {loss.faulted for loss in outlook.losses}
    assert hit == {frozenset({A}), frozenset({B}), frozenset()}


def test_a_task_that_the_operator_holds_is_queued_and_found_once_he_asks_for_a_plan() -> None:
    world = quiet_world()
    world.raise_in_rank("gpt-b", 2, kind="ProgramError")
    world.run_until(lambda: world.machine.state.tasks[B].lifecycle.phase is TaskPhase.HELD)
    outlook = world.machine.outlook()
    assert ([task.name for task in outlook.tasks], [task.name for task in outlook.queued]) == (
        [A],
        [B],
    )
    look_up(world)
    planned = len(world.machine.state.plans.all)
    world.post(PlanRequested("r1", "somebody"))
    world.run_until(lambda: len(world.machine.state.plans.all) > planned)
    assert (world.machine.table.num_found, world.machine.table.num_missed) == (1, 0)
