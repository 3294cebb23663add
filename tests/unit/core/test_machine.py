"""The machine against a make-believe cluster: every drill of the demo, and the cases around it."""

from functools import partial

import pytest

from controller.core.events import (
    CommandFailed,
    ContactLost,
    DrillRequested,
    Event,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    RankCommandKind,
)
from controller.core.rules.policy import Policy
from controller.core.state.phases import (
    IncidentState,
    InvariantViolationError,
    NodeCondition,
    PlanState,
    TaskPhase,
)
from controller.core.state.task import TaskState
from controller.core.state.task_records import Target
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import all_run, task, trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")


@pytest.fixture(params=range(4))
def world(request: pytest.FixtureRequest) -> World:
    """A cluster in training that heals by itself; the seed varies the order of reports."""
    world = World(demo_machine(), seed=request.param, num_iterations=10**6)
    trained(world, 7)
    return world


def test_tasks_start_once_their_nodes_are_in_contact(world: World) -> None:
    assert all_run(world)
    assert {worker.node for worker in task(world, A).placement} == {"n1", "n2"}
    assert {worker.node for worker in task(world, B).placement} == {"n3", "n4"}


def test_a_killed_rank_becomes_one_incident_and_a_restart(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    trained(world, 12)
    [incident] = world.machine.state.incidents.all
    assert (incident.cause.status, incident.cause.severity) == ("exited_abnormally", "SEV2")
    assert (incident.task, incident.cause.global_rank, incident.cause.node) == (A, 1, "n1")
    assert (incident.cause.action, incident.state) == ("restart", IncidentState.RESOLVED)
    assert incident.cause.fault_at <= incident.detected_at <= (incident.resolved_at or 0)
    assert task(world, A).generation == 2
    assert task(world, B).generation == 1
    assert not world.machine.state.plans.all


def test_an_exception_is_told_from_the_collectives_that_it_broke(world: World) -> None:
    world.raise_in_rank("gpt-b", 2)
    trained(world, 12)
    [incident] = world.machine.state.incidents.all
    assert incident.cause.status == "other_software_error"
    assert incident.cause.method == "exception propagation"
    assert (incident.task, incident.cause.global_rank) == (B, 2)


def test_iterations_run_again_are_marked_and_reported_once_otherwise(world: World) -> None:
    for number in range(4):
        world.kill_rank("gpt-a", number)
    trained(world, 12)
    lines = [
        dict(line.facts)
        for _, line in world.announcements
        if line.kind == "iteration" and line.source == A
    ]
    first = [line["iteration"] for line in lines if not line["is_rerun"]]
    again = [line["iteration"] for line in lines if line["is_rerun"]]
    assert first == list(range(1, len(first) + 1))
    assert again == [6, 7]
    assert all(line["deviation"] == 0.0 for line in lines if line["is_rerun"])
    assert task(world, A).progress.num_rerun_iterations == 2


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_lost_node_is_isolated_and_the_rest_divided(world: World, is_silent: bool) -> None:
    world.lose_node("n2", is_silent=is_silent)
    trained(world, 14)
    state = world.machine.state
    [incident] = state.incidents.all
    assert (incident.cause.status, incident.cause.severity) == ("lost_connection", "SEV1")
    assert (incident.cause.node, incident.cause.action) == ("n2", "reconfigure")
    assert incident.state is IncidentState.RESOLVED
    assert state.nodes[NodeId("n2")].contact.condition is NodeCondition.LOST
    [plan] = state.plans.all
    assert plan.state is PlanState.APPLIED
    assert plan.approved_by == "policy auto-heal"
    assert {name: change.workers_after for name, change in plan.changes.items()} == {A: 4, B: 2}
    assert plan.waf_after < plan.waf_before
    assert "n2" not in {worker.node for worker in task(world, A).placement}


def test_a_task_that_the_plan_resizes_finishes_its_iteration_first(world: World) -> None:
    world.lose_node("n2")
    trained(world, 14)
    assert task(world, B).progress.num_rerun_iterations == 0


def test_a_plan_waits_for_an_approval_of_its_revision() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run(world.now + 30)
    state = world.machine.state
    [plan] = state.plans.all
    assert plan.state is PlanState.PENDING
    assert task(world, A).place == Target(Layout(dp=2), task(world, A).placement)
    assert all_run(world)
    world.post(PlanApproved("r1", "op", plan.name, plan.revision + 1))
    assert (world.answers[-1].code, plan.state) == ("superseded", PlanState.PENDING)
    world.post(PlanApproved("r2", "op", plan.name, plan.revision))
    assert world.answers[-1].is_ok
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert plan.approved_by == "op"
    assert all_run(world)
    world.post(PlanApproved("r3", "op", plan.name, plan.revision))
    assert world.answers[-1].code == "decided"


def test_a_rejected_plan_leaves_things_as_they_are_until_another_is_asked_for() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run(world.now + 5)
    [plan] = world.machine.state.plans.all
    world.post(PlanRejected("r1", "op", plan.name, plan.revision, "not now"))
    world.run(world.now + 30)
    assert [i.state for i in world.machine.state.incidents.all] == [IncidentState.HELD]
    assert len(task(world, A).ranks) == 2
    world.post(PlanRequested("r2", "op"))
    second = world.machine.state.plans.all[-1]
    assert second.name != plan.name
    world.post(PlanApproved("r3", "op", second.name, second.revision))
    world.run_until(lambda: second.state is PlanState.APPLIED)
    assert [i.state for i in world.machine.state.incidents.all] == [IncidentState.RESOLVED]


def test_a_second_lost_node_revises_the_pending_plan() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run(world.now + 5)
    world.lose_node("n4")
    world.run(world.now + 5)
    [plan] = world.machine.state.plans.all
    assert plan.revision == 2
    assert plan.incidents == {"I-1", "I-2"}
    assert set(plan.isolated_nodes) == {"n2", "n4"}
    world.post(PlanApproved("r1", "op", plan.name, 2))
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert all(i.state is IncidentState.RESOLVED for i in world.machine.state.incidents.all)


@pytest.mark.parametrize("seconds", [0.4, 8.0])
def test_a_cut_connection_costs_no_training(world: World, seconds: float) -> None:
    pids = {rank.pid for rank in task(world, A).ranks.values()}
    world.cut("n1", seconds)
    assert world.machine.state.nodes[NodeId("n1")].contact.condition is NodeCondition.UNREACHABLE
    trained(world, 20)
    assert {rank.pid for rank in task(world, A).ranks.values()} == pids
    assert not world.machine.state.incidents.all
    assert world.machine.state.nodes[NodeId("n1")].contact.condition is NodeCondition.HEALTHY


def test_a_controller_that_loses_sight_of_everybody_condemns_nobody(world: World) -> None:
    for name in world.nodes:
        world.cut(name, 90.0)
    world.run(world.now + 100.0)
    assert not world.machine.state.incidents.all
    assert not world.machine.state.plans.all
    assert [t.generation for t in world.machine.state.tasks.values()] == [1, 1]


def test_a_node_that_dies_out_of_sight_is_lost_though_its_task_had_advanced(world: World) -> None:
    world.cut("n3", 1000.0)
    world.run(world.now + 5.0)
    assert world.machine.state.nodes[NodeId("n3")].contact.condition is NodeCondition.UNREACHABLE
    world.lose_node("n3")
    world.run(world.now + 30.0)
    assert world.machine.state.nodes[NodeId("n3")].contact.condition is NodeCondition.LOST
    assert all_run(world)


def test_a_node_that_lost_its_ranks_without_a_word_is_noticed(world: World) -> None:
    for name in ("n3", "n4"):
        world.vanish(name)
    world.run(world.now + 20.0)
    [incident] = world.machine.state.incidents.all
    assert "vanished" in incident.cause.reason
    assert all_run(world)


def test_a_plan_gives_nobody_workers_of_a_node_out_of_contact() -> None:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    trained(world, 4)
    world.cut("n5", 60.0)
    world.lose_node("n2")
    world.run(world.now + 20.0)
    assert all_run(world)
    assert all(
        not t.assignment.target or not t.assignment.target.uses(NodeId("n5"))
        for t in tasks_of(world)
    )


def test_a_pending_plan_is_dropped_once_nothing_has_to_change() -> None:
    world = World(demo_machine(is_auto_heal=False, num_nodes=4), num_iterations=10**6)
    trained(world, 4)
    world.lose_node("n2")
    world.run(world.now + 5.0)
    [plan] = world.machine.state.plans.all
    world.restore_node("n2")
    world.run(world.now + 2.0)
    newest = world.machine.state.plans.all[-1]
    assert newest.name == plan.name
    assert newest.revision == 2
    assert {c.task: c.workers_after for c in newest.changes.values()} == {A: 4, B: 4}


def test_a_stopped_task_runs_again_when_another_has_finished() -> None:
    world = World(demo_machine(num_nodes=4), num_iterations=40)
    trained(world, 4)
    world.lose_node("n2")
    world.lose_node("n4")
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.STOPPED)
    world.run_until(lambda: task(world, A).lifecycle.phase is TaskPhase.FINISHED)
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.FINISHED)


