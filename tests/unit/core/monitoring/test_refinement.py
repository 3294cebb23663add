"""Which iterations of a normal run count as what the task achieves."""

import math
from dataclasses import replace

import pytest

from controller.core.events import MeasurementRequested
from controller.core.instructions import RecordIterations
from controller.core.machine import Machine
from controller.core.monitoring.refinement import refine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.clusters import demo_machine, table
from tests.fakes.world import World
from tests.fakes.world_queries import task_trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")


def records(world: World, task: TaskId = A) -> list[RecordIterations]:
    return [each for each in world.records if each.task == task]


def lone_world(num_nodes: int = 2, **changes: object) -> World:
    """Return a world with one task on nodes of one worker each, and its specification changed."""
    spec = TaskSpec(
        task=A, weight=1.0, workers=2, min_workers=1, table=table({2: 2.0}),
        flops_per_iteration=1e9, num_iterations=None, num_micro_batches=4,
    )  # fmt: skip
    nodes = [NodeSpec(NodeId(f"n{i}"), f"n{i}:22", 1) for i in range(num_nodes)]
    policy = Policy(is_auto_heal=True)
    machine = Machine(nodes, [replace(spec, **changes)], policy)  # type: ignore[arg-type]
    return World(machine, num_iterations=10**6)


def test_the_first_two_iterations_of_a_generation_do_not_count() -> None:
    world = lone_world()
    task_trained(world, 6)
    assert [each.num_iterations for each in records(world)] == [1, 1, 1, 1]
    assert all(each.layout == Layout(dp=2) for each in records(world))
    assert all(each.iteration_s == pytest.approx(1.0) for each in records(world))
    world.fail_collective(A, 1)
    num, generation = len(records(world)), world.machine.state.tasks[A].generation
    world.run_until(lambda: world.machine.state.tasks[A].generation > generation)
    iteration = world.machine.state.tasks[A].progress.iteration
    task_trained(world, iteration + 2)
    assert len(records(world)) == num
    task_trained(world, iteration + 4)
    assert len(records(world)) > num


def test_iterations_that_save_a_checkpoint_do_not_count() -> None:
    world = lone_world(long_intervals=(5,))
    task_trained(world, 13)
    assert len(records(world)) == 11 - 2  # the sixth and the eleventh


def test_a_task_that_is_slowed_down_to_be_watched_is_not_timed() -> None:
    world = lone_world(has_floor=True)
    task_trained(world, 10)
    assert records(world) == []


def test_nothing_counts_while_a_rank_is_slower_than_its_peers() -> None:
    world = demo_world_with_straggler()
    task = world.machine.state.tasks[A]
    num, iteration = len(records(world)), task.progress.iteration
    task_trained(world, iteration + 5)
    assert task.watch.slowness.stragglers
    assert len(records(world)) == num
    assert records(world, B)


def demo_world_with_straggler() -> World:
    world = World(demo_machine(), num_iterations=10**6)
    task_trained(world, 8)
    _, rank = world.rank(A, 1)
    world.busy_s[rank.pid] = 0.9
    world.run_until(lambda: bool(world.machine.state.tasks[A].watch.slowness.stragglers))
    return world


def test_nothing_counts_while_an_incident_is_open() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    task_trained(world, 8, B)
    b = world.machine.state.tasks[B]
    generation = b.generation
    world.lose_node(b.placement[-1].node)
    world.run_until(lambda: b.generation > generation and b.watch.pace.num_commits > 3)
    assert b.layout == Layout(tp=2, dp=1)  # its table has this, but a plan is waited for
    assert [each for each in records(world, B) if each.layout == b.layout] == []


def test_nothing_counts_while_a_size_is_measured() -> None:
    world = World(demo_machine(num_nodes=6), num_iterations=10**6)
    task_trained(world, 8)
    state = world.machine.state
    iteration = state.tasks[A].progress.iteration
    world.post(MeasurementRequested("r", "op", A, (1,), 30))
    assert state.measurements.current
    num = len(records(world))
    task_trained(world, iteration + 5)
    assert state.measurements.current.run
    assert len(records(world)) == num
    world.run_until(
        lambda: state.measurements.current is not None and state.measurements.current.is_over
    )
    num, iteration = len(records(world)), state.tasks[A].progress.iteration
    task_trained(world, iteration + 2)
    assert len(records(world)) > num


def test_nothing_counts_while_iterations_are_late() -> None:
    world = lone_world()
    task_trained(world, 20)
    watch = world.machine.state.tasks[A].watch
    world.iteration_s = 1.6
    world.run_until(lambda: watch.slowness.is_late)
    num, iteration = len(records(world)), world.machine.state.tasks[A].progress.iteration
    task_trained(world, iteration + 3)
    assert watch.slowness.is_late
    assert len(records(world)) == num


@pytest.mark.parametrize(("dp", "num"), [(2, 1), (3, 0)])
def test_a_layout_that_the_table_does_not_have_does_not_count(dp: int, num: int) -> None:
    world = lone_world()
    task_trained(world, 5)
    state = world.machine.state
    state.tasks[A].layout = Layout(dp=dp)
    turn = Turn(state, world.machine.policy, cause=1, at=world.now)
    refine(turn, state.tasks[A], 6, 1.0, 1)
    assert len(turn.instructions) == num


def test_a_line_of_a_command_may_stand_for_several_iterations() -> None:
    world = lone_world(is_command=True)
    task_trained(world, 6)
    assert sum(each.num_iterations for each in records(world)) == 4


@pytest.mark.parametrize("duration_s", [1e-31, -1.0, math.inf, math.nan])
def test_a_time_that_no_iteration_takes_does_not_count(duration_s: float) -> None:
    world = lone_world()
    task_trained(world, 5)
    state = world.machine.state
    turn = Turn(state, world.machine.policy, cause=1, at=world.now)
    refine(turn, state.tasks[A], 6, duration_s, 1)
    assert turn.instructions == []
