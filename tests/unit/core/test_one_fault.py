"""One fault is one incident from every source and at every time; hardware named by a task alone."""

from controller.core.events import DrillRequested, Observed, UncordonRequested
from controller.core.incidents.cures import note_broken_hardware
from controller.core.rules.evidence import Evidence
from controller.core.state.incident import Incident
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId, TaskId
from nodeagent.protocol.observations import RankRaised
from profiles.drills.kernel_texts import KERNEL_MESSAGES, LINK_FLAP
from profiles.faults.status_table import default_statuses
from tests.fakes.world import World
from tests.fakes.world_queries import node, running_world, task

A, B = TaskId("gpt-a"), TaskId("gpt-b")
FLAP = NodeFinding(
    probe="network", sign="link_changed", subject="ens3", text="4 changes of the carrier", value=4
)
FLAP_WORDS = NodeFinding(probe="kernel log", sign="message", text=f"{LINK_FLAP}\n{LINK_FLAP}")
RESET = ("ConnectionResetError", "[Errno 104] Connection reset by peer")
ECC = ("RuntimeError", "CUDA error: uncorrectable ECC error encountered")


def incidents(world: World) -> list[Incident]:
    return world.machine.state.incidents.all


def node_of_rank(world: World, number: int) -> str:
    return task(world).ranks[number].worker.node


def isolated(world: World) -> list[str]:
    return [name for name, each in world.machine.state.nodes.items() if each.service.isolated]


def settle(world: World) -> None:
    """Let the incidents, at least one, be resolved."""
    world.run_until(
        lambda: (
            bool(incidents(world))
            and all(each.state is IncidentState.RESOLVED for each in incidents(world))
        )
    )


# --- the network -----------------------------------------------------------------------------


def test_a_flap_that_kernel_and_links_tell_half_a_minute_apart_is_one() -> None:
    world = running_world()
    world.find("n1", FLAP_WORDS)
    world.run(world.now + 30.0)
    world.find("n1", FLAP)
    settle(world)
    [incident] = incidents(world)
    assert (incident.cause.status, len(incident.evidence)) == ("link_flapping", 2)
    assert isolated(world) == []


def test_a_link_that_flaps_on_and_on_isolates_its_node_all_the_same() -> None:
    world = running_world()
    for _ in range(5):
        world.find("n1", FLAP)
        world.run(world.now + 10.0)
    assert isolated(world) == ["n1"]
    assert "2 network faults on n1" in node(world, "n1").service.isolated


def test_a_rank_that_suffers_from_the_flap_counts_as_the_same_fault() -> None:
    world = running_world()
    name = node_of_rank(world, 1)
    world.find(name, FLAP)
    world.run(world.now + 30.0)
    failed_at = world.now
    world.raise_in_rank("gpt-a", 1, *RESET, is_lasting=False)
    world.run_until(lambda: task(world).generation == 2)
    settle(world)
    flapped, suffered = incidents(world)
    assert (flapped.cause.action, suffered.cause.action) == ("none", "reattempt")
    assert flapped.evidence[0] in suffered.evidence
    assert suffered.cause.fault_at >= failed_at
    assert isolated(world) == []
    assert len(node(world, name).service.faults) == 2


def test_a_link_that_is_back_after_a_minute_was_away_once() -> None:
    world = running_world()
    down = FLAP.model_copy(update={"value": 1.0})
    kernel = "mlx5_core 0000:5e:00.0 ens3f0np0: Link {}"
    words = FLAP_WORDS.model_copy(update={"text": kernel.format("down")})
    world.find("n1", words)
    world.run(world.now + 25.0)
    world.find("n1", down)
    world.run(world.now + 5.0)
    world.find("n1", words.model_copy(update={"text": kernel.format("up")}))
    world.run(world.now + 25.0)
    world.find("n1", down.model_copy(update={"is_over": True}))
    assert len(incidents(world)) == 1
    assert isolated(world) == []


