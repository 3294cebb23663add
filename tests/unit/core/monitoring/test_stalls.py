"""The machine's watch over tasks that stall, get slow, or train nonsense."""

import re
from typing import Any

import pytest

from controller.core.instructions import Announce
from controller.core.state.phases import IncidentState, TaskPhase
from nodeagent.protocol.ids import TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import only_incident, pids, task, task_trained

A = TaskId("gpt-a")


@pytest.fixture(params=range(4))
def world(request: pytest.FixtureRequest) -> World:
    """A cluster in training; the seed varies the moment inside the iteration."""
    world = World(demo_machine(), seed=request.param, num_iterations=10**6)
    task_trained(world, 12)
    world.run(world.now + request.param / 4)
    return world


def told(world: World, kind: str) -> list[tuple[float, Announce]]:
    return [(at, line) for at, line in world.announcements if line.kind == kind]


def facts(line: Announce) -> dict[str, Any]:
    return dict(line.facts)


def test_stopped_rank_is_named_within_three_iterations_and_replaced(world: World) -> None:
    before, committed_at = pids(world), task(world).progress.committed_at
    world.hang_rank("gpt-a", 2)
    task_trained(world, task(world).progress.iteration + 4)
    incident = only_incident(world)
    assert (incident.cause.status, incident.cause.severity) == ("task_hang", "SEV2")
    assert incident.cause.method == "online statistical monitoring"
    assert (incident.cause.global_rank, incident.cause.node) == (2, "n2")
    assert (incident.cause.action, incident.state) == ("restart", IncidentState.RESOLVED)
    [(stalled_at, stall)] = told(world, "stall")
    assert committed_at is not None
    assert stalled_at - committed_at <= 3 * world.iteration_s + 0.5
    assert facts(stall)["culprits"] == "2"
    assert [now == then for now, then in zip(pids(world), before, strict=True)] == [
        True, True, False, True,
    ]  # fmt: skip


def test_two_stopped_ranks_are_one_incident(world: World) -> None:
    world.hang_rank("gpt-a", 0)
    world.deafen("gpt-a", 3)
    task_trained(world, task(world).progress.iteration + 4)
    incident = only_incident(world)
    hung = {one.global_rank for one in incident.evidence if one.kind == "hang"}
    assert hung == {0, 3}


def test_collective_that_does_not_end_is_tried_again_in_the_same_processes(world: World) -> None:
    before = pids(world)
    world.lose_message("gpt-a")
    task_trained(world, task(world).progress.iteration + 4)
    incident = only_incident(world)
    assert (incident.cause.status, incident.cause.action) == ("nccl_timeout", "reattempt")
    assert incident.cause.global_rank is None
    assert incident.state is IncidentState.RESOLVED
    assert pids(world) == before


def test_training_that_goes_on_is_never_looked_at(world: World) -> None:
    world.run(world.now + 300.0)
    assert not told(world, "stall")
    assert not world.machine.state.incidents.all


def test_training_out_of_sight_is_not_taken_for_a_stall(world: World) -> None:
    for name in ("n1", "n2"):
        world.cut(name, 20.0)
    world.run(world.now + 40.0)
    assert not told(world, "stall")
    assert not world.machine.state.incidents.all


def test_last_iteration_is_followed_by_none() -> None:
    world = World(demo_machine(num_iterations=15), num_iterations=15)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.FINISHED)
    world.run(world.now + 60.0)
    assert not told(world, "stall")


def test_rank_that_hangs_in_the_recovery_is_found_after_a_limit_of_its_own(world: World) -> None:
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).generation == 2)
    world.run_until(lambda: all(rank.joined for rank in task(world).ranks.values()))
    world.deafen("gpt-a", 3)
    world.lose_message("gpt-a")
    hung_at = world.now
    task_trained(world, task(world).progress.iteration + 4)
    [(stalled_at, _)] = told(world, "stall")
    limit_s = world.machine.policy.recovering_limit_s
    assert limit_s <= stalled_at - hung_at < limit_s + 1.5


def test_late_iterations_are_told_once_and_once_when_it_is_over(world: World) -> None:
    world.iteration_s = 1.4
    world.run(world.now + 12.0)
    world.iteration_s = 1.0
    world.run(world.now + 12.0)
    begun = [line for _, line in told(world, "late") if line.source == A]
    ended = [line for _, line in told(world, "late_over") if line.source == A]
    assert (len(begun), len(ended)) == (1, 1)
    assert "1.40 x their average" in begun[0].text
    assert not world.machine.state.incidents.all


