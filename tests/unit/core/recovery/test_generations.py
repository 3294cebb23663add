"""Recovery without restarting survivors: processes, places, durations and costs."""

from dataclasses import replace

import pytest

from controller.core.events import PlanApproved
from controller.core.lifecycle.parking import halt_limit_s
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import IncidentState, PlanState, TaskPhase
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.regroup import Resume
from profiles.layout import Layout
from profiles.throughput import ThroughputPoint, ThroughputTable
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import (
    approve_next,
    newest_start,
    only_incident,
    pids,
    task,
    task_trained,
    trained,
)

A, B = TaskId("gpt-a"), TaskId("gpt-b")
SEEDS = range(6)
"""Each draws another moment inside the iteration, and another order of reports."""


def demo_world(seed: int = 0, *, is_auto_heal: bool = True, policy: Policy | None = None) -> World:
    world = World(
        demo_machine(is_auto_heal=is_auto_heal, policy=policy), seed=seed, num_iterations=10**6
    )
    trained(world, 7)
    world.run(world.now + seed / len(SEEDS))
    return world


def machine_of(points: list[Layout], *, num_nodes: int, workers: int, slots: int = 1) -> Machine:
    """Return a machine with one task that knows these layouts; it decides nothing by itself."""
    sizes = ThroughputTable(
        points=tuple(
            ThroughputPoint(
                workers=layout.num_workers, flops_per_s=layout.num_workers * 1e9, layout=layout
            )
            for layout in points
        )
    )
    spec = TaskSpec(A, 1.0, workers, min(sizes.sizes), sizes, 1e9, None, num_micro_batches=12)
    nodes = [NodeSpec(NodeId(f"n{i}"), "h", slots) for i in range(1, num_nodes + 1)]
    return Machine(nodes, [spec], Policy(is_auto_heal=False))


def unanswering(world: World) -> tuple[int, ...]:
    """Return the ranks of gpt-b that answer nobody any more, as node n3 was last told."""
    return world.nodes[NodeId("n3")].halts[B].broken


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_rank_is_replaced_and_its_peers_keep_their_processes(seed: int) -> None:
    world = demo_world(seed)
    before, iteration = pids(world), task(world).progress.iteration
    world.kill_rank("gpt-a", 1)
    trained(world, iteration + 4)
    after = pids(world)
    assert [now == then for now, then in zip(after, before, strict=True)] == [
        True, False, True, True,
    ]  # fmt: skip
    assert task(world).progress.num_rerun_iterations == 0
    assert sorted(task(world).progress.losses) == list(range(1, task(world).progress.iteration + 1))
    assert pids(world, B)
    assert task(world, B).generation == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_from_a_kill_to_the_decision_it_takes_less_than_the_settle_time(seed: int) -> None:
    world = demo_world(seed)
    killed_at = world.now
    world.kill_rank("gpt-a", 2)
    trained(world, 14)
    [started_at] = [at for at, start in world.starts if start.task == A and at > killed_at]
    # An exit report takes up to 0.05 s here, a position as long, a command 0.01 s.
    assert started_at - killed_at <= 0.13


@pytest.mark.parametrize("seed", SEEDS)
def test_an_incident_tells_what_the_recovery_took_and_saved(seed: int) -> None:
    world = demo_world(seed)
    world.kill_rank("gpt-a", 1)
    trained(world, 14)
    incident = only_incident(world)
    assert incident.state is IncidentState.RESOLVED
    assert incident.recovery.recovery_s is not None
    assert 0 < incident.recovery.recovery_s < 1.6  # an iteration takes a second
    assert incident.recovery.state_source == "peer"
    assert incident.recovery.resume.split(":")[0].split()[0] in {"commit", "reuse", "re-run"}
    start = newest_start(world)
    assert incident.recovery.recomputed_micro_batches == start.resume.num_recomputed
    assert incident.recovery.saved_micro_batches == start.resume.num_saved


def test_the_rungs_are_all_taken_somewhere() -> None:
    rungs = set()
    for seed in range(24):
        world = World(demo_machine(), seed=seed, num_iterations=10**6)
        trained(world, 3)
        world.run(world.now + seed / 24)
        world.kill_rank("gpt-b", 0)
        if seed % 2:
            world.kill_rank("gpt-b", 3)  # then no replica is whole
        trained(world, 7)
        rungs |= {
            dict(line.facts)["rung"] for _, line in world.announcements if line.kind == "regroup"
        }
    assert rungs == {"commit", "reuse", "re-run"}


