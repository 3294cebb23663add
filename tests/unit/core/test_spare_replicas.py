"""Ranks of a broken replica become spares and wait, with their models, for a place."""

from dataclasses import replace
from functools import partial

import pytest

from controller.api.projection import Frame, project
from controller.core.events import CommandFailed
from controller.core.lifecycle.spares import place_in
from controller.core.machine import Machine
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.rules.regroup.replicas import ModelPart
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import PlanState, TaskPhase
from controller.core.state.rank import RankState
from controller.core.state.task_records import Target
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next, newest_start, pids, task, trained
from tests.unit.core.recovery.test_generations import (
    A,
    B,
    machine_of,
)

STAGED = [Layout(pp=2, dp=dp) for dp in (1, 2)]

COPY_ON_ITS_WAY = 1
"""Iterations that are run again where the newest copy of a stage had not arrived."""


def staged_world(seed: int = 0, *, num_nodes: int = 5) -> World:
    """Return a world with two replicas of two stages, one rank per node, and four idle nodes."""
    world = World(machine_of(STAGED, num_nodes=num_nodes, workers=4), seed, num_iterations=10**6)
    trained(world, 5)
    world.run(world.now + seed / 6)
    return world


def waiting(world: World) -> dict[int, RankState]:
    return task(world).spares.ranks


def mate_of(world: World, global_rank: int) -> tuple[int | None, Worker]:
    """Return pid and place of the other stage of a rank's replica."""
    layout = task(world).layout
    assert layout is not None
    [mate] = [
        rank
        for number, rank in task(world).ranks.items()
        if layout.dp_rank(number) == layout.dp_rank(global_rank) and number != global_rank
    ]
    return mate.pid, mate.worker


def lose_replica(world: World) -> tuple[int | None, Worker]:
    """Lose the node of rank 0 and train on with the other replica; return the mate that waits."""
    mate = mate_of(world, 0)
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).layout == Layout(pp=2))
    trained(world, task(world).progress.iteration + 3)
    return mate


def approve(world: World) -> None:
    plan = approve_next(world)
    world.run_until(lambda: plan.state is PlanState.APPLIED)


def is_newer(world: World, generation: int) -> bool:
    return task(world).generation > generation


def living(world: World) -> set[int]:
    return {pid for node in world.nodes.values() if node.is_up for pid in node.ranks}


@pytest.mark.parametrize("seed", range(6))
def test_the_mate_of_a_lost_rank_waits_for_the_replacement_and_keeps_its_process(seed: int) -> None:
    world = staged_world(seed)
    before = pids(world)
    mate, where = lose_replica(world)
    assert mate not in pids(world)
    [reserve] = waiting(world).values()
    assert (reserve.pid, reserve.worker, reserve.can_go_on) == (mate, where, True)
    frame = Frame(cluster="x", started_wall_s=0.0, is_auto_heal=False)
    nodes = project(world.machine.state, world.now, frame).nodes
    shown = [(node.node, one.pid) for node in nodes for one in node.workers if one.waits_for == A]
    assert shown == [(where.node, mate)]
    approve(world)
    assert task(world).layout == Layout(pp=2, dp=2)
    assert len(set(pids(world)) & set(before)) == 3
    assert len(newest_start(world).continues) == 4  # the new process had its model too
    assert where in task(world).placement
    trained(world, task(world).progress.iteration + 3)
    assert task(world).progress.num_rerun_iterations == 0
    assert not task(world).spares.ranks


def test_without_a_node_to_spare_it_waits_until_one_comes() -> None:
    world = staged_world(num_nodes=4)
    lost = task(world).ranks[0].worker.node
    mate, _ = lose_replica(world)
    world.run(world.now + 60.0)
    assert {rank.pid for rank in waiting(world).values()} == {mate}
    world.restore_node(lost)
    approve(world)
    assert mate in pids(world)


def test_a_plan_without_a_place_for_it_ends_it() -> None:
    world = staged_world(num_nodes=4)
    _, where = lose_replica(world)
    approve(world)  # two workers are all that is left of whole replicas
    assert task(world).layout == Layout(pp=2)
    world.run(world.now + 5.0)
    assert not waiting(world)
    assert living(world) == set(pids(world))
    assert where not in task(world).occupied_workers