def tasks_of(world: World) -> list[TaskState]:
    return list(world.machine.state.tasks.values())


def test_a_killed_agent_costs_no_training(world: World) -> None:
    pids = {rank.pid for rank in task(world, B).ranks.values()}
    world.kill_agent("n3")
    trained(world, 16)
    assert {rank.pid for rank in task(world, B).ranks.values()} == pids
    assert not world.machine.state.incidents.all


def test_a_rank_killed_while_its_node_is_out_of_sight_is_named_when_it_is_back(
    world: World,
) -> None:
    world.cut("n2", 4.0)
    world.kill_rank("gpt-a", 3)
    trained(world, 14)
    [incident] = world.machine.state.incidents.all
    assert incident.cause.status == "exited_abnormally"
    assert incident.cause.global_rank == 3
    assert world.machine.state.nodes[NodeId("n2")].contact.condition is NodeCondition.HEALTHY


def restarted_or_held(world: World, generation: int) -> bool:
    is_new = task(world, A).generation > generation
    return (is_new and task(world, A).lifecycle.phase is TaskPhase.STARTING) or (
        task(world, A).lifecycle.phase is TaskPhase.HELD
    )


def test_a_task_that_never_recovers_is_handed_to_the_operator(world: World) -> None:
    victims = (0, 2, 1, 3)
    assert len(victims) == world.machine.policy.max_recoveries + 1
    for victim in victims:
        generation = task(world, A).generation
        world.kill_rank("gpt-a", victim)
        world.run_until(partial(restarted_or_held, world, generation))
        if task(world, A).lifecycle.phase is not TaskPhase.HELD:
            world.run_until(lambda: len([r for r in task(world, A).ranks.values() if r.pid]) == 4)
    assert task(world, A).lifecycle.phase is TaskPhase.HELD
    assert world.machine.state.incidents.all[-1].state is IncidentState.HELD
    world.post(PlanRequested("r1", "op"))
    assert world.answers[-1].is_ok
    world.run_until(lambda: all_run(world))
    world.run(world.now + 5.0)
    assert all(i.state is IncidentState.RESOLVED for i in world.machine.state.incidents.all)


