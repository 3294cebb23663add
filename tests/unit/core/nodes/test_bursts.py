"""Nodes that are lost within a moment: one incident, one plan, one generation."""

from dataclasses import replace

import pytest

from controller.core.planning.problem import worker_mtbf_s
from controller.core.rules.policy import Policy
from controller.core.state.phases import IncidentState, NodeCondition, PlanState, TaskPhase
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import A, all_run, newest_incident, only_incident, running_world

POLICY = Policy(is_auto_heal=True)


def burst_world(policy: Policy = POLICY, *, num_nodes: int = 6) -> World:
    return running_world(num_nodes=num_nodes, policy=policy)


def lose(world: World, *names: str, apart_s: float = 0.0) -> None:
    for name in names:
        world.lose_node(name)
        world.run(world.now + apart_s)


def generations(world: World) -> dict[str, int]:
    return {name: task.generation for name, task in world.machine.state.tasks.items()}


def resolve(world: World) -> None:
    incidents = world.machine.state.incidents
    world.run_until(
        lambda: bool(incidents.all) and not incidents.open() and all_run(world), limit_s=60.0
    )


@pytest.mark.parametrize("apart_s", [0.0, 0.3])
def test_two_nodes_are_one_incident_one_plan_and_one_generation(apart_s: float) -> None:
    world = burst_world()
    before = generations(world)
    lose(world, "n1", "n3", apart_s=apart_s)
    resolve(world)
    incident = only_incident(world)
    assert set(incident.cause.nodes) == {"n1", "n3"}
    assert incident.cause.node == incident.cause.nodes[0]
    [plan] = world.machine.state.plans.all
    assert (plan.state, plan.revision) == (PlanState.APPLIED, 2 if apart_s else 1)
    assert all(after - before[name] <= 1 for name, after in generations(world).items())


def test_without_a_window_each_loss_has_its_own_plan() -> None:
    world = burst_world(replace(POLICY, burst_s=0.0))
    lose(world, "n1", "n3")
    resolve(world)
    incidents = world.machine.state.incidents.all
    assert [incident.cause.nodes for incident in incidents] == [("n1",), ("n3",)]
    assert len(world.machine.state.plans.all) == 2


@pytest.mark.parametrize(("rack", "wait_s"), [(("n1", "n2"), 0.0), (("n1", "n2", "n3"), 2.0)])
def test_after_two_nodes_of_a_failure_domain_the_plan_waits_for_its_third(
    rack: tuple[str, ...], wait_s: float
) -> None:
    planned_at = []
    for burst_s in (0.0, 2.0):
        policy, domains = replace(POLICY, burst_s=burst_s), dict.fromkeys(rack, "rack-1")
        machine = demo_machine(num_nodes=6, policy=policy, failure_domains=domains)
        world = World(machine, num_iterations=10**6)
        world.run(4.0)
        lose(world, "n1", "n2")
        resolve(world)
        planned_at.append(machine.state.plans.all[-1].created_at)
    assert planned_at[1] - planned_at[0] == pytest.approx(wait_s, abs=0.1)


def test_a_single_loss_waits_for_nothing() -> None:
    times = []
    for burst_s in (0.0, 2.0):
        world = burst_world(replace(POLICY, burst_s=burst_s))
        lose(world, "n2")
        resolve(world)
        [plan] = world.machine.state.plans.all
        times.append(plan.created_at)
    assert times[0] == times[1]


def test_a_loss_after_the_plan_joins_the_incident_while_it_is_open() -> None:
    world = burst_world()
    lose(world, "n1")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    lose(world, "n3")
    resolve(world)
    assert only_incident(world).cause.nodes == ("n1", "n3")


def test_a_later_loss_is_an_incident_of_its_own() -> None:
    world = burst_world()
    lose(world, "n1")
    resolve(world)
    world.run(world.now + 5.0)
    lose(world, "n3")
    world.run_until(lambda: len(world.machine.state.incidents.all) == 2)
    resolve(world)
    assert newest_incident(world).cause.nodes == ("n3",)
    assert len(world.machine.state.incidents.all) == 2


