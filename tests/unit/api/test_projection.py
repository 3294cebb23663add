"""From the core's state to the view: what an operator sees of each interesting condition."""

from dataclasses import replace

import pytest

from controller.api.projection import Frame, project
from controller.api.view_keeper import touched_nodes
from controller.api.views import (
    ClusterView,
    DrillView,
    IncidentState,
    LayoutView,
    NodeCondition,
    NodeView,
    PlanState,
    TaskPhase,
    TaskView,
)
from controller.core.events import Event, MeasurementRequested, NodeAnswered, PlanApproved
from controller.core.instructions import Announce
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.task_profiles import default_task_profiles
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import trained

A = TaskId("gpt-a")
FRAME = Frame(cluster="demo", started_wall_s=1e9, is_auto_heal=True)
WAF = {
    profile.name: profile.weight * profile.throughput.flops_per_s(profile.workers)
    for profile in default_task_profiles()
}
"""Weighted FLOP/s of the demo's tasks at their initial size."""


def view_of(world: World, frame: Frame = FRAME) -> ClusterView:
    """Return the view now; whatever it is, it survives the wire."""
    frame = replace(frame, pulses=world.heartbeats.pulses)
    view = project(world.machine.state, world.now, frame)
    assert ClusterView.model_validate_json(view.model_dump_json()) == view
    return view


def training_world(*, is_auto_heal: bool = True) -> World:
    """Return a cluster whose tasks have both committed seven iterations."""
    world = World(demo_machine(is_auto_heal=is_auto_heal), num_iterations=10**6)
    trained(world, 7)
    world.run(world.now + 0.9)  # a heartbeat has told the iterations of all ranks
    return world


def task_of(view: ClusterView, name: str) -> TaskView:
    return next(task for task in view.tasks if task.name == name)


def node_of(view: ClusterView, name: str) -> NodeView:
    return next(node for node in view.nodes if node.node == name)


def test_a_task_has_its_iteration_times_and_their_limits() -> None:
    world = training_world()
    policy = replace(world.machine.policy, late_factor=1.5)
    pace = task_of(view_of(world, replace(FRAME, policy=policy)), "gpt-a").pace
    assert pace is not None
    assert pace.durations_s == pytest.approx([world.iteration_s] * len(pace.durations_s), abs=0.05)
    assert pace.average_s == pytest.approx(world.iteration_s, abs=0.05)
    assert pace.late_s == pytest.approx(1.5 * pace.average_s)
    assert pace.hang_s > pace.late_s


def test_before_the_first_contact_everything_is_expected_and_idle() -> None:
    view = view_of(World(demo_machine()))
    assert [node.condition for node in view.nodes] == [NodeCondition.EXPECTED] * 4
    assert [node.address for node in view.nodes] == [f"127.0.0.1:220{i}" for i in range(1, 5)]
    assert all(node.agent_pid is None and node.heartbeat_at is None for node in view.nodes)
    assert all(worker.task is None for node in view.nodes for worker in node.workers)
    assert [task.phase for task in view.tasks] == [TaskPhase.WAITING] * 2
    assert [(task.generation, task.workers, task.layout) for task in view.tasks] == [
        (0, 0, None)
    ] * 2
    assert all(task.loss is None and task.losses == {} for task in view.tasks)
    assert view.waf == 0.0
    assert view.waf_full == pytest.approx(sum(WAF.values()))
    assert (view.incidents, view.plans, view.drills) == ([], [], [])


def test_a_task_in_training_shows_its_speed_and_its_newest_loss() -> None:
    view = view_of(training_world())
    task = task_of(view, "gpt-a")
    assert task.phase is TaskPhase.RUNNING
    assert (task.weight, task.generation, task.workers) == (1.5, 1, 4)
    assert task.layout == LayoutView(tp=1, pp=1, dp=4)
    assert (task.iteration, task.checkpoint_iteration) == (7, 0)  # nobody reports checkpoints here
    assert task.loss == pytest.approx(5.43)
    assert list(task.losses) == [1, 2, 3, 4, 5, 6, 7]
    assert task.tokens_per_s == pytest.approx(768)
    assert task.flops_per_s == pytest.approx(1e9)
    assert task.target_iterations is None
    assert task_of(view, "gpt-b").layout == LayoutView(tp=2, pp=1, dp=2)
    assert view.waf == view.waf_full


def test_every_worker_shows_the_rank_that_holds_it() -> None:
    view = view_of(training_world())
    shown = {
        (worker.task, worker.global_rank): (node.node, worker.worker)
        for node in view.nodes
        for worker in node.workers
    }
    assert shown == {
        ("gpt-a", 0): ("n1", 0),
        ("gpt-a", 1): ("n1", 1),
        ("gpt-a", 2): ("n2", 0),
        ("gpt-a", 3): ("n2", 1),
        ("gpt-b", 0): ("n3", 0),
        ("gpt-b", 1): ("n3", 1),
        ("gpt-b", 2): ("n4", 0),
        ("gpt-b", 3): ("n4", 1),
    }
    workers = [worker for node in view.nodes for worker in node.workers]
    assert len({worker.pid for worker in workers}) == 8
    assert {worker.iteration for worker in workers} == {7}
    assert all(node.agent_pid == 1 and node.agent_rss_bytes == 30_000_000 for node in view.nodes)