def test_it_waits_through_another_fault() -> None:
    world = staged_world()
    mate, _ = lose_replica(world)
    world.kill_rank("gpt-a", 1)
    generation = task(world).generation
    world.run_until(lambda: task(world).generation > generation)
    trained(world, task(world).progress.iteration + 3)
    assert {rank.pid for rank in waiting(world).values()} == {mate}
    approve(world)
    assert mate in pids(world)
    assert task(world).progress.num_rerun_iterations <= COPY_ON_ITS_WAY


def test_one_that_dies_meanwhile_is_replaced_like_the_lost_rank() -> None:
    world = staged_world()
    mate, _ = lose_replica(world)
    world.kill_rank("gpt-a", min(waiting(world)))
    world.run(world.now + 2.0)
    assert not waiting(world)
    assert len(world.machine.state.incidents.all) == 1
    approve(world)
    assert task(world).layout == Layout(pp=2, dp=2)
    assert mate not in pids(world)
    trained(world, task(world).progress.iteration + 3)
    assert task(world).progress.num_rerun_iterations == 0


@pytest.mark.parametrize("seed", range(3))
def test_without_another_whole_replica_it_is_one_with_what_is_left_and_memory(seed: int) -> None:
    world = staged_world(seed)
    mate, where = lose_replica(world)
    stage_0, stage_1 = (rank for _, rank in sorted(task(world).ranks.items()))
    world.lose_node(stage_1.worker.node)
    trained(world, task(world).progress.iteration + 6)
    assert task(world).assignment.target is None  # nobody has approved anything
    assert pids(world) == [stage_0.pid, mate]
    assert task(world).placement == (stage_0.worker, where)
    assert task(world).progress.num_rerun_iterations <= COPY_ON_ITS_WAY
    assert newest_start(world).resume.shards
    # From now on it is the task's place like any other.
    generation = task(world).generation
    world.kill_rank("gpt-a", 1)
    trained(world, task(world).progress.iteration + 6)
    assert task(world).generation == generation + 1
    assert task(world).placement == (stage_0.worker, where)
    assert task(world).progress.num_rerun_iterations <= 2 * COPY_ON_ITS_WAY


def test_what_is_left_is_more_with_it_where_it_would_be_too_little() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (2, 3)]
    world = World(machine_of(layouts, num_nodes=6, workers=6), num_iterations=10**6)
    trained(world, 5)
    before = pids(world)
    nodes = [rank.worker.node for _, rank in sorted(task(world).ranks.items())]
    world.lose_node(nodes[0])  # stage 0 of the first replica
    world.run(world.now + 15.0)
    assert task(world).layout == Layout(pp=2, dp=2)
    world.lose_node(nodes[4])  # stage 1 of the second
    trained(world, task(world).progress.iteration + 6)
    assert task(world).layout == Layout(pp=2, dp=2)
    assert set(pids(world)) == {before[1], before[2], before[3], before[5]}
    assert newest_start(world).resume.source == "peer"
    assert task(world).progress.num_rerun_iterations == 0


def test_with_it_too_a_task_does_not_go_on_below_its_smallest_size() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (2, 3)]
    world = World(machine_of(layouts, num_nodes=6, workers=6), num_iterations=10**6)
    trained(world, 5)
    nodes = [rank.worker.node for _, rank in sorted(task(world).ranks.items())]
    world.lose_node(nodes[0])
    world.run(world.now + 15.0)
    for number in (
        1,
        4,
    ):  # a rank of stage 0 is left, and of stage 1 one that trained and the one that waits
        world.lose_node(nodes[number])
    world.run(world.now + 20.0)
    assert task(world).lifecycle.phase is TaskPhase.PARKING
    assert waiting(world)


def test_a_plan_does_not_have_it_take_the_place_of_ranks_that_have_the_state() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (1, 3)]
    world = World(machine_of(layouts, num_nodes=6, workers=6), num_iterations=10**6)
    trained(world, 5)
    nodes = [rank.worker.node for _, rank in sorted(task(world).ranks.items())]
    world.lose_node(nodes[0])
    world.run(world.now + 15.0)
    world.lose_node(nodes[4])
    world.run(world.now + 15.0)
    assert task(world).layout == Layout(pp=2)
    assert len(waiting(world)) == 2
    before = pids(world)
    world.restore_node(nodes[0])
    world.run(world.now + 3.0)
    approve(world)
    assert pids(world) == before


def test_without_copies_in_memory_the_operator_is_asked_first() -> None:
    world = staged_world()
    lose_replica(world)
    _, stage_1 = (rank for _, rank in sorted(task(world).ranks.items()))
    world.lose_node(stage_1.worker.node)
    for node in world.nodes.values():
        for rank in node.ranks.values():
            rank.copies = ()
    world.run(world.now + 20.0)
    assert task(world).lifecycle.phase is TaskPhase.PARKING
    assert waiting(world)


