"""Whoever leaves and comes back begins anew; what waits for a plan waits for the right moment."""

from dataclasses import replace

import pytest

from controller.core.events import (
    MeasurementRequested,
    MembershipChange,
    NodeAdded,
    NodeAttached,
    NodeRemoved,
    TaskAdded,
    TaskChanged,
)
from controller.core.machine import Machine
from controller.core.membership.file_changes import changes
from controller.core.rules.placement import Worker
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.task_records import LeavingRanks
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from tests.fakes.clusters import demo_machine, table, wanted_of
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

A, B, C = TaskId("gpt-a"), TaskId("gpt-b"), TaskId("gpt-c")
N1, N3, N5 = NodeId("n1"), NodeId("n3"), NodeId("n5")
NEW_NODE = NodeSpec(N5, "127.0.0.1:2205", 2, access="how to log in")
NEW_TASK = TaskSpec(
    task=C, weight=1.0, workers=2, min_workers=1, table=table({1: 3e9, 2: 5e9}),
    flops_per_iteration=1e9, num_iterations=None, num_micro_batches=4, program="c",
)  # fmt: skip


@pytest.fixture
def world() -> World:
    return running(demo_machine(num_nodes=5))


def running(machine: Machine) -> World:
    world = World(machine, num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    return world


def post(world: World, *bodies: MembershipChange) -> None:
    for body in bodies:
        world.post(body)


def task_of(world: World, name: TaskId) -> TaskState:
    return world.machine.state.tasks[name]


def condition(world: World, name: NodeId) -> NodeCondition:
    return world.machine.state.nodes[name].contact.condition


def is_leaving(world: World, name: NodeId) -> bool:
    return world.machine.state.nodes[name].membership.is_leaving


def leave(world: World, name: NodeId) -> None:
    post(world, NodeRemoved(name))
    world.run_until(lambda: condition(world, name) is NodeCondition.REMOVED)


@pytest.mark.parametrize("is_whole_node", [True, False], ids=["node", "gpu"])
def test_a_node_that_comes_back_is_not_isolated_any_more(world: World, is_whole_node: bool) -> None:
    # A repaired machine: whoever adds it again wants it used.
    node = world.machine.state.nodes[N1]
    leave(world, N1)
    if is_whole_node:
        node.service.isolated = "isolated by I-9: ECC errors"
    else:
        node.service.isolated_gpus[1] = "isolated by I-9: ECC errors"
    post(world, NodeAdded(node.spec))
    assert not node.service.isolated
    assert not node.service.isolated_gpus


def test_a_node_that_is_wanted_again_before_it_has_left_stays() -> None:
    world = running(demo_machine(is_auto_heal=False))
    wanted = wanted_of(world.machine)
    post(world, NodeRemoved(N1))
    assert is_leaving(world, N1)
    node = world.machine.state.nodes[N1]
    found = list(changes(wanted, world.machine.state, world.machine.policy))
    assert found == [NodeAdded(node.spec)]
    post(world, *found)
    assert not is_leaving(world, N1)
    world.run(world.now + 30.0)
    assert condition(world, N1) is NodeCondition.HEALTHY


def test_what_a_removed_node_still_sends_changes_nothing(world: World) -> None:
    leave(world, N1)
    node = world.machine.state.nodes[N1]
    world.post(NodeAttached(N1, AgentId("agent-x"), 7, ()))
    num_events = len(world.events)
    world.take_beat(N1, ())
    assert len(world.events) == num_events
    assert N1 not in world.heartbeats.pulses
    assert condition(world, N1) is NodeCondition.REMOVED
    assert node.contact.agent_id != "agent-x"


def test_before_anything_has_started_a_node_that_leaves_gets_no_task() -> None:
    names = ["n1", "n2", "n3", "n4"]
    world = World(demo_machine(), absent=names)
    post(world, NodeRemoved(N1))
    targets = [task.assignment.target for task in world.machine.state.tasks.values()]
    assert not any(target is not None and target.uses(N1) for target in targets)
    assert condition(world, N1) is NodeCondition.REMOVED
    assert task_of(world, B).lifecycle.phase is TaskPhase.STOPPED


def test_a_weight_counts_at_once_although_the_program_waits(world: World) -> None:
    task = task_of(world, A)
    post(world, TaskChanged(replace(task.spec, program="new", weight=7.0, keeps_running=True)))
    assert (task.spec.program, task.spec.weight, task.spec.keeps_running) == ("", 7.0, True)
    assert task.membership.next_spec is not None


def test_a_task_of_a_former_name_counts_its_generations_on(world: World) -> None:
    former = task_of(world, A)
    former.leaving = LeavingRanks({(Generation(1), 0): Worker(N1, 0)})
    new = world.machine.state.put_task(former.spec)
    assert new.generation == former.generation + 1
    assert new.leaving == former.leaving, "its processes may still be ending"


def test_a_node_on_which_a_throughput_is_measured_leaves_afterwards(world: World) -> None:
    world.post(MeasurementRequested("r", "op", A, (1,), 10))
    measurement = world.machine.state.measurements.current
    assert measurement is not None
    world.run_until(lambda: measurement.run is not None)
    post(world, NodeRemoved(N5))
    world.run_until(lambda: measurement.run is not None and measurement.run.nodes)
    assert condition(world, N5) is NodeCondition.HEALTHY
    world.run_until(lambda: condition(world, N5) is NodeCondition.REMOVED)
    assert measurement.is_over


def test_a_plan_for_a_change_waits_for_a_node_that_is_out_of_contact(world: World) -> None:
    # No plan moves what is out of contact: a plan now would leave n3's workers out.
    world.cut("n3", for_s=4.0)
    world.run_until(lambda: condition(world, N3) is NodeCondition.UNREACHABLE)
    post(world, TaskAdded(NEW_TASK))
    while condition(world, N3) is NodeCondition.UNREACHABLE:
        assert task_of(world, C).assignment.target is None
        world.run(world.now + 0.1)
    world.run_until(lambda: all_run(world))
    assert task_of(world, C).lifecycle.phase is TaskPhase.RUNNING


def test_a_node_out_of_contact_holds_up_its_own_leaving_and_no_other_plan(world: World) -> None:
    world.cut("n1", for_s=300.0)
    world.run_until(lambda: condition(world, N1) is NodeCondition.UNREACHABLE)
    post(world, NodeRemoved(N1), TaskAdded(NEW_TASK))
    wanted = world.machine.state.wanted_plans
    grace_s = world.machine.policy.takeover_grace_s
    world.run(world.now + grace_s + 2.0)
    assert list(wanted.seen) == ["n1"], "its tasks can't be moved yet"
    assert task_of(world, C).assignment.target is not None
    world.run_until(lambda: condition(world, N1) is not NodeCondition.UNREACHABLE)
    world.run_until(lambda: condition(world, N1) is NodeCondition.REMOVED and all_run(world))
