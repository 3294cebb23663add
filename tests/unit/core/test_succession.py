"""A controller that takes over judges no node for its own absence and leaves no work half done."""

from collections.abc import Callable

import pytest

from controller.core.events import (
    ControllerStarted,
    DrillRequested,
    Event,
    NodeAttached,
    PeerProbed,
    TimerFired,
)
from controller.core.instructions import HaltRanks, Instruction, ProbeNode
from controller.core.rules.transitions import Step
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.timers import JudgeNode
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next
from tests.unit.core.recovery.test_generations import machine_of

A = TaskId("gpt-a")


@pytest.fixture
def world() -> World:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    world.run(10.0)
    return world


def pids(world: World) -> set[int]:
    return {pid for node in world.nodes.values() for pid in node.ranks}


def told(world: World, kind: str) -> list[str]:
    return [line.text for _, line in world.announcements if line.kind == kind]


def test_training_does_not_notice(world: World) -> None:
    before, generations = (
        pids(world),
        {n: t.generation for n, t in world.machine.state.tasks.items()},
    )
    iteration = world.machine.state.tasks[A].progress.iteration
    world.kill_controller(30.0)
    world.run(world.now + 40.0)
    state = world.machine.state
    assert pids(world) == before
    assert {name: task.generation for name, task in state.tasks.items()} == generations
    assert state.tasks[A].progress.iteration > iteration + 30, "what was committed meanwhile counts"
    assert not state.incidents.all
    assert all(node.contact.condition is NodeCondition.HEALTHY for node in state.nodes.values())
    assert len(told(world, "takeover")) == 1


def test_the_first_controller_of_a_run_has_nothing_to_take_over() -> None:
    world = World(demo_machine(num_nodes=5))
    world.post(ControllerStarted("run", 1, 0.0))
    assert {each.level for _, each in world.announcements} == {"trace"}
    nodes = world.machine.state.nodes.values()
    assert {node.contact.condition for node in nodes} == {NodeCondition.EXPECTED}


def test_a_generation_that_was_forming_goes_on_to_form(world: World) -> None:
    world.kill_rank(A, 1)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is TaskPhase.STARTING)
    formed, survivors = world.machine.state.tasks[A].generation, pids(world)
    world.kill_controller(2.0)
    world.run(world.now + 12.0)
    task = world.machine.state.tasks[A]
    assert task.lifecycle.phase is TaskPhase.RUNNING
    assert task.generation == formed
    assert survivors <= pids(world)
    [incident] = world.machine.state.incidents.all
    assert not incident.is_open


def test_a_rank_that_dies_meanwhile_is_replaced_and_a_node_that_is_lost_meanwhile_is_found_lost(
    world: World,
) -> None:
    world.kill_controller(20.0)
    world.kill_rank(A, 1)
    world.run(world.now + 5.0)
    world.lose_node("n5")
    world.run(world.now + 60.0)
    state = world.machine.state
    assert state.nodes[NodeId("n5")].contact.condition is NodeCondition.LOST
    assert all(not incident.is_open for incident in state.incidents.all)
    assert state.tasks[A].lifecycle.phase is TaskPhase.RUNNING


def growing() -> tuple[World, TaskId]:
    """Return a cluster whose lost node is back, and the task that parks to grow."""
    world = World(demo_machine(num_nodes=4), num_iterations=10**6)
    world.run(10.0)
    world.lose_node("n1")
    world.run(world.now + 40.0)
    world.restore_node("n1")

    def parking() -> list[TaskId]:
        tasks = world.machine.state.tasks.items()
        return [
            name
            for name, task in tasks
            if task.lifecycle.parking and task.lifecycle.parking.at_boundary
        ]

    world.run_until(lambda: bool(parking()))
    return world, parking()[0]


@pytest.mark.parametrize("attach_s", [0.5, 4.5])
def test_a_task_that_parks_without_a_fault_keeps_its_processes(attach_s: float) -> None:
    world, name = growing()
    task = world.machine.state.tasks[name]
    before = {rank.pid for rank in task.living_ranks.values()}
    iteration, num_rerun = task.progress.iteration, task.progress.num_rerun_iterations
    world.kill_controller(3.0, attach_s)
    world.run(world.now + 30.0)
    assert before <= pids(world)
    task = world.machine.state.tasks[name]
    assert task.lifecycle.phase is TaskPhase.RUNNING
    assert task.progress.iteration > iteration
    assert task.progress.num_rerun_iterations == num_rerun