def test_a_node_that_stays_out_of_contact_delays_the_plan_by_the_window_at_most() -> None:
    world = burst_world()
    lose(world, "n1")
    world.cut("n3", for_s=30.0)
    lost_at = world.now
    world.run_until(lambda: bool(world.machine.state.plans.all), limit_s=20.0)
    losses = world.machine.state.bursts
    assert losses.gathers_until is None
    assert world.now - lost_at < POLICY.burst_s + 4.0
    assert newest_incident(world).state is not IncidentState.DETECTED


def test_without_auto_heal_one_plan_is_proposed_for_both() -> None:
    world = burst_world(Policy())
    lose(world, "n1", "n3")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    world.run(world.now + 3.0)
    [plan] = world.machine.state.plans.all
    assert plan.state is PlanState.PENDING
    assert plan.incidents == {only_incident(world).name}
    assert "n1" in plan.seen
    assert "n3" in plan.seen
    assert world.machine.state.tasks[A].spec.task == A


def lose_for_good(world: World, *names: str) -> None:
    lose(world, *names)
    resolve(world)
    world.run(world.now + 30.0)


def plans_since(world: World, number: int) -> list[str]:
    return [plan.seen for plan in world.machine.state.plans.all[number:]]


def test_nodes_that_return_together_have_one_plan() -> None:
    world = burst_world()
    lose_for_good(world, "n1", "n2", "n3")
    number = len(world.machine.state.plans.all)
    for name in ("n1", "n2"):
        world.restore_node(name)
        world.run(world.now + 0.3)
    world.run(world.now + 20.0)
    assert plans_since(world, number) == ["n1, n2 have returned"]


@pytest.mark.parametrize("burst_s", [0.0, 2.0])
def test_the_last_node_that_is_away_is_planned_for_at_once(burst_s: float) -> None:
    world = burst_world(replace(POLICY, burst_s=burst_s), num_nodes=4)
    lose_for_good(world, "n1")
    number = len(world.machine.state.plans.all)
    world.restore_node("n1")
    attached_at = world.run_until(lambda: in_contact_since(world, "n1"))
    world.run_until(lambda: plans_since(world, number))
    assert world.machine.state.plans.all[-1].created_at == attached_at


def in_contact_since(world: World, name: str) -> float | None:
    contact = world.machine.state.nodes[NodeId(name)].contact
    return contact.in_contact_since if contact.condition is NodeCondition.HEALTHY else None


def test_growth_does_not_end_a_start() -> None:
    world = burst_world(num_nodes=4)
    lose(world, "n1", "n2")
    world.run(world.now + 60.0)
    world.restore_node("n1")
    world.run_until(lambda: any_starts(world))
    number = len(world.machine.state.plans.all)
    world.restore_node("n2")
    world.run_until(lambda: in_contact_since(world, "n2"))
    world.run_until(lambda: plans_since(world, number) or not any_starts(world))
    assert not any_starts(world)
    world.run_until(lambda: plans_since(world, number))


def phases(world: World) -> set[TaskPhase]:
    return {task.lifecycle.phase for task in world.machine.state.tasks.values()}


def any_starts(world: World) -> bool:
    return TaskPhase.STARTING in phases(world) and TaskPhase.STOPPED not in phases(world)


def test_where_nodes_come_and_go_plans_look_less_far_ahead() -> None:
    world = burst_world()
    state = world.machine.state
    assert worker_mtbf_s(state, POLICY) == POLICY.worker_mtbf_s
    for _ in range(3):
        lose_for_good(world, "n1")
        world.restore_node("n1")
        world.run(world.now + 60.0)
    changes = state.bursts.changes_at
    assert len(changes) == 6
    observed_s = 12 * (changes[-1] - changes[0])
    expected_s = (2 * POLICY.worker_mtbf_s + observed_s) / (2 + 5)
    assert worker_mtbf_s(state, POLICY) == pytest.approx(expected_s)
    assert expected_s < POLICY.worker_mtbf_s / 3
