"""Nodes that are isolated although in contact: findings, and the way back."""

from dataclasses import replace

import pytest

from controller.core.events import (
    DrillRequested,
    Observed,
    PlanRequested,
    UncordonRequested,
)
from controller.core.incidents.incident_log import MAX_SYMPTOMS
from controller.core.state.phases import IncidentState, NodeCondition, TaskPhase
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import RankRaised
from profiles.faults.status import Action
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next, newest_incident, node, running_world, task

A = TaskId("gpt-a")
N1 = NodeId("n1")
FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus."
FLAP = NodeFinding(
    probe="network", sign="link_changed", subject="ib0", text="4 changes of the carrier", value=4
)


def words(*lines: str) -> NodeFinding:
    return NodeFinding(probe="kernel log", sign="message", text="\n".join(lines))


def is_isolated(world: World) -> bool:
    return bool(node(world).service.isolated)


def summary(world: World) -> tuple[str | None, str, str, str | None]:
    incident = newest_incident(world)
    return (
        incident.cause.status,
        str(incident.cause.severity),
        incident.cause.action,
        incident.cause.node,
    )


def settled(world: World) -> bool:
    incidents = world.machine.state.incidents.all
    return bool(incidents) and incidents[-1].state is IncidentState.RESOLVED


def test_an_ecc_error_in_a_rank_isolates_its_node_and_the_rest_trains_on() -> None:
    world = running_world()
    world.raise_in_rank(
        "gpt-a", 1, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"
    )
    world.run_until(lambda: settled(world))
    assert summary(world) == ("ecc_error", "SEV1", "reconfigure", "n1")
    assert node(world).service.isolated
    assert node(world).contact.condition is NodeCondition.HEALTHY
    assert N1 not in task(world).nodes
    world.run(world.now + 5.0)
    assert not world.nodes[N1].ranks, "the ranks of an isolated node are ended"


def test_while_the_plan_waits_the_task_goes_on_without_the_isolated_node() -> None:
    world = running_world(is_auto_heal=False)
    world.raise_in_rank(
        "gpt-a", 1, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"
    )
    world.run_until(lambda: world.machine.state.plans.pending() is not None)
    iteration = task(world).progress.iteration
    world.run_until(lambda: task(world).progress.iteration > iteration + 2)
    assert N1 not in task(world).nodes
    assert newest_incident(world).state is IncidentState.DECIDED
    assert approve_next(world).isolated_nodes == ("n1",)
    world.run_until(lambda: settled(world))


def test_a_gpu_off_the_bus_isolates_its_node_although_no_rank_has_noticed() -> None:
    world = running_world()
    world.find("n1", words(FALLEN))
    world.run_until(lambda: settled(world))
    assert summary(world) == ("gpu_driver_error", "SEV1", "reconfigure", "n1")
    assert newest_incident(world).cause.method == "node health monitoring"
    assert N1 not in task(world).nodes


def test_a_cause_that_shows_later_makes_the_same_incident_worse() -> None:
    world = running_world()
    world.raise_in_rank("gpt-a", 1, "RuntimeError", "CUDA error: unspecified launch failure")
    world.run_until(lambda: newest_incident(world).state is IncidentState.ACTING)
    assert summary(world)[:3] == ("cuda_error", "SEV2", "restart")
    world.run(world.now + 1.0)
    world.find("n1", words(FALLEN))
    assert len(world.machine.state.incidents.all) == 1
    world.run_until(lambda: bool(node(world).service.isolated) and settled(world))
    assert summary(world)[:3] == ("gpu_driver_error", "SEV1", "reconfigure")


def test_harmless_words_of_the_kernel_change_nothing() -> None:
    world = running_world()
    world.find(
        "n1", words("mlx5_core 0000:5e:00.0: ib0: Link up", "EDAC MC0: 1 CE memory read error")
    )
    assert not world.machine.state.incidents.all


def test_one_flapping_link_is_counted_and_the_second_isolates() -> None:
    world = running_world()
    world.find("n1", FLAP)
    assert summary(world) == ("link_flapping", "SEV3", "none", "n1")
    world.run(world.now + 2.0)
    assert settled(world)
    assert task(world).generation == 1, "training was left alone"
    world.run(world.now + 100.0)
    world.find("n1", FLAP)
    assert summary(world)[1:3] == ("SEV1", "reconfigure")
    world.run_until(lambda: settled(world))
    assert N1 not in task(world).nodes


def test_a_link_that_comes_up_once_does_not_flap() -> None:
    world = running_world()
    world.find("n1", FLAP.model_copy(update={"value": 1.0}))
    assert not world.machine.state.incidents.all