def test_a_rank_that_raised_is_replaced_and_the_others_go_on() -> None:
    world = demo_world()
    before = pids(world, B)
    world.raise_in_rank("gpt-b", 2)
    trained(world, 12)
    after = pids(world, B)
    assert [now == then for now, then in zip(after, before, strict=True)] == [
        True, True, False, True,
    ]  # fmt: skip
    assert only_incident(world).cause.action == "restart"


def test_a_task_whose_settings_are_refused_is_held_at_once() -> None:
    world = demo_world()
    world.raise_in_rank("gpt-b", 2, kind="ProgramError")
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.HELD)
    assert task(world, B).generation == 1
    incident = only_incident(world)
    assert (incident.cause.action, incident.state) == ("none", IncidentState.HELD)
    assert "ProgramError: bad batch" in incident.cause.reason
    [held] = [line for _, line in world.announcements if line.kind == "held"]
    assert "fix them" in held.text
    trained_alone = task(world).progress.iteration + 3
    task_trained(world, trained_alone)


def test_failed_collectives_without_a_cause_are_reattempted_with_the_same_processes() -> None:
    world = demo_world()
    before = pids(world)
    world.fail_collective("gpt-a", 0)
    world.run(world.now + 1.0)
    assert task(world).lifecycle.phase is TaskPhase.RUNNING
    trained(world, 12)
    assert pids(world) == before
    incident = only_incident(world)
    assert (incident.cause.action, incident.state) == ("reattempt", IncidentState.RESOLVED)
    assert task(world).generation == 2


def test_a_rank_that_does_not_park_hangs_and_is_replaced() -> None:
    world = demo_world()
    before = pids(world)
    deaf = world.deafen("gpt-a", 3)
    world.kill_rank("gpt-a", 1)
    trained(world, 12)
    assert deaf not in pids(world)
    assert [now == then for now, then in zip(pids(world), before, strict=True)] == [
        True, False, True, False,
    ]  # fmt: skip
    assert any("hangs" in item.summary for item in only_incident(world).evidence)


def test_ranks_that_wait_for_one_of_their_replica_that_has_parked_are_woken() -> None:
    world = demo_world()
    world.deafen("gpt-b", 1)
    world.kill_rank("gpt-b", 2)
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.PARKING)
    limit_s = halt_limit_s(world.machine.policy, task(world, B))
    world.run(world.now + 0.1 * limit_s)
    assert unanswering(world) == (2,)
    world.run(world.now + 0.8 * limit_s)
    # Of the replica with the lost rank nobody is waited for.
    assert unanswering(world) == (0, 2)


def test_ranks_are_woken_also_where_the_first_of_their_replica_parks_late() -> None:
    world = demo_world()
    first = world.deafen("gpt-b", 0)
    world.deafen("gpt-b", 1)
    world.kill_rank("gpt-b", 2)
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.PARKING)
    limit_s = halt_limit_s(world.machine.policy, task(world, B))
    world.run(world.now + 0.4 * limit_s)
    assert unanswering(world) == (2,)
    world.deaf.remove(first)
    world.park_now("gpt-b", 0)
    world.run(world.now + 0.4 * limit_s)
    assert unanswering(world) == (0, 2)


def test_a_replica_of_which_no_rank_has_parked_is_left_to_finish_what_it_computes() -> None:
    world = demo_world()
    for number in (0, 1):
        world.deafen("gpt-b", number)
    world.kill_rank("gpt-b", 2)
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.PARKING)
    world.run(world.now + 0.9 * halt_limit_s(world.machine.policy, task(world, B)))
    assert unanswering(world) == (2,)


def test_a_heartbeat_that_crosses_the_start_ends_nobody_who_goes_on() -> None:
    world = demo_world()
    before = pids(world)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).generation == 2)
    for node in ("n1", "n2"):
        world.beat(node)  # it lists the parked ranks under their old generation
    trained(world, 12)
    assert pids(world)[2:] == before[2:]
    assert task(world).generation == 2