def test_a_rank_that_dies_during_the_transition_does_not_stop_it(world: World) -> None:
    world.lose_node("n2")
    world.run_until(lambda: task(world, A).generation == 2)
    world.run_until(lambda: all(r.pid for r in task(world, A).ranks.values()))
    world.kill_rank("gpt-a", 2)
    trained(world, 15)
    [plan] = world.machine.state.plans.all
    assert plan.state is PlanState.APPLIED
    assert [i.state for i in world.machine.state.incidents.all] == [IncidentState.RESOLVED] * 2


def test_a_lost_node_without_tasks_needs_no_plan() -> None:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    trained(world, 3)
    world.lose_node("n5")
    world.run(world.now + 15)
    [incident] = world.machine.state.incidents.all
    assert incident.state is IncidentState.RESOLVED
    assert not world.machine.state.plans.all


def test_stale_ranks_of_a_node_that_returns_are_ended(world: World) -> None:
    node = world.nodes[NodeId("n2")]
    ranks, stale = dict(node.ranks), set(node.ranks)
    world.lose_node("n2")
    trained(world, 14)
    node.ranks = ranks
    world.restore_node("n2")
    world.run(world.now + 3)
    assert not node.ranks.keys() & stale
    assert world.machine.state.nodes[NodeId("n2")].contact.condition is NodeCondition.HEALTHY
    assert all_run(world)


def test_tasks_end_at_their_last_iteration() -> None:
    machine = demo_machine()
    world = World(machine, num_iterations=9)
    world.run_until(
        lambda: all(t.lifecycle.phase is TaskPhase.FINISHED for t in machine.state.tasks.values())
    )
    assert [t.progress.iteration for t in machine.state.tasks.values()] == [9, 9]
    assert not machine.state.incidents.all