def test_a_reset_connection_is_tried_again_in_the_same_processes() -> None:
    world = running_world()
    pids = [rank.pid for rank in task(world).ranks.values()]
    reset = ("ConnectionResetError", "[Errno 104] Connection reset by peer")
    world.raise_in_rank("gpt-a", 1, *reset, is_lasting=False)
    world.run_until(lambda: settled(world))
    assert summary(world)[:3] == ("connection_refused_or_reset", "SEV3", "reattempt")
    assert [rank.pid for rank in task(world).ranks.values()] == pids


def strike_again(world: World) -> Action:
    """Break rank 0 as soon as its generation is complete, before it has an iteration."""
    generation, number = task(world).generation, len(world.machine.state.incidents.all)
    world.kill_rank("gpt-a", 0)
    world.run_until(lambda: len(world.machine.state.incidents.all) > number)
    world.run_until(lambda: newest_incident(world).state is not IncidentState.DETECTED)
    action: Action = newest_incident(world).cause.action  # type: ignore[assignment]
    if action != "none":
        world.run_until(lambda: task(world).generation > generation)
        world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    return action


def test_a_fault_that_follows_its_rank_to_another_node_exonerates_the_first() -> None:
    world = running_world()
    actions: list[str] = [strike_again(world) for _ in range(3)]
    assert actions == ["restart", "reconfigure", "restart"]
    actions.append(strike_again(world))
    assert actions[-1] == "none"
    assert task(world).lifecycle.phase in {TaskPhase.HELD, TaskPhase.STOPPING}
    assert not is_isolated(world), "the fault came back elsewhere"
    world.run(world.now + 20.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD, (
        "no plan starts what the operator is to decide"
    )


def test_a_loss_that_is_not_finite_goes_to_the_operator_at_once() -> None:
    world = running_world()
    world.raise_in_rank("gpt-a", 1, "NonFiniteLossError", "iteration 9: loss or gradient, twice")
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.HELD)
    assert summary(world)[:3] == ("nan_loss", "SEV2", "none")
    assert newest_incident(world).state is IncidentState.HELD


def test_uncordon_brings_a_node_back_once_its_checks_pass() -> None:
    world = running_world()
    remap = NodeFinding(
        probe="gpu", sign="gpu_row_remap", subject="GPU 3", text="a row waits to be remapped"
    )
    world.find("n1", remap)
    world.run_until(lambda: settled(world))
    world.post(UncordonRequested("r1", "op", N1))
    assert world.answers[-1].code == "unfit"
    assert "a row waits to be remapped" in world.answers[-1].message
    world.find("n1", remap.model_copy(update={"is_over": True}))
    world.post(UncordonRequested("r2", "op", N1))
    assert world.answers[-1].code == "ok"
    world.run_until(lambda: any(N1 in each.nodes for each in world.machine.state.tasks.values()))


def test_uncordon_can_be_forced_and_says_what_it_can_not_do() -> None:
    world = running_world()
    world.post(UncordonRequested("r1", "op", NodeId("n9")))
    assert world.answers[-1].code == "unknown"
    world.post(UncordonRequested("r2", "op", N1))
    assert world.answers[-1].code == "nothing"
    world.find("n1", NodeFinding(probe="gpu", sign="gpu_lost", subject="GPU 0", text="GPU is lost"))
    world.post(UncordonRequested("r3", "op", N1))
    assert world.answers[-1].code == "unfit"
    world.post(UncordonRequested("r4", "op", N1, is_forced=True))
    assert world.answers[-1].is_ok
    assert not node(world).service.isolated


@pytest.mark.parametrize("counts_drills", [False, True])
def test_a_drill_is_known_as_one(*, counts_drills: bool) -> None:
    world = running_world()
    world.machine.policy = type(world.machine.policy)(
        is_auto_heal=True, counts_drills=counts_drills
    )
    world.post(DrillRequested("d", "op", "kill-rank", A, 1))
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: settled(world))
    assert newest_incident(world).cause.is_drill
    assert bool(node(world).service.faults) is counts_drills


def test_a_drill_explains_one_incident_and_what_breaks_after_it_is_real() -> None:
    world = running_world()
    world.post(DrillRequested("d", "op", "kill-rank", A, 1))
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: settled(world))
    world.run(8.0)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: len(world.machine.state.incidents.all) == 2 and settled(world))
    first, second = world.machine.state.incidents.all
    assert second.detected_at - first.detected_at < world.machine.policy.drill_window_s
    assert (first.cause.is_drill, second.cause.is_drill) == (True, False)
    assert len(node(world, second.cause.node or "").service.faults) == 1


