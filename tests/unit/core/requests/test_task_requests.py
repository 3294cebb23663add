"""Tasks that operators submit, stop, start, end and limit, while others train."""

from dataclasses import replace

import pytest

from controller.core.events import (
    ControllerStarted,
    PlanApproved,
    TaskChanged,
    TaskLimited,
    TaskOrder,
    TaskOrdered,
    TaskSubmitted,
)
from controller.core.instructions import AnswerRequest
from controller.core.membership.file_changes import WantedCluster, changes
from controller.core.state.phases import IncidentState, NodeCondition, PlanState, TaskPhase
from controller.core.state.plan import Plan
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine, table, wanted_of
from tests.fakes.world import World
from tests.fakes.world_queries import A, all_run, node, task

B, C = TaskId("gpt-b"), TaskId("gpt-c")


def new_world(*, is_auto_heal: bool = True) -> tuple[World, WantedCluster]:
    """Return a cluster that trains, and the file that it was made of."""
    world = World(demo_machine(is_auto_heal=is_auto_heal), num_iterations=10**6)
    wanted = wanted_of(world.machine)
    world.run_until(lambda: all_run(world))
    world.run(world.now + 3.0)
    return world, wanted


def answer(world: World) -> AnswerRequest:
    return world.answers[-1]


def order(world: World, verb: TaskOrder, name: TaskId = A) -> AnswerRequest:
    world.post(TaskOrdered("r", "ann", verb, name))
    return answer(world)


def limit(world: World, **limits: float | bool) -> AnswerRequest:
    world.post(TaskLimited("r", "ann", A, **limits))  # type: ignore[arg-type]
    return answer(world)


def phase(world: World, name: TaskId = A) -> TaskPhase:
    return task(world, name).lifecycle.phase


def in_phase(world: World, wanted: TaskPhase, name: TaskId = A) -> None:
    world.run_until(lambda: phase(world, name) is wanted)


def file_changes(world: World, wanted: WantedCluster) -> list[object]:
    return list(changes(wanted, world.machine.state, world.machine.policy))


def test_a_stopped_task_saves_stays_stopped_and_its_workers_go_to_others() -> None:
    world, wanted = new_world()
    world.lose_node("n4")
    world.run_until(lambda: len(world.machine.state.plans.all) and all_run(world))
    world.run(world.now + 20.0)
    small, large = sorted((A, B), key=lambda name: len(task(world, name).placement))
    assert len(task(world, small).placement) == 2
    told = order(world, "stop", large)
    assert told.is_ok
    assert "finish the iteration, save a checkpoint and end" in told.message
    in_phase(world, TaskPhase.STOPPED, large)
    assert world.tasks[large].checkpoint == task(world, large).progress.iteration
    world.run_until(lambda: len(task(world, small).placement) == 4)
    world.run(world.now + 60.0)
    assert phase(world, large) is TaskPhase.STOPPED
    assert file_changes(world, wanted) == []
    assert all(each.state is IncidentState.RESOLVED for each in world.machine.state.incidents.all)


def test_a_task_that_was_stopped_starts_again_from_its_checkpoint() -> None:
    world, _ = new_world()
    order(world, "stop")
    in_phase(world, TaskPhase.STOPPED)
    iteration = task(world).progress.iteration
    assert order(world, "start").is_ok
    world.run_until(lambda: task(world).progress.iteration > iteration + 3)
    assert task(world).progress.num_rerun_iterations == 0
    assert order(world, "start").code == "nothing"


def test_a_task_may_start_again_while_it_still_stops() -> None:
    world, _ = new_world()
    order(world, "stop")
    assert phase(world) is TaskPhase.STOPPING
    order(world, "start")
    in_phase(world, TaskPhase.RUNNING)
    assert task(world).progress.num_rerun_iterations == 0


