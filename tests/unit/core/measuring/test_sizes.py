"""A measurement of a task's speed on idle workers: size after size, in nobody's way."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.events import (
    CommandFailed,
    EventBody,
    MeasurementCancelled,
    MeasurementRequested,
    Observed,
)
from controller.core.instructions import AnswerRequest, StartRanks
from controller.core.lifecycle.obstacles import obstacle
from controller.core.rules.policy import Policy
from controller.core.state.measurement import Measurement
from controller.core.state.phases import NodeCondition
from controller.core.state.task_records import Target
from controller.core.state.turn import Turn
from controller.store.measured_tables import MeasuredTables
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import IterationCommitted
from profiles.table_file import load_table
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import all_run, approve_next, trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")
RUN = TaskId("gpt-a@measure")


def world_with_idle_nodes(*, is_auto_heal: bool = True, num_idle: int = 2) -> World:
    """Return a world whose tasks train on n1 to n4; further nodes of two workers are idle."""
    policy = Policy(is_auto_heal=is_auto_heal)
    machine = demo_machine(num_nodes=4 + num_idle, policy=policy)
    world = World(machine, num_iterations=10**6)
    trained(world, 3)
    return world


def answer_to(world: World, body: EventBody) -> AnswerRequest:
    world.post(body)
    return world.answers[-1]


def ask(world: World, *sizes: int, task: TaskId = A, num: int = 4) -> AnswerRequest:
    return answer_to(world, MeasurementRequested("r", "op", task, sizes, num))


def measurement(world: World) -> Measurement:
    found = world.machine.state.measurements.current
    assert found is not None
    return found


def starts(world: World) -> list[StartRanks]:
    return [start for _, start in world.starts if start.measures is not None]


def measured_ranks(world: World) -> int:
    return sum(rank.task == RUN for node in world.nodes.values() for rank in node.ranks.values())


def end(world: World) -> Measurement:
    world.run_until(lambda: measurement(world).is_over)
    return measurement(world)


def test_each_size_is_measured_on_idle_workers_while_the_task_trains_on() -> None:
    world = world_with_idle_nodes()
    before = {name: task.generation for name, task in world.machine.state.tasks.items()}
    iteration = world.machine.state.tasks[A].progress.iteration
    assert ask(world, 2, 1, 4).code == "M-1"
    world.iteration_s = 0.5
    found = end(world)
    assert [(s.workers, s.phase) for s in found.sizes] == [
        (1, "measured"),
        (2, "measured"),
        (4, "measured"),
    ]
    assert found.ended == "all sizes are done"
    for size in found.sizes:
        assert size.iteration_s == pytest.approx(0.5)
        assert size.flops_per_s == pytest.approx(2e9)  # 1e9 FLOPs an iteration
    assert {w.node for start in starts(world) for w in start.placement} <= {"n5", "n6"}
    assert all(start.measures == A and start.task == RUN for start in starts(world))
    assert measured_ranks(world) == 0
    tasks = world.machine.state.tasks
    assert {name: task.generation for name, task in tasks.items()} == before
    assert tasks[A].progress.iteration > iteration
    ours = [each for each in world.records if each.num_iterations > 1]
    assert [(each.task, each.layout.dp, each.num_iterations) for each in ours] == [
        (A, 1, 4),
        (A, 2, 4),
        (A, 4, 4),
    ]


def test_without_sizes_all_that_the_task_may_have_are_measured_and_what_does_not_fit_is_told() -> (
    None
):
    world = world_with_idle_nodes(num_idle=1)
    assert ask(world).is_ok
    found = end(world)
    assert {s.workers: s.phase for s in found.sizes} == {
        1: "measured",
        2: "measured",
        3: "skipped",
        4: "skipped",
    }
    assert "2 idle worker(s)" in found.sizes[3].reason


def test_what_can_not_be_measured_is_refused_and_changes_nothing() -> None:
    world = world_with_idle_nodes(num_idle=1)
    for refused, code in (
        (ask(world, task=TaskId("gpt-x")), "unknown"),
        (ask(world, 5), "unlisted"),
        (ask(world, 4), "nothing"),
        (answer_to(world, MeasurementCancelled("r", "op", "M-1")), "unknown"),
    ):
        assert (refused.is_ok, refused.code) == (False, code)
    assert world.machine.state.measurements.current is None
    assert ask(world, 1).is_ok
    refused = ask(world, 2, task=B)
    assert (refused.is_ok, refused.code) == (False, "busy")
    assert "M-1 measures gpt-a" in refused.message
    assert "unicron profile measure --cancel M-1 --connect SOCKET" in refused.message
    end(world)
    assert ask(world, 2, task=B).code == "M-2"


def world_with_command() -> World:
    world = world_with_idle_nodes()
    task = world.machine.state.tasks[A]
    changes = {"is_command": True, "flops_per_iteration": 0.0, "start_limit_s": 300.0}
    task.spec = replace(task.spec, **changes)  # type: ignore[arg-type]
    return world


def test_a_command_is_not_started_a_second_time_unless_it_keeps_to_its_directory() -> None:
    world = world_with_command()
    refused = ask(world)
    assert (refused.is_ok, refused.code) == (False, "unsupported")
    assert "--contained" in refused.message


def test_a_command_is_counted_by_its_lines_in_the_unit_of_its_table() -> None:
    world = world_with_command()
    table = world.machine.state.tasks[A].spec.table
    world.post(MeasurementRequested("r", "op", A, (1, 2), 3, is_contained=True))
    world.run_until(lambda: (run := measurement(world).run) is not None and run.num_commits == 4)
    run = measurement(world).run
    assert run is not None
    node = run.placement[0].node
    for number, duration_s in ((1, 9.0), (0, math.inf)):  # another rank prints it too
        printed = IterationCommitted(
            task=RUN, generation=run.generation, global_rank=number, iteration=4, loss=1.0,
            duration_s=duration_s, num_tokens=1, grad_norm=1.0,
        )  # fmt: skip
        world.post(Observed(node, 999, world.now, printed))
    assert run.durations_s == [1.0, 1.0]
    world.run_until(lambda: measurement(world).sizes[0].phase == "measured")
    world.iteration_s = 0.5
    found = end(world)
    assert found.sizes[0].flops_per_s == table.flops_per_s(1)
    assert found.sizes[1].flops_per_s == pytest.approx(2 * table.flops_per_s(1))


def test_the_table_that_is_printed_of_a_command_is_the_one_that_the_controller_keeps(
    tmp_path: Path,
) -> None:
    world = world_with_command()
    task = world.machine.state.tasks[A]
    task.spec = replace(task.spec, workers=2)
    kept = MeasuredTables(tmp_path, lambda _: task.spec, lambda *_: None)
    world.post(MeasurementRequested("r", "op", A, (1, 2), 3, is_contained=True))
    world.run_until(lambda: measurement(world).sizes[0].phase == "measured")
    world.iteration_s = 0.6
    found = end(world)
    for record in world.records:
        if record.num_iterations == 3:  # the others are of the task's own run
            kept.record(record)
    asyncio.run(_write(kept))
    points = load_table(tmp_path / "gpt-a.json").points
    rates = {size.workers: size.flops_per_s for size in found.sizes}
    assert {point.workers: point.flops_per_s for point in points} == pytest.approx(rates)
    assert rates[2] == pytest.approx(task.spec.table.flops_per_s(2))


async def _write(tables: MeasuredTables) -> None:
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(tables.run())
        await asyncio.sleep(0)
        writing.cancel()


def test_a_command_has_the_time_to_start_that_its_profile_gives_it() -> None:
    world = world_with_command()
    world.post(MeasurementRequested("r", "op", A, (2,), 30, is_contained=True))
    world.run(world.now + 5.0)
    world.lose_message(RUN, 0)
    assert end(world).sizes[0].reason == "no iteration was committed within 300 s"


def test_an_operator_can_cancel_and_what_is_measured_stays() -> None:
    world = world_with_idle_nodes()
    ask(world, 1, 2)
    world.run_until(lambda: measurement(world).sizes[0].phase == "measured")
    world.run(world.now + 2.0)
    assert answer_to(world, MeasurementCancelled("r", "op", "M-1")).is_ok
    found = end(world)
    assert [s.phase for s in found.sizes] == ["measured", "skipped"]
    assert found.sizes[1].reason == "cancelled by op"
    assert measured_ranks(world) == 0
    assert answer_to(world, MeasurementCancelled("r", "op", "M-1")).code == "decided"


def test_it_gives_way_to_a_plan_that_wants_its_workers() -> None:
    world = world_with_idle_nodes()
    ask(world, 4, num=100)
    world.run(world.now + 3.0)
    assert measured_ranks(world) == 4
    world.lose_node("n1")
    found = end(world)
    assert found.ended.startswith("stopped: ")
    assert found.sizes[0].phase == "skipped"
    world.run_until(lambda: all_run(world))
    world.run_until(lambda: all(len(t.ranks) == 4 for t in world.machine.state.tasks.values()))
    places = {w.node for t in world.machine.state.tasks.values() for w in t.placement}
    assert places & {NodeId("n5"), NodeId("n6")}


def test_a_plan_that_waits_for_a_decision_ends_it_and_lets_none_begin() -> None:
    world = world_with_idle_nodes(is_auto_heal=False)
    ask(world, 4, num=100)
    world.run(world.now + 3.0)
    world.lose_node("n1")
    world.run_until(world.machine.state.plans.pending)
    assert end(world).ended == "stopped: P-1 waits for a decision"
    assert ask(world, 1).code == "pending"
    approve_next(world)
    world.run_until(lambda: world.machine.state.plans.executing() is None)
    assert ask(world, 1).is_ok
    assert end(world).sizes[0].phase == "measured"


def test_a_fault_ends_the_size_with_its_reason_and_the_next_one_is_tried() -> None:
    world = world_with_idle_nodes()
    num_incidents = len(world.machine.state.incidents.all)
    ask(world, 2, 4, num=30)
    world.run(world.now + 3.0)
    world.raise_in_rank(RUN, 1, "OutOfMemoryError", "CUDA out of memory")
    found = end(world)
    assert [s.phase for s in found.sizes] == ["failed", "measured"]
    assert found.sizes[0].reason == "rank 1 raised OutOfMemoryError: CUDA out of memory"
    assert len(world.machine.state.incidents.all) == num_incidents
    assert len(starts(world)) == 2


def test_a_node_out_of_sight_for_a_while_is_presumed_training() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    (name,) = {worker.node for worker in starts(world)[0].placement}
    world.cut(name, 4.0)
    world.run(world.now + 2.0)
    assert world.machine.state.nodes[name].contact.condition is NodeCondition.UNREACHABLE
    assert not measurement(world).is_over
    found = end(world)
    assert [s.phase for s in found.sizes] == ["measured"]
    assert len(starts(world)) == 1


def test_a_node_that_is_lost_ends_the_size_there() -> None:
    world = world_with_idle_nodes()
    ask(world, 1, 2, num=30)
    world.run(world.now + 3.0)
    (worker,) = starts(world)[0].placement
    world.lose_node(worker.node)
    found = end(world)
    assert [s.phase for s in found.sizes] == ["failed", "measured"]
    assert found.sizes[0].reason == f"{worker} is lost or out of service"
    assert worker.node not in {each.node for each in starts(world)[1].placement}


def test_a_rank_that_is_not_listed_after_a_loss_of_contact_has_vanished() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    (name,) = {worker.node for worker in starts(world)[0].placement}
    node, rank = world.rank(RUN, 1)
    del node.ranks[next(key for key, each in node.ranks.items() if each is rank)]
    world.cut(name, 4.0)
    found = end(world)
    assert found.sizes[0].phase == "failed"
    assert found.sizes[0].reason == f"rank 1 has vanished: {name} no longer lists it"


def test_iterations_that_do_not_come_end_the_size() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, 4, num=30)
    world.run(world.now + 5.0)
    world.lose_message(RUN, 0)
    found = end(world)
    assert [s.phase for s in found.sizes] == ["failed", "measured"]
    assert found.sizes[0].reason == "no iteration was committed within 120 s"


def test_the_first_two_iterations_do_not_count() -> None:
    world = world_with_idle_nodes()
    world.iteration_s = 5.0
    ask(world, 2, num=1)
    world.run_until(lambda: (run := measurement(world).run) is not None and run.num_commits == 1)
    world.iteration_s = 0.5  # from the third one on
    assert end(world).sizes[0].iteration_s == pytest.approx(0.5)


def test_each_iteration_has_its_own_time_limit() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=200)
    assert end(world).sizes[0].phase == "measured"


def test_a_cause_counts_more_than_the_echo_that_came_before_it() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    world.fail_collective(RUN, 0)
    assert "Connection closed by peer" in measurement(world).sizes[0].reason
    world.kill_rank(RUN, 1)
    assert end(world).sizes[0].reason == "rank 1 was ended by SIGKILL"


def test_the_echo_of_its_own_end_is_no_reason() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    world.post(MeasurementCancelled("r", "op", "M-1"))
    world.fail_collective(RUN, 0)
    found = end(world)
    assert (found.sizes[0].phase, found.sizes[0].reason) == ("skipped", "cancelled by op")


def test_a_refused_start_ends_the_size() -> None:
    world = world_with_idle_nodes()
    ask(world, 1, num=30)
    (start,) = starts(world)
    (worker,) = start.placement
    failed = CommandFailed(
        worker.node, "start", RUN, start.generation, "no memory", is_outcome_unknown=False
    )
    world.post(failed)
    found = end(world)
    assert (found.sizes[0].phase, found.sizes[0].reason) == ("failed", f"{worker.node}: no memory")


def test_a_rank_that_its_node_does_not_list_after_a_stop_is_gone() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    (name,) = {worker.node for worker in starts(world)[0].placement}
    world.post(MeasurementCancelled("r", "op", "M-1"))
    world.vanish(name)
    world.run(world.now + 3.0)
    assert measurement(world).is_over


def test_a_clock_that_is_set_back_makes_no_time() -> None:
    world = world_with_idle_nodes()
    ask(world, 1, num=5)
    world.run_until(lambda: (run := measurement(world).run) is not None and run.num_commits == 3)
    (start,) = starts(world)
    committed = IterationCommitted(
        task=RUN, generation=start.generation, global_rank=0, iteration=4, loss=1.0,
        duration_s=1.0, num_tokens=1, grad_norm=1.0,
    )  # fmt: skip
    world.post(Observed(start.placement[0].node, 999, 0.1, committed))
    run = measurement(world).run
    assert run is not None
    assert run.durations_s == [pytest.approx(1.0)]
    assert end(world).sizes[0].phase == "measured"


def test_a_task_waits_until_the_ranks_on_its_workers_are_gone() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=30)
    world.run(world.now + 3.0)
    state, start = world.machine.state, starts(world)[0]
    turn = Turn(state, world.machine.policy, cause=1, at=world.now)
    target = Target(start.layout, start.placement)
    assert obstacle(turn, state.tasks[A], target) == "waits for workers of gpt-a@measure"
    world.post(MeasurementCancelled("r", "op", "M-1"))
    assert obstacle(turn, state.tasks[A], target) == "waits for workers of gpt-a@measure"
    end(world)
    assert obstacle(turn, state.tasks[A], target) == ""


def test_nothing_starts_beside_ranks_that_were_left_behind_out_of_contact() -> None:
    world = world_with_idle_nodes()
    ask(world, 2, num=100)
    world.run(world.now + 3.0)
    state, start = world.machine.state, starts(world)[0]
    (name,) = {worker.node for worker in start.placement}
    world.cut(name, 4.0)
    world.run(world.now + 2.0)
    world.post(MeasurementCancelled("r", "op", "M-1"))
    assert end(world).sizes[0].phase == "skipped"
    world.run_until(lambda: state.nodes[name].contact.condition is NodeCondition.HEALTHY)
    assert measured_ranks(world) == 2
    turn = Turn(state, world.machine.policy, cause=1, at=world.now)
    target = Target(start.layout, start.placement)
    note = f"waits for measured ranks to end on {start.placement[0]}"
    assert obstacle(turn, state.tasks[A], target) == note
    assert "2 idle worker(s)" in ask(world, 4).message
    ask(world, 2)  # the world asserts that no worker has two processes
    assert name not in {worker.node for worker in starts(world)[-1].placement}
    assert end(world).sizes[0].phase == "measured"
    assert obstacle(turn, state.tasks[A], target) == ""


def test_the_next_controller_has_the_same_state_and_ends_it() -> None:
    world = world_with_idle_nodes()
    ask(world, 1, 2, 4)
    world.run_until(lambda: measurement(world).sizes[0].phase == "measured")
    world.run(world.now + 3.0)
    world.kill_controller(2.0)  # the world compares the states
    world.run(world.now + 10.0)
    found = end(world)
    assert found.ended == "the controller was replaced"
    assert [(s.phase, s.reason) for s in found.sizes[1:]] == [
        ("skipped", "the controller was replaced")
    ] * 2
    assert measured_ranks(world) == 0
    world.run(world.now + 30.0)
    assert ask(world, 4).is_ok
    assert end(world).sizes[0].phase == "measured"