def test_a_start_that_brings_no_iteration_is_tried_again() -> None:
    machine = demo_machine(policy=Policy(is_auto_heal=True, start_limit_s=0.5))
    world = World(machine, num_iterations=10**6)
    world.run_until(lambda: bool(machine.state.incidents.all))
    [incident, *_] = machine.state.incidents.all
    assert "within" in incident.evidence[0].summary


@pytest.mark.parametrize(("command", "num_incidents"), [("start", 1), ("drill", 0)])
def test_a_refused_start_is_a_fault_and_a_refused_drill_is_not(
    command: RankCommandKind, num_incidents: int
) -> None:
    world = World(demo_machine(), num_iterations=10**6)
    world.run_until(lambda: task(world, A).lifecycle.phase is TaskPhase.STARTING)
    refusal = CommandFailed(NodeId("n1"), command, A, Generation(1), "no", is_outcome_unknown=False)
    world.post(refusal)
    assert len(world.machine.state.incidents.all) == num_incidents
    [line] = [line.text for _, line in world.announcements if line.kind == "command_failed"]
    assert line == f"command {command} for gpt-a failed: no"


@pytest.mark.parametrize(
    ("drill", "rank", "node"),
    [("kill-rank", 1, "n1"), ("exception", 1, "n1"), ("lose-node", None, "n2")],
)
def test_a_drill_without_a_target_gets_a_sensible_one(
    world: World, drill: str, rank: int | None, node: str
) -> None:
    world.post(DrillRequested("r1", "op", drill))
    [order] = world.drills
    assert (order.global_rank, order.node) == (rank, node)
    assert world.answers[-1].is_ok


@pytest.mark.parametrize(
    ("request_", "code", "words"),
    [
        (DrillRequested("r", "op", "earthquake"), "unsupported", "unknown drill"),
        (DrillRequested("r", "op", "kill-rank", TaskId("nope")), "no_target", "no task nope"),
        (DrillRequested("r", "op", "kill-rank", A, 9), "no_target", "no living rank 9"),
        (DrillRequested("r", "op", "lose-node", node=NodeId("n9")), "no_target", "no node n9"),
        (PlanRequested("r", "op"), "nothing", "no plan would change anything"),
        (PlanApproved("r", "op", "P-7", 1), "unknown", "no plan P-7"),
    ],
)
def test_what_can_not_be_done_is_refused_and_changes_nothing(
    world: World, request_: DrillRequested | PlanRequested | PlanApproved, code: str, words: str
) -> None:
    world.post(request_)
    assert not world.drills
    assert (world.answers[-1].is_ok, world.answers[-1].code) == (False, code)
    assert words in world.answers[-1].message


def test_a_gap_in_the_journal_is_our_own_bug(world: World) -> None:
    body = ContactLost(NodeId("n1"), 0.0, "?")
    with pytest.raises(InvariantViolationError, match="gap"):
        world.machine.handle(Event(len(world.events) + 2, world.now, body))


def test_equal_events_give_equal_decisions(world: World) -> None:
    world.lose_node("n2")
    trained(world, 14)
    replayed = demo_machine()
    for event in world.events:
        replayed.handle(event)
    assert replayed.state == world.machine.state


def test_an_initial_size_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="need 8 workers, 6 are available"):
        demo_machine(num_nodes=3)


def test_failed_collectives_condemn_nobody_once_no_other_node_is_in_contact() -> None:
    world = World(demo_machine(), num_iterations=10**6)
    trained(world, 7)
    world.cut("n2", 90.0)
    world.kill_rank("gpt-a", 3)
    world.run(world.now + 0.2)
    for name in ("n1", "n3", "n4"):
        world.cut(name, 90.0)
    world.run(world.now + 30.0)
    conditions = {node.contact.condition for node in world.machine.state.nodes.values()}
    assert conditions == {NodeCondition.UNREACHABLE}


def test_a_fault_in_a_task_that_parks_for_a_plan_does_not_stop_the_plan() -> None:
    world = World(demo_machine(), num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.PARKING)
    world.run((task(world, B).progress.committed_at or 0.0) + 0.9)
    assert task(world, B).lifecycle.phase is TaskPhase.PARKING
    world.raise_in_rank("gpt-b", 1)
    world.run(world.now + 10.0)
    assert all_run(world)
    [plan] = world.machine.state.plans.all
    assert plan.state is PlanState.APPLIED
    assert [i.state for i in world.machine.state.incidents.all] == [IncidentState.RESOLVED] * 2