def test_a_worker_is_free_when_the_process_that_was_left_out_is_gone() -> None:
    world = demo_world()
    world.lose_node("n2")
    world.run_until(lambda: task(world, B).generation == 2)
    assert len(task(world, B).leaving.workers) == 2
    assert task(world).lifecycle.phase is TaskPhase.PARKING
    assert task(world).lifecycle.note == "waits for workers of gpt-b"
    world.run_until(lambda: task(world).generation == 2)
    assert not task(world, B).leaving.workers


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_fault_while_ranks_park_costs_no_second_regroup(seed: int) -> None:
    world = demo_world(seed)
    world.kill_rank("gpt-a", 1)
    world.kill_rank("gpt-a", 3)
    iteration = task(world).progress.iteration
    trained(world, iteration + 4)
    assert task(world).generation <= 3
    assert task(world).progress.num_rerun_iterations == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_second_fault_while_the_generation_forms_leads_to_another(seed: int) -> None:
    world = demo_world(seed)
    keeper = pids(world)[2]
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).generation == 2)
    world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    world.kill_rank("gpt-a", 0)
    trained(world, task(world).progress.iteration + 4)
    assert task(world).generation == 3
    assert pids(world)[2] == keeper
    assert task(world).progress.num_rerun_iterations == 0
    assert all(i.state is IncidentState.RESOLVED for i in world.machine.state.incidents.all)


def test_with_all_replicas_lost_memory_or_the_disk_serves_and_the_rest_is_counted() -> None:
    world = demo_world()
    for number in range(4):
        world.kill_rank("gpt-a", number)
    trained(world, 12)
    incident = world.machine.state.incidents.all[-1]
    assert incident.recovery.state_source == "disk"
    assert task(world).progress.num_rerun_iterations == 2
    assert incident.recovery.recomputed_micro_batches >= 2 * 12


@pytest.mark.parametrize("num_rerun", [0, 1])
def test_iterations_that_are_run_again_are_counted_once(num_rerun: int) -> None:
    world = demo_world()
    for number in range(4):
        world.kill_rank("gpt-a", number)
    world.run_until(lambda: task(world).generation == 2)
    world.run_until(lambda: all(rank.joined for rank in task(world).ranks.values()))
    lost = task(world).progress.iteration - 5
    assert lost > 1
    world.run_until(lambda: task(world).progress.num_rerun_iterations == num_rerun)
    world.kill_rank("gpt-a", 0)
    trained(world, 12)
    first, second = world.machine.state.incidents.all
    assert first.recovery.recomputed_micro_batches >= 12 * lost
    # Its peers have what it had: no more than the iteration that was running.
    assert second.recovery.recomputed_micro_batches < 12


def test_a_stage_without_survivors_is_restored_from_memory() -> None:
    world = demo_world()
    for number in (0, 2):
        world.kill_rank("gpt-b", number)  # both ranks of tp rank 0
    trained(world, 12)
    incident = world.machine.state.incidents.all[0]
    assert incident.recovery.state_source == "memory"
    resume = newest_start(world, B).resume
    assert resume.source == "memory" or any(shard.is_copy for shard in resume.shards)


def resume_after_a_refusal(world: World) -> Resume:
    """Let both ranks of tp rank 0 of gpt-b refuse their state; return the world afterwards."""
    world.run_until(lambda: all(rank.joined for rank in task(world, B).ranks.values()))
    generation = task(world, B).generation
    for number in (0, 2):
        world.rank(B, number)[1].has_state = False
        world.raise_in_rank(B, number, "SuspectStateError", "loss 9, and 5", is_lasting=False)
    world.run_until(lambda: task(world, B).generation > generation)
    return newest_start(world, B).resume


def test_copies_that_lead_nowhere_twice_give_way_to_the_disk() -> None:
    world = demo_world()
    trained(world, 12)
    resumes = [resume_after_a_refusal(world) for _ in range(3)]
    assert [any(shard.is_copy for shard in one.shards) for one in resumes] == [True, True, False]
    assert resumes[-1].source == "disk"
    trained(world, task(world, B).progress.iteration + 2)


def test_a_connection_that_breaks_while_ranks_go_on_only_delays_them() -> None:
    world = demo_world()
    before = pids(world)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).generation == 2)
    world.cut("n2", 1.5)  # before the start reaches it
    trained(world, 14)
    assert pids(world)[2:] == before[2:]
    assert task(world).generation == 2


def test_a_connection_that_breaks_while_ranks_park_only_delays_them() -> None:
    world = demo_world()
    before = pids(world)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.PARKING)
    world.cut("n2", 1.5)
    trained(world, 14)
    assert pids(world)[2:] == before[2:]
    assert task(world).generation == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_dies_while_the_generation_forms_is_lost_and_the_rest_goes_on(
    seed: int,
) -> None:
    world = demo_world(seed)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: task(world).generation == 2)
    world.lose_node("n2")
    trained(world, 16)
    assert "n2" not in {worker.node for worker in task(world).placement}
    assert all(i.state is IncidentState.RESOLVED for i in world.machine.state.incidents.all)