def test_its_node_can_be_lost_as_well() -> None:
    world = staged_world(num_nodes=6)
    _, where = lose_replica(world)
    world.lose_node(where.node)
    world.run(world.now + 20.0)
    assert not waiting(world)
    assert where not in task(world).occupied_workers
    approve(world)
    assert task(world).layout == Layout(pp=2, dp=2)
    trained(world, task(world).progress.iteration + 3)


def test_an_order_that_was_lost_with_the_connection_is_given_again() -> None:
    world = staged_world()
    mate, where = mate_of(world, 0)
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).generation == 2)
    world.cut(where.node, 1.5)  # before the start reaches it
    trained(world, task(world).progress.iteration + 6)
    [reserve] = waiting(world).values()
    assert (reserve.pid, reserve.can_go_on) == (mate, True)


def test_that_goes_for_a_connection_that_is_back_while_ranks_park() -> None:
    world = staged_world()
    mate, where = mate_of(world, 0)
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).generation == 2)
    world.cut(where.node, 1.0)
    world.run(world.now + 0.9)
    world.kill_rank("gpt-a", 1)
    world.deafen("gpt-a", 0)  # so that parking takes a while
    world.run(world.now + 60.0)
    [reserve] = waiting(world).values()
    assert (reserve.pid, reserve.can_go_on) == (mate, True)


@pytest.mark.parametrize("seed", range(3))
def test_it_waits_through_a_fault_while_its_node_is_out_of_contact(seed: int) -> None:
    world = staged_world(seed)
    mate, where = lose_replica(world)
    generation = task(world).generation
    world.cut(where.node, 2.0)
    world.run(world.now + 0.05)
    world.kill_rank("gpt-a", 1)
    world.run(world.now + 20.0)
    assert task(world).generation == generation + 1
    [reserve] = waiting(world).values()
    assert (reserve.pid, reserve.can_go_on) == (mate, True)


def test_it_waits_through_a_fault_before_it_has_said_that_it_waits() -> None:
    world = staged_world()
    mate, _ = mate_of(world, 0)
    assert mate is not None
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).generation == 2)
    world.deaf.add(mate)
    world.kill_rank("gpt-a", 1)
    trained(world, task(world).progress.iteration + 3)
    [reserve] = waiting(world).values()
    assert (reserve.pid, reserve.position) == (mate, None)
    approve(world)  # nobody waits for it for ever
    assert task(world).layout == Layout(pp=2, dp=2)
    assert mate not in pids(world)


def test_an_agent_that_can_not_keep_it_waiting_is_no_fault_of_the_generation() -> None:
    world = staged_world()
    before = pids(world)
    _, where = mate_of(world, 0)
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).generation == 2)
    node = world.nodes[where.node]
    node.fence[A] = Generation(3)  # the start is refused
    failed = CommandFailed(where.node, "start", A, Generation(2), "no space", False)
    world.post(failed)
    trained(world, task(world).progress.iteration + 3)
    assert len(world.machine.state.incidents.all) == 1
    assert task(world).generation == 2
    assert set(pids(world)) < set(before)
    assert not waiting(world)
    assert not node.ranks


def test_one_whose_machine_has_restarted_is_not_counted_on() -> None:
    world = staged_world()
    mate, where = lose_replica(world)
    world.vanish(where.node)
    world.run(world.now + world.machine.policy.vanished_after_s + 2.0)
    assert not waiting(world)
    assert len(world.machine.state.incidents.all) == 1
    generation = task(world).generation
    approve(world)
    assert mate not in pids(world)
    assert task(world).generation == generation + 1


def test_a_plan_that_is_made_later_knows_where_it_waits() -> None:
    world = staged_world(num_nodes=6)
    world.lose_node("n2")
    world.run_until(lambda: task(world).layout == Layout(pp=2))
    approve(world)
    world.restore_node("n2")
    world.run(world.now + 3.0)
    mate, where = lose_replica(world)
    assert where.node == "n5"  # of the nodes that are free to be taken now, n1 and n2 come first
    world.restore_node("n1")
    world.run(world.now + 3.0)
    plan = world.machine.state.plans.pending()
    assert plan is not None
    assert plan.revision > 1
    approve(world)
    assert mate in pids(world)