def test_losses_are_the_newest_or_all_of_them() -> None:
    world = training_world()
    newest = view_of(world, replace(FRAME, max_losses=3))
    assert list(task_of(newest, "gpt-a").losses) == [5, 6, 7]
    assert task_of(newest, "gpt-a").loss == newest.tasks[0].losses[7]
    more_than_there_are = view_of(world, replace(FRAME, max_losses=50))
    all_of_them = view_of(world, replace(FRAME, max_losses=None))
    assert list(task_of(all_of_them, "gpt-a").losses) == [1, 2, 3, 4, 5, 6, 7]
    assert more_than_there_are == all_of_them


def test_a_killed_rank_is_an_incident_from_its_detection_to_its_cure() -> None:
    world = training_world()
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: bool(world.machine.state.incidents.all))
    [fresh] = view_of(world).incidents
    assert fresh.state is IncidentState.DETECTED
    assert fresh.resolved_at is None
    world.run_until(lambda: not world.machine.state.incidents.all[0].is_open)
    view = view_of(world)
    [incident] = view.incidents
    assert incident.id == fresh.id
    assert (incident.task, incident.node, incident.rank) == ("gpt-a", "n1", 1)
    assert (incident.status, incident.severity) == ("exited_abnormally", "SEV2")
    assert (incident.action, incident.state) == ("restart", IncidentState.RESOLVED)
    assert 1 <= len(incident.evidence) <= 8
    assert all(incident.evidence)
    assert incident.resolved_at is not None
    assert incident.fault_at <= incident.detected_at <= incident.resolved_at
    task = task_of(view, "gpt-a")
    assert (task.generation, task.num_rerun_iterations) == (2, 0)
    assert incident.recovery_s is not None
    assert incident.recovery_s <= incident.resolved_at - incident.fault_at
    assert (incident.state_source, incident.recomputed_micro_batches) == ("peer", 0)
    assert incident.resume
    assert task_of(view, "gpt-b").num_rerun_iterations == 0
    transition = task.transition
    assert transition is not None
    assert (transition.kind, transition.is_done) == ("restart", True)
    assert [step.name for step in transition.steps] == [
        "park", "start", "form", "state", "first iteration",
    ]  # fmt: skip
    assert transition.actual_s == pytest.approx(sum(s.actual_s or 0.0 for s in transition.steps))
    assert task_of(view, "gpt-b").transition is None


def test_a_task_between_two_generations_has_no_speed_and_no_flops() -> None:
    world = training_world()
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: world.machine.state.tasks[A].lifecycle.phase is not TaskPhase.RUNNING)
    view = view_of(world)
    task = task_of(view, "gpt-a")
    assert (task.tokens_per_s, task.flops_per_s) == (None, None)
    assert task.loss == pytest.approx(5.43)  # what it had reached is still true
    assert view.waf == pytest.approx(WAF["gpt-b"])
    assert view.waf_full == pytest.approx(sum(WAF.values()))


def test_an_unreachable_node_says_that_it_is_presumed_training() -> None:
    world = training_world()
    world.cut("n1", 8.0)
    world.run(world.now + 0.05)
    view = view_of(world)
    node = node_of(view, "n1")
    assert node.condition is NodeCondition.UNREACHABLE
    assert node.note
    assert node.heartbeat_at is not None
    assert node.heartbeat_at < view.now
    assert [worker.global_rank for worker in node.workers] == [0, 1]
    assert view.waf == view.waf_full
    world.run(world.now + 10.0)
    assert (node_of(view_of(world), "n1").condition, view_of(world).incidents) == (
        NodeCondition.HEALTHY,
        [],
    )


