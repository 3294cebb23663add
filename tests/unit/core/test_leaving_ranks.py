"""Ranks leave by plan: the task continues in its processes if all of its state stays."""

from dataclasses import replace

import pytest

from controller.core.lifecycle.parking import boundary_limit_s
from controller.core.machine import Machine
from controller.core.recovery.generations import keeps_state
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import PlanState, TaskPhase
from controller.core.state.task_records import Target
from nodeagent.protocol.ids import Generation, NodeId
from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import newest_start, pids, task, trained
from tests.unit.core.recovery.test_generations import (
    SEEDS,
    A,
    B,
    machine_of,
)


def sharded_world(seed: int = 0, *, makes_copies: bool = True) -> World:
    machine = demo_machine(is_sharded=True, makes_copies=makes_copies)
    world = World(machine, seed=seed, num_iterations=10**6)
    trained(world, 7)
    world.run(world.now + seed / len(SEEDS))
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_shrinks_by_plan_keeps_its_processes_and_every_iteration(seed: int) -> None:
    world = sharded_world(seed)
    before = pids(world, B)
    world.lose_node("n2")
    trained(world, 14)
    assert task(world, B).layout == Layout(tp=2)
    assert set(pids(world, B)) < set(before)
    assert task(world, B).generation == 2
    assert task(world, B).progress.num_rerun_iterations == 0
    resume = newest_start(world, B).resume
    assert resume.source == "peer"
    assert {shard.is_copy for shard in resume.shards} == {True, False}


def test_without_copies_it_goes_through_a_checkpoint() -> None:
    world = sharded_world(makes_copies=False)
    before = pids(world, B)
    world.lose_node("n2")
    trained(world, 14)
    assert task(world, B).layout == Layout(tp=2)
    assert not set(pids(world, B)) & set(before)
    assert task(world, B).progress.num_rerun_iterations == 0
    assert newest_start(world, B).resume.source == "disk"


@pytest.mark.parametrize("seed", SEEDS)
def test_copies_that_are_not_complete_cost_a_checkpoint_and_no_iteration(seed: int) -> None:
    world = sharded_world(seed)
    world.copies_arrive = False
    before = pids(world, B)
    world.lose_node("n2")
    trained(world, 20)
    assert task(world, B).layout == Layout(tp=2)
    assert task(world, B).progress.num_rerun_iterations == 0
    if not set(pids(world, B)) & set(before):
        [warning] = [one for _, one in world.announcements if one.kind == "copies"]
        assert "training continues" in warning.text
        assert newest_start(world, B).resume.source == "disk"
        learned = {kind for kind, _ in task(world, B).transitions.experience.mean_s}
        assert "reattempt" not in learned, "waiting for copies is none"
    # Later it goes on in its processes again.
    world.copies_arrive = True
    kept = pids(world, B)
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    assert set(kept) < set(pids(world, B))


def test_incomplete_copies_are_met_with() -> None:
    """In some of these worlds all copies arrive; that is not so in all of them."""
    assert any(goes_through_the_disk(seed) for seed in SEEDS)


def goes_through_the_disk(seed: int) -> bool:
    world = sharded_world(seed)
    world.copies_arrive = False
    world.lose_node("n2")
    trained(world, 20)
    return newest_start(world, B).resume.source == "disk"


def test_copies_may_take_as_long_as_a_checkpoint() -> None:
    world = sharded_world()
    limit_s = boundary_limit_s(world.machine.policy, task(world, B))
    world.copies_take_s = limit_s + 5.0
    before = pids(world, B)
    world.lose_node("n2")
    world.run(world.now + world.copies_take_s + 10.0)
    assert task(world, B).layout == Layout(tp=2)
    assert set(pids(world, B)) < set(before)
    assert world.nodes[NodeId("n3")].halts[B].at_boundary


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_copies_that_failed_for_a_plan_are_relied_on_again_once_it_is_withdrawn(
    *, is_withdrawn: bool
) -> None:
    world = next(world for world in map(failed_world, SEEDS) if task(world).limits.copies_failed_in)
    placement, before = task(world).placement, pids(world)
    goal = task(world).assignment.target
    world.copies_arrive = True
    if is_withdrawn:
        task(world).assignment.target = task(world).place
    trained(world, task(world).progress.iteration + 3)
    task(world).assignment.target = goal
    world.run_until(lambda: task(world).placement == placement[:2])
    trained(world, task(world).progress.iteration + 3)
    assert (pids(world) == before[:2]) is is_withdrawn
    assert task(world).progress.num_rerun_iterations == 0


def failed_world(seed: int) -> World:
    """Return a world at the moment after its task parked to shrink."""
    machine = machine_of([Layout(dp=dp) for dp in (2, 3)], num_nodes=3, workers=3)
    spec = machine.state.tasks[A].spec
    machine.state.tasks[A].spec = replace(spec, is_sharded=True)
    world = World(machine, seed, num_iterations=10**6)
    trained(world, 8)
    world.copies_arrive = False
    task(world).assignment.target = Target(Layout(dp=2), task(world).placement[:2])
    world.run_until(lambda: task(world).generation == 2)
    return world


