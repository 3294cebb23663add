"""A task that does not recover in process: an announcement, and new processes."""

import pytest

from controller.core.state.phases import IncidentState, TaskPhase
from nodeagent.protocol.ids import TaskId
from nodeagent.protocol.observations import RankJoined
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import newest_start, only_incident, pids, task, trained

A, B = TaskId("gpt-a"), TaskId("gpt-b")
REASON = "bf16 = True: not tested"
SEEDS = range(6)


@pytest.fixture(params=SEEDS)
def world(request: pytest.FixtureRequest) -> World:
    """Task A does not recover in process, B does; both stand after iteration 7."""
    seed: int = request.param
    world = World(demo_machine(), seed=seed, num_iterations=10**6)
    world.unsupported = {A: (REASON,)}
    trained(world, 7)
    world.run(world.now + seed / len(SEEDS))
    return world


def test_operators_are_told_once_and_by_name(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    trained(world, 12)
    told = [line for _, line in world.announcements if line.kind == "unsupported"]
    assert [line.source for line in told] == [A]
    assert told[0].level == "warning"
    assert REASON in told[0].text
    assert (task(world).limits.unsupported, task(world, B).limits.unsupported) == ((REASON,), ())


def test_a_killed_rank_takes_new_processes_for_all_and_the_state_from_disk(world: World) -> None:
    before, others, iteration = pids(world), pids(world, B), task(world).progress.iteration
    world.kill_rank("gpt-a", 1)
    trained(world, iteration + 4)
    assert set(pids(world)).isdisjoint(before)
    assert pids(world, B) == others
    assert newest_start(world).resume.source == "disk"
    assert task(world).generation == 2
    incident = only_incident(world)
    assert (incident.cause.action, incident.state) == ("restart", IncidentState.RESOLVED)
    assert incident.recovery.resume == "restart from disk: not in process with bf16 = True"
    assert incident.recovery.state_source == "disk"
    assert incident.recovery.saved_micro_batches == 0
    # The newest checkpoint is that of iteration 5.
    assert task(world).progress.num_rerun_iterations == iteration - 5
    told = [line for _, line in world.announcements if line.kind == "resume" and line.source == A]
    assert [line.level for line in told] == ["info", "warning"]
    assert told[-1].text.endswith(f"state from disk; iterations run again: {iteration - 5}")


def test_failed_collectives_without_a_cause_restart_it_too(world: World) -> None:
    before = pids(world)
    world.fail_collective("gpt-a", 0)
    trained(world, 12)
    assert set(pids(world)).isdisjoint(before)
    assert only_incident(world).cause.action == "restart"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_before_any_of_its_ranks_has_joined_takes_new_processes_too(seed: int) -> None:
    world = World(demo_machine(), seed=seed, num_iterations=10**6)
    world.unsupported = {A: (REASON,)}
    world.run_until(lambda: bool(task(world).ranks) and None not in pids(world))
    assert not task(world).limits.unsupported
    before = pids(world)
    world.kill_rank("gpt-a", 1)
    trained(world, 4)
    assert set(pids(world)).isdisjoint(before)
    assert only_incident(world).cause.action == "restart"


def test_what_recovers_in_process_is_not_touched(world: World) -> None:
    before = pids(world, B)
    world.kill_rank("gpt-b", 1)
    trained(world, 12)
    assert len(set(pids(world, B)) & set(before)) == 3
    assert task(world, B).progress.num_rerun_iterations == 0


@pytest.mark.parametrize("iteration", [13, 14])
def test_a_planned_move_stops_it_with_a_checkpoint_and_loses_nothing(iteration: int) -> None:
    world = World(demo_machine(), num_iterations=10**6)
    world.unsupported = {B: (REASON,)}
    trained(world, 3)
    world.lose_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 2)
    world.run_until(lambda: task(world, B).progress.iteration == iteration)
    num_rerun = task(world, B).progress.num_rerun_iterations
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    trained(world, 20)
    # Growing is a planned move, between two checkpoints; only the lost node cost iterations.
    assert task(world, B).progress.num_rerun_iterations == num_rerun
    assert newest_start(world, B).resume.source == "disk"


def test_while_a_plan_waits_its_whole_replicas_go_on_in_new_processes() -> None:
    world = World(demo_machine(is_auto_heal=False), num_iterations=10**6)
    world.unsupported = {A: (REASON,)}
    trained(world, 7)
    before = pids(world)
    world.lose_node("n2")
    trained(world, 12)
    assert task(world).lifecycle.phase is TaskPhase.RUNNING
    assert len(task(world).ranks) == 2
    assert set(pids(world)).isdisjoint(before)


def test_a_report_of_an_older_rank_has_nothing_unsupported() -> None:
    old = (
        '{"task": "a", "generation": 1, "global_rank": 0, "kind": "rank_joined", "iteration": 0,'
        ' "source": "seed", "form_s": 0.1, "state_s": 0.0}'
    )
    assert RankJoined.model_validate_json(old).unsupported == ()
