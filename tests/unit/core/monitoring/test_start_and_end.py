"""Hangs outside of iterations: while a generation forms, and while it ends."""

import pytest

from controller.core.rules.policy import Policy
from controller.core.state.incident import Incident
from controller.core.state.phases import IncidentState, TaskPhase
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from profiles.layout import Layout
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next, task, task_trained
from tests.unit.core.recovery.test_generations import machine_of

A = TaskId("gpt-a")
POLICY = Policy(is_auto_heal=True)
LOOK_S = POLICY.look_interval_s + POLICY.inspection_limit_s
"""Within this a rank that is stopped is named."""


def cluster(*, num_iterations: int = 10**6) -> World:
    machine = demo_machine(policy=POLICY, num_iterations=num_iterations)
    return World(machine, num_iterations=num_iterations)


def incident(world: World) -> Incident:
    [found] = [
        each for each in world.machine.state.incidents.all if each.cause.status == "task_hang"
    ]
    return found


def forming(world: World, generation: int) -> None:
    """Wait until a generation forms, with a process of rank 2 in it."""
    world.run_until(
        lambda: any(
            (rank.task, rank.generation, rank.global_rank) == (A, generation, 2)
            for node in world.nodes.values()
            for rank in node.ranks.values()
        )
    )


def lose_in_code(world: World, number: int) -> None:
    world.lost_in_code.add(world.deafen("gpt-a", number))


def hung_s(world: World, since: float) -> float:
    """Return how long it took from ``since`` until somebody was named."""
    [at] = [at for at, line in world.announcements if line.kind == "stall"]
    return at - since


def test_rank_stopped_while_the_first_generation_forms_is_named_and_replaced() -> None:
    world = cluster()
    forming(world, 1)
    stopped_at, pid = world.now, world.deafen("gpt-a", 2)
    task_trained(world, 4)
    hang = incident(world)
    assert (hang.cause.global_rank, hang.cause.action) == (2, "restart")
    assert "stopped by a signal" in hang.cause.reason
    assert hung_s(world, stopped_at) <= LOOK_S
    assert pid not in {rank.pid for rank in task(world).ranks.values()}
    assert hang.state is IncidentState.RESOLVED


def test_survivor_stopped_while_a_regroup_forms_is_named_and_nobody_else_is_replaced() -> None:
    world = cluster()
    task_trained(world, 7)
    world.kill_rank("gpt-a", 1)
    forming(world, 2)
    before = [rank.pid for _, rank in sorted(task(world).ranks.items())]
    stopped_at = world.now
    world.deafen("gpt-a", 2)
    task_trained(world, 12)
    assert incident(world).cause.global_rank == 2
    assert hung_s(world, stopped_at) <= LOOK_S
    [stall] = [line.text for _, line in world.announcements if line.kind == "stall"]
    assert "the generation has not formed" in stall
    after = [rank.pid for _, rank in sorted(task(world).ranks.items())]
    assert [old == new for old, new in zip(before, after, strict=True)][2] is False
    assert (before[0], before[3]) == (after[0], after[3])
    assert task(world).progress.num_rerun_iterations == 0


def test_rank_lost_in_its_code_is_named_by_what_such_formings_have_taken_before() -> None:
    world = cluster()
    task_trained(world, 7)
    world.kill_rank("gpt-a", 1)
    task_trained(world, 12)
    world.kill_rank("gpt-a", 0)
    forming(world, 3)
    lost_at = world.now
    lose_in_code(world, 2)
    world.run_until(lambda: any(line.kind == "stall" for _, line in world.announcements))
    backoff = task(world).watch.pace.backoff
    task_trained(world, 16)
    hang = incident(world)
    assert hang.cause.global_rank == 2
    assert "load (program.py:7)" in hang.cause.reason
    assert backoff == 2.0, "a limit that is too short mends itself"
    limit_s = POLICY.slow_factor * POLICY.recovering_limit_s
    assert limit_s - 1.0 <= hung_s(world, lost_at) <= limit_s + LOOK_S


def test_new_process_that_loads_for_long_is_left_alone_until_the_start_is_over() -> None:
    world = cluster()
    task_trained(world, 7)
    world.kill_rank("gpt-a", 1)
    task_trained(world, 12)
    world.kill_rank("gpt-a", 2)
    world.run_until(lambda: task(world).generation == 3)
    begun_at = world.now
    forming(world, 3)
    lose_in_code(world, 2)
    task_trained(world, 16)
    assert incident(world).cause.global_rank == 2
    assert hung_s(world, begun_at) >= POLICY.start_limit_s


def test_first_forming_may_take_as_long_as_a_start_and_then_names_who_is_missing() -> None:
    world = cluster()
    forming(world, 1)
    lose_in_code(world, 2)
    world.run(POLICY.start_limit_s - 1.0)
    assert not world.machine.state.incidents.all
    task_trained(world, 4)
    assert incident(world).cause.global_rank == 2
    assert task(world).generation == 2