def test_a_task_that_parks_keeps_its_processes_when_all_nodes_go_out_of_sight_for_a_moment() -> (
    None
):
    world, name = growing()
    before = {rank.pid for rank in world.machine.state.tasks[name].living_ranks.values()}
    for node in world.nodes:
        world.cut(node, 3.0)
    world.run(world.now + 30.0)
    assert before <= pids(world)
    assert world.machine.state.tasks[name].lifecycle.phase is TaskPhase.RUNNING


def test_growth_does_not_wait_for_processes_that_were_never_asked_for() -> None:
    world = World(demo_machine(num_nodes=4), num_iterations=10**6)
    world.run(10.0)
    world.lose_node("n1")
    world.run(world.now + 40.0)
    world.restore_node("n1")
    tasks = world.machine.state.tasks
    world.run_until(lambda: any(task.spares for task in tasks.values()))
    world.kill_controller(1.0)  # before the orders are at their nodes
    world.run(world.now + world.machine.policy.prepare_limit_s / 2)
    sizes = {name: len(task.living_ranks) for name, task in world.machine.state.tasks.items()}
    assert sizes == {"gpt-a": 4, "gpt-b": 4}


@pytest.mark.parametrize("num_kills", [1, 2])
def test_a_recovery_under_way_keeps_the_survivors_however_late_their_nodes_attach(
    world: World, num_kills: int
) -> None:
    world.kill_rank(A, 1)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is TaskPhase.STARTING)
    before = Generation(world.machine.state.tasks[A].generation - 1)
    survivors = {rank.pid for _, rank in world._ranks(A, before)}
    for _ in range(num_kills):
        world.kill_controller(2.0, 4.5)
        world.run(world.now + 3.0)
    world.run(world.now + 20.0)
    assert survivors <= pids(world)
    assert world.machine.state.tasks[A].lifecycle.phase is TaskPhase.RUNNING
    assert not [i for i in world.machine.state.incidents.all if i.is_open]


def test_a_node_that_was_unreachable_before_has_time_too(world: World) -> None:
    """A controller that dies again before anybody attached leaves them all unreachable."""
    world.kill_rank(A, 0)
    world.kill_controller(1.0, 1000.0)
    world.run(world.now + 1.1)
    world.kill_controller(90.0, 4.0)
    world.run(world.now + 120.0)
    conditions = {node.contact.condition for node in world.machine.state.nodes.values()}
    assert conditions == {NodeCondition.HEALTHY}
    assert "lost_connection" not in {i.cause.status for i in world.machine.state.incidents.all}


def test_time_without_a_controller_teaches_nothing_about_transitions(world: World) -> None:
    world.kill_rank(A, 1)
    task = world.machine.state.tasks[A]
    world.run_until(
        lambda: all(rank.joined for rank in task.ranks.values()) and task.generation > 1
    )
    assert task.lifecycle.phase is TaskPhase.STARTING
    generation = task.generation
    world.kill_controller(300.0)
    world.run(world.now + 320.0)
    task = world.machine.state.tasks[A]
    assert task.generation == generation, "all had joined: nobody is parked"
    assert max(task.transitions.experience.mean_s.values(), default=0.0) < 30.0


def test_time_without_a_controller_speaks_against_no_rank_of_a_generation_that_forms(
    world: World,
) -> None:
    for _ in range(2):  # the first one teaches how long it takes
        world.kill_rank(A, 1)
        world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is TaskPhase.STARTING)
        if not world.machine.state.tasks[A].transitions.experience.mean_s:
            world.run(world.now + 20.0)
    world.kill_controller(60.0, 0.0)
    world.run(world.now + 60.1)
    last = world.machine.state.tasks[A].nodes[-1]
    world.cut(last, world.machine.policy.look_interval_s - 0.2)  # attaches just before the look
    world.run(world.now + 30.0)
    assert [i.cause.status for i in world.machine.state.incidents.all] == ["exited_abnormally"] * 2
    assert not told(world, "stall")


@pytest.mark.parametrize("seed", range(4))
def test_a_generation_that_had_formed_before_the_takeover_is_not_parked_then_or_later(
    seed: int,
) -> None:
    world = World(demo_machine(num_nodes=5), seed=seed, num_iterations=10**6)
    world.run(10.0)
    world.kill_rank(A, 1)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is TaskPhase.STARTING)
    formed = world.machine.state.tasks[A].generation
    world.run(world.now + 0.22)
    for name in world.machine.state.tasks[A].nodes:  # it forms, and nobody hears of it
        world.cut(name, 1000.0)
    world.run(world.now + 3.0)
    assert world.runs[A, formed].is_formed
    world.kill_controller(1.0, 2.0)
    world.run(world.now + 20.0)
    task = world.machine.state.tasks[A]
    assert (task.generation, task.lifecycle.phase) == (formed, TaskPhase.RUNNING)