def test_its_worker_may_be_given_to_another_part_of_the_model() -> None:
    world = staged_world(num_nodes=4)
    lost = Worker(task(world).ranks[0].worker.node, 0)
    mate, where = lose_replica(world)
    world.restore_node(lost.node)
    world.run(world.now + 3.0)
    plan = world.machine.state.plans.pending()
    assert plan is not None
    change = plan.changes[A]
    assert change.target is not None
    swapped = {lost: where, where: lost}
    places = tuple(swapped.get(worker, worker) for worker in change.target.placement)
    plan.changes[A] = replace(change, target=replace(change.target, placement=places))
    approve(world)
    assert task(world).placement == places
    assert mate not in pids(world)
    assert len(newest_start(world).continues) == 4  # both new processes had their models in time


def test_a_heartbeat_that_crosses_the_order_does_not_end_it() -> None:
    world = staged_world()
    mate, where = mate_of(world, 0)
    world.lose_node(task(world).ranks[0].worker.node)
    world.run_until(lambda: task(world).generation == 2)
    world.beat(where.node)
    trained(world, task(world).progress.iteration + 3)
    assert {rank.pid for rank in waiting(world).values()} == {mate}
    assert ("gpt-a", 1) not in world.ended  # a stop could come before it is known by its new name


def test_it_waits_beside_a_gpu_that_is_out_of_service() -> None:
    world = World(machine_of(STAGED, num_nodes=3, workers=4, slots=2), num_iterations=10**6)
    trained(world, 5)
    nodes = {number: rank.worker.node for number, rank in task(world).ranks.items()}
    mate, where = mate_of(world, 0)
    assert where.node == nodes[0]
    for _ in range(2):
        generation = task(world).generation
        world.raise_in_rank("gpt-a", 0, "RuntimeError", "CUDA error: unspecified launch failure")
        world.run_until(partial(is_newer, world, generation))
        trained(world, task(world).progress.iteration + 3)
    assert task(world).layout == Layout(pp=2)
    assert {rank.pid for rank in waiting(world).values()} == {mate}
    assert ("gpt-a", task(world).generation - 1) not in world.ended


def test_a_process_has_one_part_of_the_model_and_serves_for_no_other() -> None:
    places = tuple(Worker(NodeId(f"n{number}"), 0) for number in range(4))
    target = Target(Layout(pp=2, dp=2), places)
    last_stage = ModelPart(tp=1, pp=2, tp_rank=0, pp_rank=1)
    assert [place_in(target, worker, last_stage) for worker in places] == [None, None, 2, 3]
    assert place_in(target, places[2], ModelPart(tp=2, pp=1, tp_rank=0, pp_rank=0)) is None
    assert place_in(target, Worker(NodeId("n9"), 0), last_stage) is None


def test_it_waits_through_a_change_of_controllers() -> None:
    world = staged_world()
    mate, _ = lose_replica(world)
    world.kill_controller(3.0)
    world.run(world.now + 20.0)
    assert {rank.pid for rank in waiting(world).values()} == {mate}
    approve(world)
    assert mate in pids(world)


def test_it_does_not_wait_on_a_worker_that_another_task_is_to_get() -> None:
    def spec(name: TaskId, weight: float, layouts: list[Layout]) -> TaskSpec:
        points = [
            ThroughputPoint(workers=n, flops_per_s=n * 1e9, layout=each)
            for each in layouts
            if (n := each.num_workers)
        ]
        sizes = ThroughputTable(points=tuple(points))
        most, least = max(sizes.sizes), min(sizes.sizes)
        return TaskSpec(name, weight, most, least, sizes, 1e9, None, num_micro_batches=12)

    nodes = [NodeSpec(NodeId(f"n{number}"), "h", 1) for number in range(1, 6)]
    specs = [spec(A, 1.0, STAGED), spec(B, 50.0, [Layout(dp=1)])]
    world = World(Machine(nodes, specs, Policy(is_auto_heal=False)), num_iterations=10**6)
    trained(world, 5)
    world.lose_node(task(world, B).ranks[0].worker.node)
    world.run(world.now + 20.0)
    approve_next(world)
    target = task(world, B).assignment.target
    assert target is not None
    [given] = target.placement
    [number] = [n for n, rank in task(world).ranks.items() if rank.worker == given]
    _, mate = mate_of(world, number)
    world.lose_node(mate.node)  # before gpt-a has parked to give up the other
    trained(world, task(world, B).progress.iteration + 6)
    assert [rank.worker for rank in task(world, B).ranks.values()] == [given]
    assert not waiting(world)