def test_rank_lost_in_the_very_first_iteration_is_named_when_the_start_is_over() -> None:
    world = cluster()
    world.run_until(lambda: bool(task(world).ranks))
    world.run_until(lambda: all(rank.joined for rank in task(world).ranks.values()))
    lose_in_code(world, 2)
    world.lose_message("gpt-a")
    task_trained(world, 4)
    assert incident(world).cause.global_rank == 2
    assert "load (program.py:7)" in incident(world).cause.reason
    assert hung_s(world, 0.0) >= POLICY.start_limit_s


def test_ranks_that_never_come_up_are_named_when_the_start_is_over() -> None:
    world = cluster()
    world.nodes[NodeId("n2")].stopped[A] = Generation(1)
    task_trained(world, 4)
    assert incident(world).cause.global_rank in {2, 3}
    assert "has not started" in incident(world).cause.reason


def test_start_in_which_all_compute_to_its_end_names_nobody() -> None:
    world = cluster()
    world.run_until(lambda: bool(task(world).ranks))
    world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    for number in range(4):
        lose_in_code(world, number)
    world.run_until(lambda: any(each.covers.get(A) for each in world.machine.state.incidents.all))
    [overdue] = world.machine.state.incidents.all
    assert [item.kind for item in overdue.evidence] == ["overdue"]
    assert "within 120 s" in overdue.evidence[0].summary


def test_rank_stopped_before_the_last_checkpoint_is_replaced_and_the_task_ends() -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    stopped_at = world.now + world.iteration_s
    world.deafen("gpt-a", 2)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    assert incident(world).cause.global_rank == 2
    assert incident(world).state is IncidentState.RESOLVED
    assert hung_s(world, stopped_at) <= LOOK_S
    assert sorted(task(world).progress.losses) == list(range(1, 13))
    assert task(world).progress.num_rerun_iterations == 0


def test_rank_lost_in_the_last_save_is_named_when_a_save_is_over_and_is_replaced() -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    lose_in_code(world, 2)
    committed_at = world.now + world.iteration_s
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    assert incident(world).cause.global_rank == 2
    assert incident(world).cause.action == "restart"
    assert "load (program.py:7)" in incident(world).cause.reason
    late_s = hung_s(world, committed_at) - POLICY.start_limit_s
    assert 0.0 <= late_s <= LOOK_S + POLICY.look_interval_s
    assert sorted(task(world).progress.losses) == list(range(1, 13))
    assert task(world).progress.num_rerun_iterations == 0


def test_last_save_may_take_longer_where_iterations_that_save_do() -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    task(world).watch.pace.long.extend([100.0] * 3)
    lose_in_code(world, 2)
    world.run(world.now + world.iteration_s + POLICY.slow_factor * POLICY.stall_factor * 100.0)
    assert not world.machine.state.incidents.all
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    assert incident(world).cause.global_rank == 2


@pytest.mark.parametrize("has_left", [False, True])
def test_who_was_not_seen_is_no_lost_message_but_is_ended_once_others_are_done(
    *, has_left: bool
) -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    pid = world.deafen("gpt-a", 2)
    world.dumb.add(pid)
    if has_left:
        world.lingering[pid] = False
        world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
        assert incident(world).cause.action == "none"
        return
    world.run(world.now + POLICY.start_limit_s + 4 * POLICY.look_interval_s)
    assert not world.machine.state.incidents.all
    assert not any(line.kind == "stall" for _, line in world.announcements)


def test_rank_stopped_when_all_is_saved_is_ended_and_the_task_has_finished() -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    world.lingering[world.deafen("gpt-a", 2)] = False
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    hang = incident(world)
    assert (hang.cause.global_rank, hang.cause.action) == (2, "none")
    assert "its peers are done" in hang.cause.reason
    assert [item.kind for item in hang.evidence] == ["hang"]
    world.run(world.now + 1.0)
    assert hang.state is IncidentState.RESOLVED
    assert task(world).generation == 1
    assert not any(rank.task == A for node in world.nodes.values() for rank in node.ranks.values())


@pytest.mark.parametrize("has_told", [False, True])
def test_rank_that_does_not_leave_is_ended_after_the_limit_of_a_stop(*, has_told: bool) -> None:
    world = cluster(num_iterations=12)
    task_trained(world, 11)
    pid = world.deafen("gpt-a", 2)
    world.lingering[pid] = has_told
    world.lost_in_code.add(pid)
    done_at = world.now + world.iteration_s
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    assert POLICY.stop_limit_s <= hung_s(world, done_at) <= POLICY.stop_limit_s + LOOK_S
    assert incident(world).cause.global_rank == 2


def test_rank_stopped_in_a_graceful_stop_is_named_before_the_stop_is_overdue() -> None:
    machine = machine_of([Layout(dp=2), Layout(tp=2, dp=2)], num_nodes=2, workers=4, slots=2)
    world = World(machine, num_iterations=10**6)
    task_trained(world, 7)
    world.lose_node("n2")
    approve_next(world)
    task_trained(world, 20)
    world.restore_node("n2")
    approve_next(world)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.STOPPING)
    stopped_at = world.now
    world.deafen("gpt-a", 1)
    world.run_until(lambda: task(world).lifecycle.phase is not TaskPhase.STOPPING)
    assert hung_s(world, stopped_at) <= LOOK_S + world.iteration_s
    assert incident(world).cause.global_rank == 1
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.RUNNING)
    assert machine.state.nodes[NodeId("n2")].is_in_service