def test_ranks_complete_copies_only_where_these_are_needed() -> None:
    world = sharded_world()
    world.lose_node("n2")
    trained(world, 14)
    assert world.runs[B, Generation(1)].completes_copies
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    assert not world.runs[B, Generation(2)].completes_copies


@pytest.mark.parametrize(
    ("makes_copies", "says"),
    [
        (True, "state from its peers and their in-memory checkpoints, or from the disk"),
        (False, "from the newest checkpoint"),
    ],
)
def test_the_plan_says_where_the_state_comes_from(*, makes_copies: bool, says: str) -> None:
    world = sharded_world(makes_copies=makes_copies)
    world.lose_node("n2")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    [plan] = world.machine.state.plans.all
    assert any(step.startswith("gpt-b: ") and says in step for step in plan.steps), plan.steps


def test_it_grows_again_with_the_shards_of_its_peers() -> None:
    world = sharded_world()
    world.lose_node("n2")
    trained(world, 14)
    before = pids(world, B)
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    trained(world, 20)
    assert set(before) < set(pids(world, B))
    assert task(world, B).progress.num_rerun_iterations == 0
    assert [plan.state for plan in world.machine.state.plans.all] == [PlanState.APPLIED] * 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_with_another_goal_than_it_parked_for_loses_no_iteration(seed: int) -> None:
    machine = machine_of([Layout(dp=dp) for dp in (2, 3, 4)], num_nodes=4, workers=3)
    spec = machine.state.tasks[A].spec
    machine.state.tasks[A].spec = replace(spec, is_sharded=True)
    world = World(machine, seed, num_iterations=10**6)
    trained(world, 8)
    placement = task(world).placement
    [free] = {Worker(node, 0) for node in machine.state.nodes} - set(placement)
    task(world).assignment.target = Target(Layout(dp=4), (*placement, free))
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.PARKING)
    task(world).assignment.target = Target(Layout(dp=2), placement[:2])
    trained(world, 20)
    assert task(world).layout == Layout(dp=2)
    assert task(world).progress.num_rerun_iterations == 0


def test_tasks_that_wait_for_each_other_save_what_only_those_have_that_leave() -> None:
    sizes = ThroughputTable(
        points=(ThroughputPoint(workers=2, flops_per_s=2e9, layout=Layout(pp=2)),)
    )
    specs = [TaskSpec(name, 1.0, 2, 2, sizes, 1e9, None, num_micro_batches=12) for name in (A, B)]
    nodes = [NodeSpec(NodeId(f"n{i}"), "h", 1) for i in range(1, 5)]
    world = World(Machine(nodes, specs, Policy(is_auto_heal=False)), num_iterations=10**6)
    trained(world, 8)
    [first, second], [third, fourth] = task(world).placement, task(world, B).placement
    task(world).assignment.target = Target(Layout(pp=2), (first, third))
    task(world, B).assignment.target = Target(Layout(pp=2), (second, fourth))
    trained(world, 20)
    for name, target in ((A, (first, third)), (B, (second, fourth))):
        assert task(world, name).placement == target
        assert task(world, name).progress.num_rerun_iterations == 0
        assert newest_start(world, name).resume.source == "disk"


@pytest.mark.parametrize(
    ("layout", "is_sharded", "leaving", "stays", "stays_without_copies"),
    [
        (Layout(dp=4), False, {0, 1, 2}, True, True),
        # Shards, the copies of each with the next rank.
        (Layout(dp=4), True, set(), True, True),
        (Layout(dp=4), True, {0}, True, False),
        (Layout(dp=4), True, {3}, True, False),
        (Layout(dp=4), True, {1, 3}, True, False),
        (Layout(dp=4), True, {2, 3}, False, False),
        # Stages without a replica, the copies of each with the next one.
        (Layout(pp=4), False, {1}, True, False),
        (Layout(pp=4), False, {0, 2}, True, False),
        (Layout(pp=4), False, {0, 1}, False, False),
        (Layout(pp=4), False, {0, 1, 2, 3}, False, False),
        # One of two replicas of each stage.
        (Layout(pp=2, dp=2), False, {0, 3}, True, True),
    ],
    ids=str,
)
def test_all_state_stays_where_each_part_or_its_copy_does(
    layout: Layout,
    leaving: set[int],
    *,
    is_sharded: bool,
    stays: bool,
    stays_without_copies: bool,
) -> None:
    """Four ranks on a node each; those that leave go to other nodes."""
    world = World(machine_of([layout], num_nodes=8, workers=4), num_iterations=10**6)
    trained(world, 3)
    running = task(world)
    placement = tuple(
        Worker(NodeId(f"n{number + 5}"), 0) if number in leaving else worker
        for number, worker in enumerate(running.placement)
    )
    for makes_copies, expected in ((True, stays), (False, stays_without_copies)):
        running.spec = replace(running.spec, is_sharded=is_sharded, makes_copies=makes_copies)
        assert keeps_state(running, Target(layout, placement)) is expected