def test_iterations_that_stay_late_are_not_told_to_be_well_again(world: World) -> None:
    world.iteration_s = 1.4
    world.run(world.now + 60.0)
    [(_, ended)] = [each for each in told(world, "late_over") if each[1].source == A]
    assert ended.level == "warning"
    assert "late iterations are the usual ones now: 1.40 s, 1.40 x before" in ended.text


def test_a_regroup_while_iterations_are_late_does_not_make_them_well(world: World) -> None:
    world.iteration_s = 1.4
    world.run_until(lambda: any(line.source == A for _, line in told(world, "late")))
    world.raise_in_rank("gpt-a", 1, "ConnectionResetError", "reset by peer", is_lasting=False)
    world.run(world.now + 60.0)
    [(_, ended)] = [each for each in told(world, "late_over") if each[1].source == A]
    assert ended.level == "warning"


def test_straggler_is_named_once_and_once_when_it_is_over(world: World) -> None:
    _, rank = world.rank("gpt-a", 2)
    world.busy_s[rank.pid] = 0.5
    world.run(world.now + 20.0)
    [(_, line)] = told(world, "straggler")
    assert (facts(line)["rank"], facts(line)["node"]) == (2, "n2")
    assert not told(world, "straggler_over")
    del world.busy_s[rank.pid]
    world.run(world.now + 20.0)
    assert len(told(world, "straggler_over")) == 1
    assert not world.machine.state.incidents.all


def test_rank_that_waited_for_a_core_is_no_straggler_but_late_iterations_say_so(
    world: World,
) -> None:
    _, rank = world.rank("gpt-a", 2)
    world.busy_s[rank.pid], world.waited_s[rank.pid] = 0.6, 0.4
    world.iteration_s = 1.4
    world.run(world.now + 20.0)
    assert not told(world, "straggler")
    late = [line.text for _, line in told(world, "late") if line.source == A]
    assert late
    assert all(text.endswith("; waited 0.4 s for a core") for text in late)


def test_straggler_that_also_waited_for_a_core_says_how_long(world: World) -> None:
    _, rank = world.rank("gpt-a", 2)
    world.busy_s[rank.pid], world.waited_s[rank.pid] = 0.9, 0.1
    world.run(world.now + 20.0)
    [(_, line)] = told(world, "straggler")
    assert line.text.endswith("; waited 0.1 s for a core")


def test_what_a_slow_rank_does_not_cost_the_iteration_is_not_told(world: World) -> None:
    _, rank = world.rank("gpt-a", 2)
    world.busy_s[rank.pid] = 0.29  # 1.45 x its peers, and less than a tenth of an iteration
    world.run(world.now + 20.0)
    assert not told(world, "straggler")


def test_loss_spike_is_handed_to_the_operator_and_training_goes_on(world: World) -> None:
    generation = task(world).generation
    world.loss_factor = 6.0
    world.run(world.now + 10.0)
    incidents = [one for one in world.machine.state.incidents.all if one.task == A]
    [incident] = incidents
    assert (incident.cause.status, incident.cause.action) == ("nan_loss", "none")
    assert incident.is_open
    assert (task(world).lifecycle.phase, task(world).generation) == (TaskPhase.RUNNING, generation)
    world.loss_factor = 1.0
    world.run(world.now + 3.0)
    assert not incident.is_open


def test_fault_during_a_spike_is_an_incident_of_its_own(world: World) -> None:
    world.loss_factor = 6.0
    world.run(world.now + 10.0)
    world.kill_rank("gpt-a", 1)
    task_trained(world, task(world).progress.iteration + 4)
    found = {
        one.cause.status: one.state for one in world.machine.state.incidents.all if one.task == A
    }
    assert found == {
        "nan_loss": IncidentState.HELD,
        "exited_abnormally": IncidentState.RESOLVED,
    }


def test_a_hang_shows_the_stack_of_a_rank_that_waits_beside_the_culprit_s(world: World) -> None:
    world.hang_rank("gpt-a", 2)
    world.run(world.now + 20.0)
    [incident] = world.machine.state.incidents.all
    [evidence] = [each for each in incident.evidence if each.kind == "hang"]
    assert evidence.global_rank == 2
    assert re.fullmatch(r"rank ([013]) waits meanwhile:\nreduce \(rank \1\)", evidence.detail), (
        evidence.detail
    )