def test_while_a_plan_waits_the_task_goes_on_with_its_whole_replicas() -> None:
    world = demo_world(is_auto_heal=False)
    before = pids(world)
    world.lose_node("n2")
    trained(world, 14)
    assert task(world).layout == Layout(dp=2)
    assert pids(world) == before[:2]
    assert task(world).progress.num_rerun_iterations == 0
    assert only_incident(world).state is IncidentState.DECIDED  # going on with less is no cure
    assert only_incident(world).recovery.recovery_s is not None
    [plan] = world.machine.state.plans.all
    assert plan.changes[A].workers_before == 4
    world.post(PlanApproved("r1", "op", plan.name, plan.revision))
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert len(task(world).ranks) == 4
    assert pids(world)[:2] == before[:2]
    assert task(world, B).progress.num_rerun_iterations == 0
    assert only_incident(world).state is IncidentState.RESOLVED


def test_a_fault_while_the_plan_waits_does_not_cost_another_replica() -> None:
    world = demo_world(is_auto_heal=False)
    world.lose_node("n2")
    trained(world, 12)
    world.kill_rank("gpt-a", 1)
    trained(world, 16)
    assert task(world).layout == Layout(dp=2)


def test_under_auto_heal_the_task_goes_straight_to_where_the_plan_wants_it() -> None:
    world = demo_world()
    before = pids(world), pids(world, B)
    world.lose_node("n2")
    trained(world, 14)
    assert task(world).generation == 2
    assert task(world, B).generation == 2
    assert pids(world)[:2] == before[0][:2]
    kept = 2 if task(world, B).placement[0].node == "n4" else 0
    assert pids(world, B) == before[1][kept : kept + 2]
    assert newest_start(world, B).resume.num_recomputed == 0  # it had finished its iteration
    assert all(t.progress.num_rerun_iterations == 0 for t in world.machine.state.tasks.values())


def test_a_node_that_returns_lets_a_smaller_task_grow() -> None:
    world = demo_world()
    world.lose_node("n2")
    trained(world, 12)
    before = pids(world, B)
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)
    trained(world, 18)
    assert set(before) <= set(pids(world, B))
    assert task(world, B).progress.num_rerun_iterations == 0
    assert [plan.state for plan in world.machine.state.plans.all] == [PlanState.APPLIED] * 2


def ending_world(num_iterations: int) -> World:
    """Return a world in which gpt-b has shrunk, and knows its last iteration."""
    machine = demo_machine(num_iterations=num_iterations)
    world = World(machine, num_iterations=num_iterations)
    trained(world, 7)
    world.lose_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 2)
    trained(world, 20)
    return world


def test_a_task_near_its_end_is_left_alone() -> None:
    world = ending_world(num_iterations=22)
    world.restore_node("n2")
    world.run_until(lambda: task(world, B).lifecycle.phase is TaskPhase.FINISHED)
    assert len(world.machine.state.plans.all) == 1
    assert len(task(world, B).ranks) == 2


def test_a_task_far_from_its_end_grows() -> None:
    world = ending_world(num_iterations=10_000)
    world.restore_node("n2")
    world.run_until(lambda: len(task(world, B).ranks) == 4)


def test_a_node_that_comes_late_lets_a_task_grow() -> None:
    layouts = [Layout(dp=dp) for dp in (2, 3)]
    world = World(machine_of(layouts, num_nodes=3, workers=2), absent=["n3"])
    trained(world, 3)
    assert not world.machine.state.plans.all
    world.restore_node("n3")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    [plan] = world.machine.state.plans.all
    assert (plan.trigger, plan.seen) == ("n3", "n3 has joined")
    assert plan.changes[A].workers_after == 3


def test_nodes_that_come_one_by_one_change_no_plan() -> None:
    layouts = [Layout(dp=dp) for dp in (1, 2)]
    world = World(machine_of(layouts, num_nodes=2, workers=2), absent=["n2"])
    world.run(5.0)
    world.restore_node("n2")
    trained(world, 3)
    assert not world.machine.state.plans.all
    assert task(world).layout == Layout(dp=2)