def test_a_flap_right_after_another_fault_of_the_node_counts_too() -> None:
    world = running_world()
    name = node_of_rank(world, 1)
    world.find(name, FLAP)
    world.run(world.now + 100.0)
    world.raise_in_rank("gpt-a", 1, "RuntimeError", "CUDA error: unspecified launch failure")
    world.run(world.now + 3.0)
    world.find(name, FLAP)
    assert isolated(world) == [name]


def test_a_flap_that_is_found_after_the_rank_that_suffered_belongs_to_its_incident() -> None:
    world = running_world()
    name = node_of_rank(world, 1)
    world.raise_in_rank("gpt-a", 1, *RESET, is_lasting=False)
    world.run_until(lambda: task(world).generation == 2)
    world.run(world.now + 20.0)
    world.find(name, FLAP)
    assert len(incidents(world)) == 1
    assert isolated(world) == []
    world.run(world.now + 60.0)
    world.find(name, FLAP)
    assert isolated(world) == [name], "the second fault within five minutes"


def test_a_node_that_dies_after_a_flap_elsewhere_is_another_fault() -> None:
    world = running_world()
    world.find(node_of_rank(world, 0), FLAP)
    world.run(world.now + 5.0)
    world.lose_node("n2")
    world.run_until(lambda: len(incidents(world)) == 2)
    settle(world)
    assert [each.cause.status for each in incidents(world)] == ["link_flapping", "lost_connection"]


def test_a_second_drill_that_belongs_to_the_first_ones_fault_explains_nothing_real() -> None:
    world = running_world()
    for request in ("d1", "d2"):
        world.post(DrillRequested(request, "op", "link-flap", node=NodeId("n1")))
        world.find("n1", FLAP_WORDS)
        world.run(world.now + 20.0)
    [drilled] = incidents(world)
    assert drilled.cause.is_drill
    world.kill_rank("gpt-a", 1)
    world.run_until(lambda: len(incidents(world)) == 2)
    settle(world)
    assert incidents(world)[1].cause.node == "n1"
    assert not incidents(world)[1].cause.is_drill


# --- what shows late -------------------------------------------------------------------------


def test_hardware_that_a_probe_finds_after_the_cure_makes_the_closed_incident_worse() -> None:
    world = running_world()
    name = node_of_rank(world, 1)
    world.raise_in_rank("gpt-a", 1, "RuntimeError", "CUDA error: unspecified launch failure")
    world.run_until(lambda: bool(incidents(world)))
    settle(world)
    first_s = incidents(world)[0].recovery.recovery_s
    assert first_s is not None
    world.run(incidents(world)[0].detected_at + 8.0)
    ecc = NodeFinding(probe="gpu", sign="gpu_ecc", subject="GPU 1", text="1 new", is_event=True)
    world.find(name, ecc)
    [incident] = incidents(world)
    assert incident.is_open
    settle(world)
    assert (incident.cause.status, incident.cause.action) == ("ecc_error", "reconfigure")
    assert isolated(world) == [name]
    assert incident.recovery.recovery_s is not None
    assert incident.recovery.recovery_s < 8.0, "it is timed from what was found late"
    assert incident.cause.fault_at > incident.detected_at


def test_what_the_kernel_says_a_moment_before_the_rank_is_the_same_fault() -> None:
    world = running_world()
    name = node_of_rank(world, 1)
    xid = KERNEL_MESSAGES["xid-31"].text.format(pid=7, name="python")
    world.find(name, NodeFinding(probe="kernel log", sign="message", text=xid))
    assert not incidents(world), "no rank has suffered yet"
    world.run(world.now + 0.4)
    illegal = "CUDA error: an illegal memory access was encountered"
    world.raise_in_rank("gpt-a", 1, "RuntimeError", illegal)
    settle(world)
    [incident] = incidents(world)
    assert (incident.cause.status, incident.cause.global_rank) == ("illegal_memory_access", 1)
    assert incident.cause.method == "exception propagation"
    assert any(each.kind == "finding" for each in incident.evidence)
    assert not node(world, name).unclaimed.evidence


