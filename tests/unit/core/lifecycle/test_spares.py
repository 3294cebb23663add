"""New ranks prepare while their task trains on, and nobody waits long for them."""

from controller.core.state.phases import TaskPhase
from tests.fakes.world import PREPARE_S, World
from tests.fakes.world_queries import newest_start, pids, task, trained
from tests.unit.core.recovery.test_generations import (
    B,
    demo_world,
)


def grown_world() -> World:
    """Return a world in which gpt-b has shrunk, and its node is about to come back."""
    world = demo_world()
    world.lose_node("n2")
    trained(world, 12)
    assert len(task(world, B).ranks) == 2
    world.restore_node("n2")
    world.run_until(lambda: bool(task(world, B).spares.ranks))
    return world


def test_a_task_trains_on_while_the_ranks_it_grows_by_prepare() -> None:
    world = grown_world()
    before, iteration = pids(world, B), task(world, B).progress.iteration
    world.run(world.now + PREPARE_S * 0.8)
    assert task(world, B).lifecycle.phase is TaskPhase.RUNNING
    assert task(world, B).progress.iteration > iteration
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    assert len(newest_start(world, B).continues) == 4  # the prepared ones are taken over
    trained(world, task(world, B).progress.iteration + 4)
    assert set(before) <= set(pids(world, B))
    assert task(world, B).progress.num_rerun_iterations == 0
    assert not task(world, B).spares.ranks


def test_a_process_that_dies_while_it_prepares_costs_nothing_but_itself() -> None:
    world = grown_world()
    number = min(task(world, B).spares.ranks)
    world.run(world.now + 0.5)
    world.kill_rank("gpt-b", number)
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    assert len(newest_start(world, B).continues) == 3
    trained(world, task(world, B).progress.iteration + 4)
    assert all(incident.task != B for incident in world.machine.state.incidents.all[1:])


def test_one_that_never_gets_ready_is_not_waited_for_for_ever() -> None:
    world = grown_world()
    world.run(world.now + 0.3)
    spares = task(world, B).spares.ranks
    world.deaf |= {rank.pid for rank in spares.values() if rank.pid is not None}
    limit_s = world.machine.policy.prepare_limit_s
    world.run(world.now + limit_s / 2)
    assert task(world, B).lifecycle.phase is TaskPhase.RUNNING
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    trained(world, task(world, B).progress.iteration + 4)
    assert not [
        key for key in task(world, B).leaving.workers if key[0] == task(world, B).generation
    ]


def test_a_fault_meanwhile_is_cured_without_them_if_they_are_not_ready() -> None:
    world = grown_world()
    before = task(world, B).generation
    world.run(world.now + 0.4)
    world.kill_rank("gpt-b", 0)
    world.run_until(lambda: task(world, B).generation > before)
    trained(world, task(world, B).progress.iteration + 6)
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    assert task(world, B).progress.num_rerun_iterations == 0


def test_a_node_that_dies_with_them_takes_nothing_else_along() -> None:
    world = grown_world()
    world.run(world.now + 0.6)
    world.lose_node("n2")
    trained(world, task(world, B).progress.iteration + 12)
    assert len(task(world, B).ranks) == 2
    assert not task(world, B).leaving.workers


def test_what_was_prepared_for_a_plan_that_gives_way_is_ended() -> None:
    world = grown_world()
    world.run(world.now + 0.6)
    world.lose_node("n3")
    world.run(world.now + 20.0)
    state = world.machine.state
    assert not any(each.spares.ranks for each in state.tasks.values())
    known = {rank.pid for each in state.tasks.values() for rank in each.ranks.values()}
    living = {pid for node in world.nodes.values() if node.is_up for pid in node.ranks}
    assert living == known & living
    assert living


def test_nothing_is_prepared_for_a_task_that_shrinks() -> None:
    world = demo_world()
    world.lose_node("n2")
    trained(world, 14)
    assert len(task(world, B).ranks) == 2
    assert not newest_start(world, B).parked_spares
    assert not [one for _, one in world.announcements if one.kind == "prepare"]