def with_a_plan_for_a_stopped_task() -> tuple[World, Plan]:
    world, _ = new_world(is_auto_heal=False)
    order(world, "stop", B)
    in_phase(world, TaskPhase.STOPPED, B)
    order(world, "start", B)
    plan = world.run_until(world.machine.state.plans.pending)
    assert B in plan.changes
    return world, plan


def test_a_plan_that_waits_is_made_again_without_a_task_that_is_stopped() -> None:
    world, plan = with_a_plan_for_a_stopped_task()
    order(world, "stop", B)
    pending = world.machine.state.plans.pending()
    assert pending is None or B not in pending.changes
    assert plan.state is not PlanState.PENDING or pending is not plan


def test_no_plan_starts_a_task_that_was_stopped_after_it_was_proposed() -> None:
    world, _ = new_world(is_auto_heal=False)
    limit(world, max_workers=2)
    plan = world.run_until(world.machine.state.plans.pending)
    # While a node is away, plans for orders wait: the old one can still be approved.
    world.cut("n1", 3.0)
    world.run_until(lambda: node(world).contact.condition is NodeCondition.UNREACHABLE)
    order(world, "stop")
    assert world.machine.state.plans.pending() is plan
    world.post(PlanApproved("r", "ann", plan.name, plan.revision))
    world.run(world.now + 30.0)
    assert phase(world) is TaskPhase.STOPPED