@pytest.mark.parametrize(("after_s", "is_drill"), [(25.0, True), (35.0, False)])
def test_a_fault_long_after_a_drill_is_real(*, after_s: float, is_drill: bool) -> None:
    world = running_world()
    world.machine.policy = replace(world.machine.policy, drill_window_s=30.0)
    world.post(DrillRequested("d", "op", "slow-rank", A, 1))
    world.run(after_s)
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: settled(world))
    assert newest_incident(world).cause.is_drill is is_drill


def test_what_arrives_late_about_a_closed_incident_belongs_to_it() -> None:
    world = running_world()
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: settled(world))
    num_pieces = len(newest_incident(world).evidence)
    old = world.machine.state.incidents.all[-1].covers[A]
    raised = RankRaised(
        task=A, generation=old, global_rank=2, exception_type="RuntimeError", traceback="",
        message="Connection closed by peer", is_in_collective=True, iteration=1,
    )  # fmt: skip
    world.post(Observed(NodeId("n2"), 99, world.now, raised))
    assert len(world.machine.state.incidents.all) == 1
    assert len(newest_incident(world).evidence) == num_pieces + 1
    assert settled(world)


ECC = ("RuntimeError", "CUDA error: uncorrectable ECC error encountered")


def test_hardware_that_a_rank_names_after_the_incident_was_named_isolates_all_the_same() -> None:
    world = running_world()
    world.hang_rank("gpt-a", 2)
    world.kill_rank("gpt-a", 1)
    incidents = world.machine.state.incidents.all
    world.run_until(lambda: bool(incidents) and incidents[0].state is IncidentState.ACTING)
    world.raise_in_rank("gpt-a", 2, *ECC)
    world.run_until(lambda: bool(node(world, "n2").service.isolated))
    world.run_until(lambda: settled(world))
    assert summary(world)[:3] == ("ecc_error", "SEV1", "reconfigure")


def test_a_storm_of_symptoms_does_not_drown_the_cause() -> None:
    world = running_world()
    generation = task(world).generation

    def say(message: str, *, is_in_collective: bool) -> None:
        raised = RankRaised(
            task=A, generation=generation, global_rank=2, exception_type="RuntimeError",
            message=message, traceback="", is_in_collective=is_in_collective, iteration=1,
        )  # fmt: skip
        world.post(Observed(NodeId("n2"), 1, world.now, raised))

    for _ in range(MAX_SYMPTOMS + 5):
        say("Connection closed by peer", is_in_collective=True)
    say(ECC[1], is_in_collective=False)
    world.run_until(lambda: bool(node(world, "n2").service.isolated))


def test_broken_hardware_keeps_a_node_out_that_was_isolated_on_suspicion() -> None:
    world = running_world()
    assert [strike_again(world) for _ in range(2)] == ["restart", "reconfigure"]
    lost = NodeFinding(probe="gpu", sign="gpu_lost", subject="GPU 0", text="GPU is lost")
    world.find("n1", lost)
    strike_again(world)
    assert "GPU is lost" in node(world).service.isolated


def test_a_fault_that_nobody_is_to_blame_for_gets_new_processes_when_trying_again_fails() -> None:
    world = running_world()
    before = {rank.pid for rank in task(world).ranks.values()}
    for attempt in range(2):
        world.rank("gpt-a", 0)[1].is_faulty = (
            attempt == 1
        )  # the world sees that no other is replaced
        world.fail_collective("gpt-a", 0)
        world.run_until(lambda: bool(world.machine.state.incidents.all))
        world.run_until(lambda: newest_incident(world).state is not IncidentState.DETECTED)
        generation = task(world).generation
        world.run_until(lambda: task(world).generation > generation)  # noqa: B023
        world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    assert newest_incident(world).cause.action == "restart"
    after = {rank.pid for rank in task(world).ranks.values()}
    assert len(after - before) == 1


def test_a_link_that_was_down_for_longer_than_a_look_is_counted_when_it_is_back() -> None:
    world = running_world()
    down = FLAP.model_copy(update={"value": 1.0})
    world.find("n1", down)
    assert not world.machine.state.incidents.all
    world.find("n1", down.model_copy(update={"is_over": True}))
    assert summary(world)[0] == "link_flapping"
    world.run(world.now + 60.0)
    for _ in range(3):
        world.find("n1", FLAP)
        world.run(world.now + 20.0)
    assert len(world.machine.state.incidents.all) == 2, "an isolated node is not isolated again"