def test_a_lost_node_leaves_a_plan_that_waits_for_a_decision() -> None:
    world = training_world(is_auto_heal=False)
    world.lose_node("n2")
    world.run(world.now + 5.0)
    view = view_of(world)
    lost = node_of(view, "n2")
    assert lost.condition is NodeCondition.LOST
    assert lost.note
    assert all(worker.task is None for worker in lost.workers)
    [incident] = view.incidents
    assert (incident.node, incident.state) == ("n2", IncidentState.DECIDED)
    [plan] = view.plans
    assert (plan.state, plan.revision, plan.trigger) == (PlanState.PENDING, 1, incident.id)
    assert (plan.approved_by, plan.decided_at) == (None, None)
    assert plan.isolated_nodes == ["n2"]
    assert plan.assignments_before == {"gpt-a": 4, "gpt-b": 4}
    assert plan.assignments == {"gpt-a": 4, "gpt-b": 2}
    assert plan.seen
    assert plan.why
    assert plan.steps
    faulted, resized = plan.changes
    assert (faulted.task, faulted.is_faulted, faulted.moves) == ("gpt-a", True, True)
    assert (resized.task, resized.is_faulted, resized.moves) == ("gpt-b", False, True)
    assert resized.layout_after == LayoutView(tp=2, pp=1, dp=1)
    assert (faulted.placement_before, faulted.placement_after) == (
        ["n1:0-1", "n2:0-1"],
        ["n1:0-1", "n4:0-1"],
    )
    assert (resized.placement_before, resized.placement_after) == (
        ["n3:0-1", "n4:0-1"],
        ["n3:0-1"],
    )
    assert plan.waf_after < plan.waf_before
    assert plan.waf_now == view.waf
    # gpt-b trains on, and gpt-a with the two replicas that it has left, until somebody decides.
    rate_of_two = next(p for p in default_task_profiles() if p.name == "gpt-a").throughput
    assert view.waf == pytest.approx(WAF["gpt-b"] + 1.5 * rate_of_two.flops_per_s(2))
    assert task_of(view, "gpt-a").layout == LayoutView(tp=1, pp=1, dp=2)


def test_waf_now_of_a_waiting_plan_follows_the_survivors() -> None:
    world = training_world(is_auto_heal=False)
    world.lose_node("n2")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    [plan] = view_of(world).plans
    assert plan.waf_now == 5.9e9  # gpt-b alone: the fault has stopped gpt-a
    assert plan.waf_after == pytest.approx(1.5 * 18.9e9 + 3.6e9)
    world.run(world.now + 5.0)
    [plan] = view_of(world).plans
    assert plan.state is PlanState.PENDING
    assert plan.waf_now == pytest.approx(5.9e9 + 1.5 * 10.5e9)  # and two survivors of gpt-a


def test_an_approved_plan_names_who_decided_and_is_applied() -> None:
    world = training_world(is_auto_heal=False)
    world.lose_node("n2")
    world.run(world.now + 5.0)
    [plan] = view_of(world).plans
    decided_at = world.now
    world.post(PlanApproved("r1", "op", plan.id, plan.revision))
    world.run(world.now + 30.0)
    view = view_of(world)
    [plan] = view.plans
    assert (plan.state, plan.approved_by) == (PlanState.APPLIED, "op")
    assert plan.decided_at == decided_at
    assert [task.workers for task in view.tasks] == [4, 2]
    assert view.waf == pytest.approx(plan.waf_after)
    assert view.waf < view.waf_full
    assert {worker.task for worker in node_of(view, "n2").workers} == {None}


def test_finished_tasks_hold_no_worker() -> None:
    world = World(demo_machine(), num_iterations=5)
    world.run(30.0)
    view = view_of(world)
    assert [task.phase for task in view.tasks] == [TaskPhase.FINISHED] * 2
    assert [task.iteration for task in view.tasks] == [5, 5]
    assert [task.workers for task in view.tasks] == [0, 0]
    assert all(worker.task is None for node in view.nodes for worker in node.workers)
    assert view.waf == 0.0


def test_a_frame_adds_what_the_core_does_not_know() -> None:
    drill = DrillView(kind="kill-rank", title="Kill", target="rank", expectation="restart")
    frame = Frame("big", 1e9, is_auto_heal=False, is_closing=True, drills=[drill])
    view = view_of(World(demo_machine()), frame)
    assert (view.cluster, view.started_wall_s, view.now) == ("big", 1e9, 0.0)
    assert (view.is_auto_heal, view.is_closing, view.drills) == (False, True, [drill])


def test_a_measurement_is_shown_with_its_sizes_and_the_workers_it_holds() -> None:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    trained(world, 3)
    assert view_of(world).measurement is None
    world.post(MeasurementRequested("r", "op", A, (1, 2), 3))
    world.run(world.now + 3.0)
    found = view_of(world).measurement
    assert found is not None
    assert (found.name, found.task, found.num_iterations, found.num_warm_up) == ("M-1", A, 3, 2)
    assert [size.phase for size in found.sizes] == ["running", "waiting"]
    assert found.sizes[0].iterations > 0
    held = [worker.task for worker in node_of(view_of(world), "n5").workers]
    assert sorted(held, key=str) == [None, "gpt-a@measure"]
    world.run(world.now + 20.0)
    found = view_of(world).measurement
    assert found is not None
    assert found.is_over
    assert [size.layout for size in found.sizes] == [
        LayoutView(tp=1, pp=1, dp=1),
        LayoutView(tp=1, pp=1, dp=2),
    ]
    assert [size.flops_per_s for size in found.sizes] == [pytest.approx(1e9)] * 2


def test_a_node_that_is_drained_by_an_event_of_another_is_looked_at_again() -> None:
    event = Event(7, 1.0, NodeAnswered(NodeId("n2")))
    assert touched_nodes(event, []) == (NodeId("n2"),)
    drained = Announce(7, "good", "drained", "n1", "is drained")
    assert touched_nodes(event, [drained]) is None