def test_a_plan_whose_task_is_stopped_meanwhile_does_not_stay_open() -> None:
    world = World(demo_machine(num_nodes=5), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.lose_node(next(iter(task(world).nodes)))
    plan = world.run_until(world.machine.state.plans.executing)
    order(world, "stop")
    world.run(world.now + 60.0)
    assert plan.state is not PlanState.APPROVED
    assert world.machine.state.plans.executing() is None


def test_a_finished_task_ends_with_a_checkpoint_and_a_file_that_names_it_changes_nothing() -> None:
    world, wanted = new_world()
    assert order(world, "finish").is_ok
    assert order(world, "stop").code == "nothing"
    in_phase(world, TaskPhase.FINISHED)
    assert world.tasks[A].checkpoint == task(world).progress.iteration
    assert file_changes(world, wanted) == []
    assert order(world, "start").message == "gpt-a has finished"
    assert limit(world, weight=2.0).code == "nothing"


def test_a_stopped_task_can_be_ended() -> None:
    world, _ = new_world()
    order(world, "stop")
    in_phase(world, TaskPhase.STOPPED)
    assert order(world, "finish").is_ok
    assert phase(world) is TaskPhase.FINISHED


def test_only_what_has_finished_is_archived_and_its_name_is_free_again() -> None:
    world, wanted = new_world()
    refused = order(world, "archive")
    assert (refused.code, refused.message) == (
        "unfit", "gpt-a is running: finish it first, unicron finish gpt-a",
    )  # fmt: skip
    order(world, "finish")
    in_phase(world, TaskPhase.FINISHED)
    assert order(world, "archive").is_ok
    assert order(world, "stop").code == "unknown"
    assert file_changes(world, wanted) == []
    generation = task(world).generation
    world.post(TaskSubmitted("r", "ann", (wanted.tasks[A],)))
    in_phase(world, TaskPhase.RUNNING)
    assert task(world).generation > generation


def test_a_held_task_is_tried_again_by_an_order() -> None:
    world, _ = new_world()
    world.failing_starts = {(A, NodeId(f"n{n}")): "SyntaxError: x" for n in range(1, 5)}
    order(world, "stop")
    in_phase(world, TaskPhase.STOPPED)
    order(world, "start")
    in_phase(world, TaskPhase.HELD)
    world.failing_starts = {}
    assert order(world, "start").is_ok
    in_phase(world, TaskPhase.RUNNING)


def test_a_submitted_task_is_queued_runs_and_needs_no_file() -> None:
    world, wanted = new_world()
    spec = replace(
        wanted.tasks[B], task=C, workers=2, min_workers=2, table=table({2: 2e12, 4: 3e12})
    )
    world.post(TaskSubmitted("r", "ann", (spec,)))
    assert answer(world).message == "queued: gpt-c for 2 workers; a plan decides"
    in_phase(world, TaskPhase.RUNNING, C)
    assert file_changes(world, wanted) == []
    world.post(TaskSubmitted("r", "ann", (spec,)))
    assert (answer(world).code, answer(world).is_ok) == ("exists", False)
    both = replace(wanted, tasks={**wanted.tasks, C: spec})
    assert file_changes(world, both) == [TaskChanged(spec)]
    world.post(TaskChanged(spec))
    assert file_changes(world, both) == []
    assert len(file_changes(world, wanted)) == 1, "it belongs to the file now, which drops it"


# --- weight and limits --------------------------------------------------------------------------


def test_an_ordered_weight_outlives_the_file_until_the_file_itself_changes() -> None:
    world, wanted = new_world()
    given = wanted.tasks[A].weight
    assert limit(world, weight=7.0).message == "gpt-a has weight 7 from now on"
    assert task(world).spec.weight == 7.0
    assert file_changes(world, wanted) == []
    other = replace(wanted.tasks[A], hang_limit_s=9.0)
    changed = replace(wanted, tasks={**wanted.tasks, A: other})
    assert file_changes(world, changed) == [TaskChanged(other)]
    world.post(TaskChanged(other))
    assert (task(world).spec.weight, task(world).spec.hang_limit_s) == (7.0, 9.0)
    assert file_changes(world, changed) == []
    heavier = replace(other, weight=given + 1.0)
    world.post(TaskChanged(heavier))
    assert task(world).spec.weight == given + 1.0
    assert task(world).orders.marks == {}


def test_an_order_ends_when_the_files_own_value_is_ordered() -> None:
    world, wanted = new_world()
    given = wanted.tasks[A].weight
    limit(world, weight=7.0, min_workers=2)
    limit(world, weight=given)
    assert task(world).orders.marks.keys() == {"min_workers"}
    limit(world, min_workers=wanted.tasks[A].min_workers)
    assert task(world).orders.marks == {}
    assert task(world).orders.limits is None


def test_a_plan_follows_the_largest_size() -> None:
    world, wanted = new_world()
    assert len(task(world).placement) == 4
    assert limit(world, max_workers=2).is_ok
    world.run_until(lambda: len(task(world).placement) == 2)
    world.run_until(lambda: all_run(world))
    assert file_changes(world, wanted) == []
    assert limit(world, max_workers=0).message == "gpt-a has max_workers unlimited from now on"
    world.run_until(lambda: len(task(world).placement) == 4)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"min_workers": 5, "max_workers": 5}, "impossible"),
        ({"min_workers": 4, "max_workers": 2}, "impossible"),
        ({"min_workers": 99}, "impossible"),
        ({"keeps_running": False}, "nothing"),
    ],
)
def test_limits_that_no_size_has_are_refused(limits: dict[str, float], code: str) -> None:
    world, wanted = new_world()
    assert limit(world, **limits).code == code
    assert task(world).spec == wanted.tasks[A]


def test_orders_are_there_for_the_next_controller() -> None:
    world, wanted = new_world()
    limit(world, weight=7.0)
    order(world, "stop", B)
    in_phase(world, TaskPhase.STOPPED, B)
    world.post(ControllerStarted("run", 2, 0.0))
    assert file_changes(world, wanted) == []
    world.run(world.now + 30.0)
    assert phase(world, B) is TaskPhase.STOPPED
    assert task(world).spec.weight == 7.0


@pytest.mark.parametrize("verb", ["stop", "start", "finish", "archive"])
def test_an_unknown_task_is_named(verb: TaskOrder) -> None:
    world, _ = new_world()
    told = order(world, verb, TaskId("none"))
    assert (told.code, told.message) == (
        "unknown", "there is no task none: gpt-a, gpt-b exist",
    )  # fmt: skip
