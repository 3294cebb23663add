"""A rehearsal: every cure is recorded and waits for an operator, and orders are done as usual."""

import pytest

from controller.core.events import (
    CureApproved,
    PlanApproved,
    PolicyChanged,
    TaskOrdered,
    TimerFired,
)
from controller.core.instructions import AnswerRequest
from controller.core.rules.policy import Policy
from controller.core.state.incident import Incident
from controller.core.state.phases import IncidentState, PlanState, TaskPhase
from controller.core.state.task import TaskState
from controller.core.timers import SettleIncident
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import all_run

LONG_S = 3600.0


@pytest.fixture
def world() -> World:
    machine = demo_machine(policy=Policy(is_rehearsal=True), num_nodes=5)
    made = World(machine, num_iterations=10**6)
    made.run_until(lambda: all_run(made))
    made.run(made.now + 3.0)
    return made


def task_of(world: World, name: str = "gpt-a") -> TaskState:
    return world.machine.state.tasks[TaskId(name)]


def waiting(world: World) -> Incident:
    def found() -> Incident | None:
        incidents = world.machine.state.incidents.open()
        return next((each for each in incidents if each.awaits_consent), None)

    return world.run_until(found)


def approve(world: World, incident: str, action: str) -> AnswerRequest:
    world.post(CureApproved("r", "ann", incident, action))
    return world.answers[-1]


def test_a_killed_rank_waits_parked_and_its_restart_loses_nothing(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    incident = waiting(world)
    assert incident.rehearsed is not None
    assert incident.rehearsed.action == "restart"
    assert "exited_abnormally" in incident.rehearsed.reason
    assert incident.cause.global_rank == 1
    world.run(world.now + LONG_S)
    task = task_of(world)
    assert task.lifecycle.phase is TaskPhase.PARKING
    assert incident.state is IncidentState.DETECTED
    timers = [each.body for each in world.events if isinstance(each.body, TimerFired)]
    settles = [each for each in timers if isinstance(each.timer, SettleIncident)]
    assert len(settles) < 5, "an open question costs nothing"
    assert sum(each.kind == "rehearsed" for _, each in world.announcements) == 1
    assert (
        approve(world, incident.name, "restart").message == f"{incident.name}: restart is approved"
    )
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    assert task.progress.num_rerun_iterations == 0
    assert incident.rehearsed is not None
    assert incident.rehearsed.approved_by == "ann"
    assert incident.cause.action == "restart"


def test_other_tasks_train_on_meanwhile(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    waiting(world)
    before = task_of(world, "gpt-b").progress.iteration
    world.run(world.now + 60.0)
    assert task_of(world, "gpt-b").progress.iteration > before + 10


def test_a_lost_node_waits_for_its_plan(world: World) -> None:
    world.lose_node("n1")
    plan = world.run_until(world.machine.state.plans.pending)
    incident = waiting(world)
    assert incident.rehearsed is not None
    assert incident.rehearsed.action == "reconfigure"
    assert incident.rehearsed.reason.startswith(f"{plan.name}: ")
    world.run(world.now + LONG_S)
    assert plan.state is PlanState.PENDING
    refused = approve(world, incident.name, "reconfigure")
    assert (refused.code, f"unicron approve {plan.name}:1" in refused.message) == ("plan", True)
    world.post(PlanApproved("r", "ann", plan.name, plan.revision))
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    assert incident.rehearsed is not None
    assert incident.rehearsed.approved_by == "ann"


def test_what_operators_order_is_done_as_usual(world: World) -> None:
    world.post(TaskOrdered("r", "ann", "stop", TaskId("gpt-b")))
    world.run_until(lambda: task_of(world, "gpt-b").lifecycle.phase is TaskPhase.STOPPED)
    world.post(TaskOrdered("r", "ann", "start", TaskId("gpt-b")))
    world.run_until(lambda: all_run(world))
    assert world.machine.state.plans.all[-1].approved_by == "policy: as ordered"


def test_a_question_is_over_when_its_task_is_stopped_and_started_again(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    incident = waiting(world)
    world.post(TaskOrdered("r", "ann", "stop", TaskId("gpt-a")))
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    world.post(TaskOrdered("r", "ann", "start", TaskId("gpt-a")))
    world.run_until(lambda: all_run(world))
    assert approve(world, incident.name, "restart").code == "nothing"


def test_the_next_controller_and_the_end_of_the_rehearsal_keep_the_question(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    incident = waiting(world)
    world.kill_controller(3.0)
    world.run(world.now + 20.0)
    again = world.machine.state.incidents.find(incident.name)
    assert again is not None
    assert again.awaits_consent
    world.post(PolicyChanged(Policy(is_auto_heal=True)))
    world.run_until(lambda: again.state is IncidentState.RESOLVED)
    assert all_run(world)


def test_a_node_that_is_lost_while_a_cure_waits_makes_it_a_plan(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    incident = waiting(world)
    world.lose_node("n1")
    plan = world.run_until(world.machine.state.plans.pending)
    assert incident.rehearsed is not None
    assert incident.rehearsed.action == "reconfigure"
    world.post(PlanApproved("r", "ann", plan.name, plan.revision))
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    assert all_run(world)


def test_an_approval_is_for_what_was_seen(world: World) -> None:
    assert approve(world, "I-9", "restart").code == "unknown"
    world.kill_rank("gpt-a", 1)
    incident = waiting(world)
    assert approve(world, incident.name, "reattempt").code == "superseded"
    assert incident.awaits_consent
    assert approve(world, incident.name, "restart").code == "ok"
    assert approve(world, incident.name, "restart").code in {"decided", "nothing"}
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    assert approve(world, incident.name, "restart").code == "nothing"


def test_a_node_with_broken_hardware_stays_in_service_until_approved(world: World) -> None:
    lost = NodeFinding(probe="gpu", sign="gpu_lost", subject="GPU 0", text="fell off the bus")
    world.find("n1", lost)
    incident = waiting(world)
    assert incident.rehearsed is not None
    assert incident.rehearsed.action == "isolate"
    world.run(world.now + 60.0)
    node = world.machine.state.nodes[NodeId("n1")]
    assert node.is_in_service
    assert all_run(world)
    assert approve(world, incident.name, "isolate").code == "ok"
    assert "fell off the bus" in node.service.isolated
    plan = world.run_until(world.machine.state.plans.pending)
    world.post(PlanApproved("r2", "ann", plan.name, plan.revision))
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)


def test_an_exception_of_the_network_is_reattempted_when_approved(world: World) -> None:
    world.fail_collective("gpt-a", 2)
    incident = waiting(world)
    assert incident.rehearsed is not None
    approve(world, incident.name, incident.rehearsed.action)
    world.run_until(lambda: incident.state is IncidentState.RESOLVED)
    assert all_run(world)


def test_without_a_rehearsal_nothing_is_recorded() -> None:
    machine = demo_machine(policy=Policy(is_auto_heal=True), num_nodes=5)
    world = World(machine, num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.kill_rank("gpt-a", 1)
    world.run(world.now + 60.0)
    (incident,) = world.machine.state.incidents.all
    assert incident.rehearsed is None
    assert approve(world, incident.name, "restart").code == "nothing"