def stopping() -> World:
    """Return a world whose task stops to be divided anew, on the node that has returned too."""
    machine = machine_of([Layout(dp=2), Layout(tp=2, dp=2)], num_nodes=2, workers=4, slots=2)
    world = World(machine, num_iterations=10**6)
    world.run(10.0)
    world.lose_node("n2")
    approve_next(world)
    world.run(world.now + 20.0)
    world.restore_node("n2")
    approve_next(world)
    return world


def parking() -> World:
    """Return a world whose task parks after a fault."""
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    world.run(10.0)
    world.kill_rank(A, 1)
    return world


@pytest.mark.parametrize(
    ("begun", "phase", "step"),
    [(parking, TaskPhase.PARKING, "park"), (stopping, TaskPhase.STOPPING, "stop")],
)
def test_time_without_a_controller_teaches_nothing(
    begun: Callable[[], World], phase: TaskPhase, step: Step
) -> None:
    world = begun()
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is phase)
    generation = world.machine.state.tasks[A].generation
    world.kill_controller(300.0)
    world.run(world.now + 330.0)
    task = world.machine.state.tasks[A]
    assert task.generation > generation
    assert task.lifecycle.phase is TaskPhase.RUNNING
    learned = [
        mean_s for (_, each), mean_s in task.transitions.experience.mean_s.items() if each == step
    ]
    assert learned
    assert max(learned) < 30.0


def test_a_drill_that_may_not_have_been_carried_out_excuses_nothing(world: World) -> None:
    world.post(DrillRequested("r", "op", "kill-rank", A, 1))
    assert world.machine.state.drills.staged
    take_over(world)
    assert not world.machine.state.drills.staged


def take_over(world: World) -> None:
    """Let the next controller begin.

    Unlike with ``kill_controller`` no agent attaches by itself.
    """
    world.post(ControllerStarted("run", 2, 0.0))


def attach(world: World, name: NodeId) -> list[Instruction]:
    """Let an agent attach; return what the machine wants."""
    node, number = world.nodes[name], len(world.events)
    body = NodeAttached(name, AgentId(f"{name}-{node.agent}"), 1, world.statuses(node))
    instructions = world.machine.handle(Event(number + 1, world.now, body))
    world.events.append(Event(number + 1, world.now, body))
    return instructions


def test_a_node_has_time_to_be_reached_although_its_task_suffers(world: World) -> None:
    """A rank died meanwhile: its peer's report comes before its node does."""
    task = world.machine.state.tasks[A]
    victim, neighbour = task.ranks[0], task.ranks[2]
    assert victim.worker.node != neighbour.worker.node
    world.now += 1000.0
    take_over(world)
    attach(world, neighbour.worker.node)
    world.fail_collective(A, 2)
    for peer in world.nodes:
        if peer != victim.worker.node:
            world.post(PeerProbed(victim.worker.node, peer, "refused"))
    world.now += world.machine.policy.takeover_grace_s - 0.1
    world.post(TimerFired(JudgeNode(victim.worker.node)))
    node = world.machine.state.nodes[victim.worker.node]
    before = node.contact.condition
    world.now += 0.2
    world.post(PeerProbed(victim.worker.node, neighbour.worker.node, "refused"))
    assert (before, node.contact.condition) == (NodeCondition.UNREACHABLE, NodeCondition.LOST)


def test_probes_that_were_under_way_are_forgotten_and_made_again(world: World) -> None:
    world.cut("n1", 1000.0)
    node = world.machine.state.nodes[NodeId("n1")]
    assert node.inquiry.open_probes
    take_over(world)
    assert not node.inquiry.open_probes
    attach(world, NodeId("n2"))
    number = len(world.events) + 1
    fired = Event(number, world.now + 1.0, TimerFired(JudgeNode(NodeId("n1"))))
    [probe] = [i for i in world.machine.handle(fired) if isinstance(i, ProbeNode)]
    assert (probe.node, probe.by) == ("n1", ("n2",))


def test_a_halt_that_may_have_been_lost_is_given_again(world: World) -> None:
    world.kill_rank(A, 1)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is TaskPhase.PARKING)
    node = world.machine.state.tasks[A].nodes[0]
    take_over(world)
    [halt] = [i for i in attach(world, node) if isinstance(i, HaltRanks)]
    assert (halt.order.task, halt.nodes) == (A, (node,))