def test_with_two_stages_whole_replicas_go_on_and_keep_their_stage() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (1, 2, 3)]
    world = World(machine_of(layouts, num_nodes=6, workers=6), num_iterations=10**6)
    trained(world, 3)
    before = pids(world)
    world.lose_node("n3")  # stage 0 of replica 1
    trained(world, 8)
    assert task(world).layout == Layout(pp=2, dp=2)
    assert pids(world) == [before[0], before[2], before[3], before[5]]
    assert task(world).progress.num_rerun_iterations == 0


def test_stages_of_two_broken_replicas_go_on_as_one() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (1, 2)]
    world = World(machine_of(layouts, num_nodes=4, workers=4), num_iterations=10**6)
    trained(world, 3)
    before = pids(world)
    world.lose_node("n1")  # stage 0 of replica 0
    world.lose_node("n4")  # stage 1 of replica 1
    trained(world, 10)
    assert task(world).layout == Layout(pp=2)
    assert set(pids(world)) == {before[1], before[2]}
    plan = approve_next(world)
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert set(pids(world)) == {before[1], before[2]}
    assert task(world).progress.num_rerun_iterations == 0


@pytest.mark.parametrize("num_after", [2, 3], ids=["as many as are left", "more than are left"])
def test_before_a_change_of_layout_the_state_that_is_left_is_saved(num_after: int) -> None:
    layouts = [Layout(dp=num_after), Layout(pp=2, dp=2)]
    machine = machine_of(layouts, num_nodes=2 + num_after, workers=4)
    world = World(machine, num_iterations=10**6)
    world.checkpoint_interval = 50
    trained(world, 40)
    assert task(world).layout == Layout(pp=2, dp=2)
    nodes = [rank.worker.node for _, rank in sorted(task(world).ranks.items())]
    for number in (0, 3):  # stage 0 of a replica, stage 1 of the other
        world.lose_node(nodes[number])
    approve_next(world)
    world.run_until(lambda: task(world).layout == Layout(dp=num_after))
    trained(world, 44)
    assert task(world).progress.num_rerun_iterations == 0


def test_without_any_rank_of_a_stage_the_others_stay_parked_until_the_operator_decides() -> None:
    layouts = [Layout(pp=2, dp=dp) for dp in (1, 2)]
    world = World(machine_of(layouts, num_nodes=4, workers=4), num_iterations=10**6)
    trained(world, 3)
    for name in ("n2", "n4"):  # all of stage 1
        world.lose_node(name)
    world.run(world.now + 20.0)
    assert task(world).lifecycle.phase is TaskPhase.PARKING
    plan = approve_next(world)
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert task(world).layout == Layout(pp=2)


def test_a_task_does_not_go_on_below_its_smallest_size() -> None:
    world = World(machine_of([Layout(dp=4)], num_nodes=4, workers=4), num_iterations=10**6)
    trained(world, 3)
    world.lose_node("n4")
    world.run(world.now + 20.0)
    assert task(world).lifecycle.phase is TaskPhase.PARKING
    assert task(world).generation == 1


