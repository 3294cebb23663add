"""Nodes, tasks and policy that change while tasks train."""

from dataclasses import replace

import pytest

from controller.core.events import (
    Event,
    MembershipChange,
    NodeAdded,
    NodeRemoved,
    PlanApproved,
    PolicyChanged,
    TaskAdded,
    TaskChanged,
    TaskRemoved,
)
from controller.core.instructions import ConnectNode, DisconnectNode, Instruction
from controller.core.machine import Machine
from controller.core.membership.file_changes import ImpossibleChangeError, changes
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import IncidentState, NodeCondition, PlanState, TaskPhase
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine, spec_of, table, wanted_of
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

A, B, C = TaskId("gpt-a"), TaskId("gpt-b"), TaskId("gpt-c")
N1, N5 = NodeId("n1"), NodeId("n5")
NEW_NODE = NodeSpec(N5, "127.0.0.1:2205", 2, access="how to log in")


def new_task(workers: int = 2) -> TaskSpec:
    return TaskSpec(
        task=C, weight=1.0, workers=workers, min_workers=1, table=table({1: 3e9, 2: 5e9, 4: 9e9}),
        flops_per_iteration=1e9, num_iterations=None, num_micro_batches=4, program="c",
    )  # fmt: skip


@pytest.fixture
def world() -> World:
    world = World(demo_machine(), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    return world


def task_of(world: World, name: TaskId) -> TaskState:
    return world.machine.state.tasks[name]


def nodes_of(world: World, name: TaskId) -> set[str]:
    return {str(worker.node) for worker in task_of(world, name).placement}


def post(world: World, *bodies: MembershipChange) -> None:
    for body in bodies:
        world.post(body)


def recorded(world: World) -> list[Instruction]:
    """Return a list that gets every instruction from now on."""
    found: list[Instruction] = []
    handle = world.machine.handle

    def recording(event: Event) -> list[Instruction]:
        instructions = handle(event)
        found.extend(instructions)
        return instructions

    world.machine.handle = recording  # type: ignore[method-assign]
    return found


def test_a_machine_that_begins_empty_is_the_one_that_was_made_of_the_same() -> None:
    made = demo_machine()
    world = World(demo_machine())
    assert wanted_of(world.machine) == wanted_of(made)
    targets = [
        {name: task.assignment.target for name, task in machine.state.tasks.items()}
        for machine in (made, world.machine)
    ]
    assert targets[0] == targets[1]


def test_equal_wishes_change_nothing_and_others_only_what_differs(world: World) -> None:
    state, policy = world.machine.state, world.machine.policy
    wanted = wanted_of(world.machine)
    assert list(changes(wanted, state, policy)) == []
    heavier = replace(wanted.tasks[A], weight=9.0)
    other = replace(
        wanted,
        policy=replace(policy, restarts=9),
        nodes={**{n: s for n, s in wanted.nodes.items() if n != N1}, N5: NEW_NODE},
        tasks={A: heavier, C: new_task()},
    )
    assert list(changes(other, state, policy)) == [
        PolicyChanged(other.policy), NodeAdded(NEW_NODE), TaskRemoved(B), TaskChanged(heavier),
        NodeRemoved(N1), TaskAdded(new_task()),
    ]  # fmt: skip
    post(world, *changes(other, state, policy))
    assert list(changes(other, state, world.machine.policy)) == []


def test_a_command_of_the_same_name_is_another_task(world: World) -> None:
    wanted = wanted_of(world.machine)
    command = replace(wanted.tasks[A], is_command=True)
    other = replace(wanted, tasks={**wanted.tasks, A: command})
    found = list(changes(other, world.machine.state, world.machine.policy))
    assert found == [TaskRemoved(A), TaskAdded(command)]


def test_a_node_can_grow_and_can_not_shrink(world: World) -> None:
    wanted, state = wanted_of(world.machine), world.machine.state
    spec = wanted.nodes[N1]
    larger = replace(wanted, nodes={**wanted.nodes, N1: replace(spec, num_workers=4)})
    assert list(changes(larger, state, wanted.policy)) == [NodeAdded(larger.nodes[N1])]
    smaller = replace(wanted, nodes={**wanted.nodes, N1: replace(spec, num_workers=1)})
    with pytest.raises(ImpossibleChangeError, match="n1 has 2 workers and can't have 1 while"):
        list(changes(smaller, state, wanted.policy))


def test_a_node_that_is_added_is_contacted_and_joins(world: World) -> None:
    found = recorded(world)
    post(world, NodeAdded(NEW_NODE))
    assert [each for each in found if isinstance(each, ConnectNode)] == [
        ConnectNode(len(world.events), N5, "how to log in")
    ]
    node = world.machine.state.nodes[N5]
    world.run_until(lambda: node.contact.condition is NodeCondition.HEALTHY)
    world.lose_node("n4")
    world.run_until(lambda: "n5" in nodes_of(world, B) and all_run(world))


def test_a_node_leaves_once_its_tasks_are_elsewhere(world: World) -> None:
    post(world, NodeAdded(NEW_NODE))
    world.run(world.now + 5.0)
    assert "n1" in nodes_of(world, A)
    post(world, NodeRemoved(N1))
    node = world.machine.state.nodes[N1]
    assert node.membership.is_leaving
    assert node.contact.condition is NodeCondition.HEALTHY
    world.run_until(lambda: node.contact.condition is NodeCondition.REMOVED)
    assert nodes_of(world, A) == {"n2", "n5"}
    world.run_until(lambda: all_run(world))
    assert world.machine.state.incidents.all == []
    assert task_of(world, A).progress.num_rerun_iterations == 0
    post(world, NodeAdded(node.spec))
    world.run_until(lambda: node.contact.condition is NodeCondition.HEALTHY)


def test_an_idle_node_leaves_at_once(world: World) -> None:
    post(world, NodeAdded(NEW_NODE))
    world.run(world.now + 2.0)
    post(world, NodeRemoved(N5))
    assert world.machine.state.nodes[N5].contact.condition is NodeCondition.REMOVED


def test_without_approval_a_node_waits_for_it() -> None:
    world = World(demo_machine(is_auto_heal=False, num_nodes=5), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    post(world, NodeRemoved(N1))
    world.run(world.now + 5.0)
    node, plan = world.machine.state.nodes[N1], world.machine.state.plans.pending()
    assert node.membership.is_leaving
    assert plan is not None
    assert "n1" in nodes_of(world, A)
    world.post(PlanApproved("r", "op", plan.name, plan.revision))
    world.run_until(lambda: node.contact.condition is NodeCondition.REMOVED)


def test_a_policy_that_heals_by_itself_grants_the_plan_that_waits() -> None:
    world = World(demo_machine(is_auto_heal=False, num_nodes=5), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.lose_node("n1")
    world.run_until(world.machine.state.plans.pending)
    post(world, PolicyChanged(replace(world.machine.policy, is_auto_heal=True)))
    world.run_until(lambda: all_run(world))
    assert world.machine.state.plans.all[-1].state is not PlanState.PENDING


def test_a_task_that_is_added_is_started_by_a_plan(world: World) -> None:
    post(world, NodeAdded(NEW_NODE), TaskAdded(new_task()))
    assert not task_of(world, C).living_ranks
    world.run_until(lambda: all_run(world))
    assert task_of(world, C).lifecycle.phase is TaskPhase.RUNNING
    assert {start.program for _, start in world.starts if start.task == C} == {"c"}


@pytest.mark.parametrize("agent_start_s", [0.1, 18.0, 55.0])
def test_a_task_and_a_node_that_come_together_move_no_other_task(
    world: World, agent_start_s: float
) -> None:
    before = [task_of(world, name).generation for name in (A, B)]
    world.agent_start_s = agent_start_s
    task = replace(new_task(), table=table({1: 3e9, 2: 5e9}))
    post(world, NodeAdded(NEW_NODE), TaskAdded(task))
    world.run_until(lambda: all_run(world), limit_s=100)
    assert nodes_of(world, C) == {"n5"}
    assert [task_of(world, name).generation for name in (A, B)] == before


def test_a_task_does_not_wait_for_ever_for_a_node_that_was_added_with_it(world: World) -> None:
    world.agent_start_s = 1000.0
    post(world, NodeAdded(NEW_NODE), TaskAdded(new_task()))
    world.run(50.0)
    new = task_of(world, C)
    assert new.lifecycle.phase is TaskPhase.STOPPED
    world.run_until(lambda: new.lifecycle.phase is TaskPhase.RUNNING, limit_s=20)


def test_a_task_that_does_not_fit_waits_for_room() -> None:
    machine = Machine()
    spec = spec_of(demo_machine(num_nodes=4))
    wanted = replace(wanted_of(demo_machine()), nodes={node.node: node for node in spec.nodes[:2]})
    world = World(machine)
    post(world, *changes(wanted, machine.state, machine.policy))
    phases = {name: task.lifecycle.phase for name, task in machine.state.tasks.items()}
    assert phases == {A: TaskPhase.WAITING, B: TaskPhase.STOPPED}
    assert "workers" in task_of(world, B).lifecycle.note
    post(world, *(NodeAdded(node) for node in spec.nodes[2:]))
    assert task_of(world, B).lifecycle.phase is TaskPhase.WAITING
    world.run_until(lambda: all_run(world))


def test_a_task_that_is_removed_saves_and_ends_and_may_come_back(world: World) -> None:
    spec = task_of(world, B).spec
    generation = task_of(world, B).generation
    post(world, TaskRemoved(B))
    assert task_of(world, B).lifecycle.phase is TaskPhase.STOPPING
    assert task_of(world, B).stopping.is_graceful
    post(world, TaskRemoved(B), TaskRemoved(TaskId("unknown")), NodeRemoved(NodeId("unknown")))
    world.run_until(lambda: task_of(world, B).lifecycle.phase is TaskPhase.FINISHED)
    assert world.tasks[B].checkpoint > 0
    post(world, TaskAdded(spec))
    world.run_until(lambda: task_of(world, B).lifecycle.phase is TaskPhase.RUNNING)
    assert task_of(world, B).generation > generation


def test_a_task_that_is_added_again_while_it_stops_starts_anew(world: World) -> None:
    spec = replace(task_of(world, B).spec, program="new")
    post(world, TaskRemoved(B), TaskAdded(spec))
    world.run_until(lambda: task_of(world, B).membership.program == "new")
    world.run_until(lambda: all_run(world))


def test_a_weight_takes_effect_at_once_and_a_program_at_the_next_start(world: World) -> None:
    task = task_of(world, A)
    generation = task.generation
    post(world, TaskChanged(replace(task.spec, weight=7.0)))
    assert (task.spec.weight, task.membership.next_spec) == (7.0, None)
    changed = replace(task.spec, program="new", num_micro_batches=24)
    post(world, TaskChanged(changed))
    world.run(world.now + 5.0)
    assert (task.generation, task.spec.program, task.membership.next_spec) == (
        generation, "", changed,
    )  # fmt: skip
    world.kill_rank(A, 1)
    world.run_until(lambda: task.generation > generation and all_run(world))
    assert task.spec.program == "", "the processes that continue have the program of before"
    assert world.starts[-1][1].program == ""
    post(world, TaskRemoved(A))
    world.run_until(lambda: task_of(world, A).lifecycle.phase is TaskPhase.FINISHED)
    post(world, TaskAdded(changed))
    world.run_until(lambda: all_run(world))
    assert task_of(world, A).membership.program == "new"


def test_changes_before_anything_starts_move_no_process() -> None:
    world = World(demo_machine(num_nodes=5), absent=["n1", "n2", "n3", "n4", "n5"])
    post(world, NodeRemoved(N1), TaskRemoved(B), TaskAdded(new_task(4)))
    assert world.machine.state.nodes[N1].contact.condition is NodeCondition.REMOVED
    targets = {name: task.assignment.target for name, task in world.machine.state.tasks.items()}
    assert targets[B] is None
    for name in (A, C):
        target = targets[name]
        assert target is not None
        assert not target.uses(N1)
        assert task_of(world, name).lifecycle.phase is TaskPhase.WAITING


def test_the_contact_with_a_node_that_has_left_is_ended(world: World) -> None:
    found = recorded(world)
    post(world, NodeAdded(NEW_NODE), NodeRemoved(N5))
    assert [type(each) for each in found if isinstance(each, ConnectNode | DisconnectNode)] == [
        ConnectNode, DisconnectNode,
    ]  # fmt: skip


def test_the_default_policy_needs_no_event() -> None:
    wanted = replace(wanted_of(demo_machine()), policy=Policy())
    assert not any(
        isinstance(body, PolicyChanged) for body in changes(wanted, Machine().state, Policy())
    )


def test_a_node_that_never_comes_is_lost_and_its_tasks_start_on_what_is_there() -> None:
    world = World(demo_machine(), num_iterations=10**6, absent=["n1"])
    world.run(30.0)
    phases = {name: task.lifecycle.phase for name, task in world.machine.state.tasks.items()}
    assert phases == {A: TaskPhase.WAITING, B: TaskPhase.RUNNING}
    world.run_until(lambda: all_run(world), limit_s=60)
    [incident] = world.machine.state.incidents.all
    assert "n1: it has not come within 60 s" in incident.cause.reason
    assert "n1" not in nodes_of(world, A)
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    world.restore_node("n1")
    world.run_until(lambda: all_run(world) and "n1" in nodes_of(world, A) | nodes_of(world, B))


def test_a_node_that_never_comes_and_no_task_needs_holds_nothing_up() -> None:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6, absent=["n5"])
    world.run(90.0)
    assert all_run(world)
    [incident] = world.machine.state.incidents.all
    assert incident.state is IncidentState.RESOLVED
    assert task_of(world, A).generation == task_of(world, B).generation == 1