# --- hardware by a task's word alone ---------------------------------------------------------


def blame_twice(world: World, *, finds_first: bool = False) -> str:
    """A rank names hardware on its node, and after the move, before an iteration, on another."""
    name, generation = node_of_rank(world, 0), task(world).generation
    world.raise_in_rank("gpt-a", 0, *ECC)
    world.run_until(lambda: isolated(world) == [name])
    if finds_first:
        world.find(name, NodeFinding(probe="gpu", sign="gpu_lost", subject="GPU 0", text="is lost"))
    world.run_until(lambda: task(world).generation > generation)
    world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    assert node_of_rank(world, 0) != name
    world.raise_in_rank("gpt-a", 0, *ECC)
    return name


def test_a_task_that_names_hardware_wherever_it_runs_is_held_and_costs_nobody_a_node() -> None:
    world = running_world()
    generation = task(world, B).generation
    blame_twice(world)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.HELD)
    world.run(world.now + 30.0)
    assert isolated(world) == []
    assert task(world, B).lifecycle.phase is TaskPhase.RUNNING
    assert task(world, B).generation <= generation + 2
    held = incidents(world)[-1]
    assert (held.cause.status, held.cause.action, held.state) == (
        "ecc_error",
        "none",
        IncidentState.HELD,
    )
    [told] = [line for _, line in world.announcements if line.kind == "held"]
    assert "broken hardware on n1 and then on n2" in told.text


def test_what_a_probe_has_found_is_no_matter_of_the_program() -> None:
    world = running_world()
    first = blame_twice(world, finds_first=True)
    world.run_until(lambda: len(isolated(world)) == 2)
    assert first in isolated(world)
    assert task(world).lifecycle.phase is not TaskPhase.HELD


def test_what_two_tasks_say_of_a_node_is_no_matter_of_one_program() -> None:
    world = running_world()
    first = node_of_rank(world, 0)
    world.raise_in_rank("gpt-a", 0, *ECC)
    world.run_until(lambda: task(world).faults.accused == [NodeId(first)])
    said = Evidence(
        "exception",
        world.now,
        world.now,
        NodeId(first),
        B,
        0,
        "too",
        default_statuses()["ecc_error"],
    )
    turn = Turn(world.machine.state, world.machine.policy, 0, world.now)
    note_broken_hardware(turn, node(world, first), said)
    assert task(world).faults.accused == []


def test_a_third_rank_of_a_task_that_is_held_for_its_word_isolates_nobody_either() -> None:
    world = running_world()
    blame_twice(world)
    world.run_until(lambda: task(world).stopping.intent == "hold")
    generation = task(world).generation
    raised = RankRaised(
        task=A, generation=generation, global_rank=1, exception_type=ECC[0], message=ECC[1],
        traceback="", is_in_collective=False, iteration=1,
    )  # fmt: skip
    world.post(Observed(NodeId("n3"), 99, world.now, raised))
    world.run(world.now + 10.0)
    assert isolated(world) == []


def test_a_node_that_an_operator_brings_back_is_not_held_against_the_task() -> None:
    world = running_world()
    first = node_of_rank(world, 0)
    world.raise_in_rank("gpt-a", 0, *ECC)
    world.run_until(lambda: isolated(world) == [first])
    world.post(UncordonRequested("r", "op", NodeId(first)))
    assert task(world).faults.accused == []


def test_an_iteration_between_two_words_for_hardware_makes_them_two_faults() -> None:
    world = running_world()
    for number in (1, 2):
        world.raise_in_rank("gpt-a", 0, *ECC)
        world.run_until(lambda number=number: len(isolated(world)) == number)  # type: ignore[misc]
        settle(world)
    assert [each.cause.status for each in incidents(world)] == ["ecc_error", "ecc_error"]