def test_another_layout_of_the_model_stops_with_a_checkpoint_first() -> None:
    machine = machine_of([Layout(tp=2), Layout(tp=1, dp=3)], num_nodes=2, workers=3, slots=2)
    world = World(machine, num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run(world.now + 5.0)
    [plan] = machine.state.plans.all
    world.post(PlanApproved("r1", "op", plan.name, plan.revision))
    world.run_until(lambda: plan.state is PlanState.APPLIED)
    assert task(world).layout == Layout(tp=2)
    assert newest_start(world).resume.source == "disk"


def test_a_commit_that_its_reporter_did_not_live_to_tell_is_not_lost() -> None:
    for seed in range(30):
        world = World(demo_machine(), seed=seed, num_iterations=10**6)
        trained(world, 3)
        world.run(world.now + 0.95)
        world.kill_rank("gpt-a", 0)
        trained(world, 7)
        assert sorted(task(world).progress.losses) == list(
            range(1, task(world).progress.iteration + 1)
        )
        assert task(world).progress.num_rerun_iterations == 0


def test_partial_results_are_not_tried_for_ever() -> None:
    world = demo_world()
    for victim in (1, 2, 1):
        generation = task(world).generation
        world.kill_rank("gpt-a", victim)
        world.run_until(lambda: task(world).generation > generation)  # noqa: B023
        world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    reuses = [dict(line.facts)["rung"] for _, line in world.announcements if line.kind == "regroup"]
    assert len(reuses) == 3
    assert reuses[-1] in {"re-run", "commit"}
    trained(world, 12)


def test_after_a_fault_the_layout_changes_only_once_what_is_left_has_saved_its_state() -> None:
    layouts = [Layout(dp=2), Layout(tp=2, dp=2)]
    machine = machine_of(layouts, num_nodes=2, workers=4, slots=2)
    world = World(machine, num_iterations=10**6)
    trained(world, 7)
    world.lose_node("n2")
    world.run_until(lambda: bool(machine.state.plans.all))
    [plan] = machine.state.plans.all
    world.post(PlanApproved("r1", "op", plan.name, plan.revision))
    world.run_until(lambda: task(world).layout == Layout(dp=2))
    trained(world, 16)
    assert task(world).progress.num_rerun_iterations == 0
    assert newest_start(world).resume.source == "disk"


def test_a_task_comes_to_the_end_of_a_long_iteration_before_it_is_divided_anew() -> None:
    layouts = [Layout(dp=2), Layout(pp=2, dp=2)]
    world = World(machine_of(layouts, num_nodes=4, workers=4), num_iterations=10**6)
    world.checkpoint_interval = 50
    trained(world, 3)
    world.lose_node("n4")
    world.run_until(lambda: bool(world.machine.state.plans.all))
    approve_next(world)
    world.run_until(
        lambda: (
            task(world).layout == Layout(dp=2) and task(world).lifecycle.phase is TaskPhase.RUNNING
        )
    )
    world.iteration_s = 45.0
    trained(world, task(world).progress.iteration + 4)
    world.run(world.now + 5.0)
    world.restore_node("n4")
    approve_next(world)
    world.run_until(lambda: task(world).layout == Layout(pp=2, dp=2), limit_s=900)
    assert task(world).progress.num_rerun_iterations == 0
    stops = [each.text for _, each in world.announcements if "killed" in each.text]
    assert not stops


@pytest.mark.parametrize(("deviation", "is_told"), [(1e-3, False), (0.02, True)])
def test_with_another_tp_or_pp_dropout_draws_other_masks_and_that_is_no_mismatch(
    deviation: float, *, is_told: bool
) -> None:
    layouts = [Layout(dp=2), Layout(pp=2, dp=2)]
    machine = machine_of(layouts, num_nodes=4, workers=4)
    spec = machine.state.tasks[A].spec
    machine.state.tasks[A].spec = replace(spec, makes_copies=False)
    world = World(machine, num_iterations=10**6)
    world.checkpoint_interval = 5
    trained(world, 8)
    world.lose_node("n2")
    world.lose_node("n4")  # all of stage 1
    world.run_until(lambda: bool(world.machine.state.plans.pending()))
    world.loss_factor = 1.0 + deviation
    approve_next(world)
    world.run_until(lambda: task(world).progress.num_rerun_iterations > 0)
    assert task(world).layout != Layout(pp=2, dp=2)
    mismatches = [each for _, each in world.announcements if each.kind == "loss_mismatch"]
    assert bool(mismatches) is is_told


def test_a_task_that_saves_its_checkpoint_for_a_plan_saves_it_for_the_next_plan_too() -> None:
    layouts = [Layout(dp=2), Layout(pp=2, dp=2), Layout(pp=2, dp=3)]
    world = World(machine_of(layouts, num_nodes=6, workers=6), num_iterations=10**6)
    world.machine.policy = Policy(is_auto_heal=True, burst_s=0.0)
    world.checkpoint_interval = 50
    trained(world, 3)
    for name in ("n3", "n4", "n5", "n6"):
        world.lose_node(name)
    world.run_until(lambda: task(world).layout == Layout(dp=2))
    trained(world, task(world).progress.iteration + 3)
    world.iteration_s = 45.0
    trained(world, task(world).progress.iteration + 2)
    world.restore_node("n3")
    world.restore_node("n4")
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.STOPPING)
    num_plans, rerun = len(world.machine.state.plans.all), task(world).progress.num_rerun_iterations
    world.restore_node("n5")
    world.restore_node("n6")
    world.run_until(lambda: len(world.machine.state.plans.all) > num_plans)
    assert task(world).lifecycle.phase is TaskPhase.STOPPING
    world.run_until(lambda: task(world).layout == Layout(pp=2, dp=3), limit_s=900)
    trained(world, task(world).progress.iteration + 2)
    assert task(world).progress.num_rerun_iterations == rerun