def test_an_event_is_not_held_against_a_node_for_ever() -> None:
    world = running_world()
    ecc = NodeFinding(
        probe="gpu", sign="gpu_ecc", subject="GPU 1", text="1 new error", value=1, is_event=True
    )
    world.find("n1", ecc)
    world.run_until(lambda: settled(world))
    assert is_isolated(world)
    world.post(UncordonRequested("r", "op", N1))
    assert world.answers[-1].code == "ok"


def test_a_plan_that_comes_while_a_held_task_still_stops_leaves_it_alone() -> None:
    world = running_world()
    world.raise_in_rank("gpt-a", 1, "NonFiniteLossError", "iteration 9: loss or gradient, twice")
    world.run_until(lambda: task(world).stopping.intent == "hold")
    assert task(world).lifecycle.phase is TaskPhase.STOPPING
    world.find("n4", words(FALLEN))
    world.run(world.now + 20.0)
    assert is_isolated_node(world, "n4")
    assert task(world).lifecycle.phase is TaskPhase.HELD


def is_isolated_node(world: World, name: str) -> bool:
    return bool(node(world, name).service.isolated)


def test_what_was_noticed_before_the_hardware_showed_is_the_same_incident() -> None:
    world = running_world()
    world.fail_collective("gpt-a", 0)
    world.run_until(lambda: bool(world.machine.state.incidents.all))
    assert newest_incident(world).state is IncidentState.DETECTED
    world.find("n2", words(FALLEN))
    assert [each.cause.status for each in world.machine.state.incidents.all] == ["gpu_driver_error"]
    assert len(newest_incident(world).evidence) == 2


def test_a_new_agent_starts_with_a_clean_slate_of_findings() -> None:
    world = running_world()
    full = NodeFinding(probe="disk", sign="disk_full", subject="/data", text="99 % full")
    world.find("n1", full)
    assert node(world).findings.present
    world.kill_agent("n1")
    world.run(world.now + 5.0)
    assert not node(world).findings.present


def test_what_the_probes_find_is_named_beside_a_fault_of_the_node() -> None:
    world = running_world()
    world.find(
        "n1", NodeFinding(probe="disk", sign="disk_full", subject="/d", text="/d: 99 % full")
    )
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: settled(world))
    assert "meanwhile disk: /d: 99 % full" in newest_incident(world).cause.reason


def test_what_is_the_fault_itself_is_not_named_beside_it() -> None:
    world = running_world()
    errors = NodeFinding(probe="gpu", sign="gpu_ecc", subject="GPU 3", text="2 new ECC errors")
    world.find("n1", errors)
    world.run_until(lambda: settled(world))
    assert newest_incident(world).cause.reason.count("2 new ECC errors") == 1


def test_a_spike_is_not_closed_by_a_plan_but_with_its_task() -> None:
    world = World(demo_machine(num_nodes=4), num_iterations=60)
    world.run(20.0)
    world.loss_factor = 8.0
    world.run(30.0)
    spikes = [each for each in world.machine.state.incidents.all if each.cause.status == "nan_loss"]
    assert spikes
    world.lose_node("n4")
    world.run(50.0)
    assert {each.state for each in spikes} == {IncidentState.HELD}
    world.run(200.0)
    assert {each.state for each in spikes} == {IncidentState.RESOLVED}


def held_world() -> World:
    world = running_world()
    for _ in range(world.machine.policy.max_recoveries + 1):
        strike_again(world)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.HELD)
    return world


def test_a_task_that_an_operator_tries_again_has_all_its_recoveries() -> None:
    world = held_world()
    world.post(PlanRequested("r", "op"))
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.STARTING)
    assert task(world).faults.num_recoveries == 0


def test_hardware_isolates_also_where_recoveries_have_come_to_their_end() -> None:
    world = running_world()
    for _ in range(world.machine.policy.max_recoveries):
        strike_again(world)
    _, rank = world.rank("gpt-a", 0)
    name = world.rank("gpt-a", 0)[0].name
    assert not rank.is_parked
    world.raise_in_rank("gpt-a", 0, *ECC)
    world.run_until(lambda: is_isolated_node(world, name))


def test_failed_collectives_are_named_when_the_task_stalls_and_the_parked_rank_is_no_culprit() -> (
    None
):
    world = World(demo_machine(num_nodes=4), num_iterations=10**6)
    world.run(12.0)
    world.fail_collective("gpt-a", 0)
    world.run_until(lambda: settled(world))
    incident = newest_incident(world)
    assert summary(world)[:3] == ("connection_refused_or_reset", "SEV3", "reattempt")
    assert incident.cause.decided_at is not None
    assert (
        incident.cause.decided_at - incident.detected_at
        < world.machine.policy.symptom_patience_s - 1
    )
