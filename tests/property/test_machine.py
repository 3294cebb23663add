"""The machine under random faults: whatever happens, its promises hold and training goes on."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, strategies as st

from controller.core.events import (
    LossDecided,
    PlanApproved,
    PlanRejected,
    PlanRequested,
    UncordonRequested,
)
from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.state.phases import NodeCondition, TaskPhase
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
from tests.fakes.examples import examples
from tests.fakes.settled import assert_settled
from tests.fakes.world import World

pytestmark = pytest.mark.timeout(120)

NODES = ["n1", "n2", "n3", "n4", "n5"]
TASKS = ["gpt-a", "gpt-b"]

RESET = ("ConnectionResetError", "[Errno 104] Connection reset by peer")
CUDA = ("RuntimeError", "CUDA error: unspecified launch failure")
ECC = ("RuntimeError", "CUDA error: uncorrectable ECC error encountered")
XID = NodeFinding(
    probe="kernel log",
    sign="message",
    text="NVRM: Xid (PCI:0000:3b:00): 79, pid=812, GPU has fallen off the bus.",
)
FLAP = NodeFinding(
    probe="network", sign="link_changed", subject="ib0", text="4 changes of the carrier", value=4
)


def machine(
    *,
    is_auto_heal: bool = True,
    limit_s: float = 4.0,
    num_iterations: int | None = None,
    is_sharded: bool = False,
) -> Machine:
    """Return a machine that isolates a GPU for its first CUDA error: few faults are drawn."""
    policy = Policy(is_auto_heal=is_auto_heal, gpu_faults=1, uncorroborated_limit_s=limit_s)
    return demo_machine(
        policy=policy, num_nodes=5, num_iterations=num_iterations, is_sharded=is_sharded
    )


fault = st.one_of(
    st.tuples(st.just("kill"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("raise"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("reset"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("ecc"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("cuda"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("hang"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("xid"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("flap"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("stall"), st.sampled_from(TASKS), st.integers(0, 3)),
    st.tuples(st.just("lose"), st.sampled_from(NODES), st.booleans()),
    st.tuples(st.just("cut"), st.sampled_from(NODES), st.floats(0.1, 9.0)),
    st.tuples(st.just("agent"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("blackout"), st.sampled_from(NODES), st.floats(0.1, 40.0)),
    st.tuples(st.just("restore"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("controller"), st.just(""), st.floats(0.1, 40.0)),
)


def black_out(world: World, for_s: float) -> None:
    """Cut every connection that there is."""
    for node in world.nodes.values():
        if node.is_visible:
            world.cut(node.name, for_s)


def strike(world: World, kind: str, target: str, detail: float) -> None:
    """Do one fault, if there is anything left to hit."""
    actions: dict[str, Callable[[], None]] = {
        "kill": lambda: world.kill_rank(target, int(detail)),
        "raise": lambda: world.raise_in_rank(target, int(detail)),
        "reset": lambda: world.raise_in_rank(target, int(detail), *RESET, is_lasting=False),
        "ecc": lambda: world.raise_in_rank(target, int(detail), *ECC),
        "cuda": lambda: world.raise_in_rank(target, int(detail), *CUDA),
        "xid": lambda: world.find(target, XID),
        "flap": lambda: world.find(target, FLAP),
        "hang": lambda: world.hang_rank(target, int(detail)),
        "stall": lambda: world.lose_message(target, int(detail)),
        "lose": lambda: world.lose_node(target, is_silent=bool(detail)),
        "cut": lambda: world.cut(target, detail),
        "agent": lambda: world.kill_agent(target),
        "blackout": lambda: black_out(world, detail),
        "restore": lambda: world.restore_node(target),
        "controller": lambda: world.kill_controller(detail),
    }
    if kind == "controller":
        if world.has_controller:
            actions[kind]()
        return
    if kind in {"kill", "raise", "reset", "ecc", "cuda", "hang", "stall"}:
        if any(
            (rank.task, rank.global_rank) == (target, int(detail))
            for node in world.nodes.values()
            if node.is_up
            for rank in node.ranks.values()
        ):
            actions[kind]()
        return
    node = world.nodes[NodeId(target)]
    needs_sight = kind in {"cut", "agent", "blackout"}
    if node.is_up is (kind != "restore") and (node.is_visible or not needs_sight):
        actions[kind]()


# A fault seldom hits twice within the tenths of a second that a regroup takes, so many do here.
pause = st.floats(0.0, 6.0) | st.floats(0.0, 0.3)


@examples(100)
@given(
    seed=st.integers(0, 2**16),
    faults=st.lists(st.tuples(pause, fault), max_size=8),
)
# Nothing explains a failed collective twice: whoever told of it is replaced although it is sound.
@example(
    seed=0,
    faults=[*[(0.0, ("kill", "gpt-a", 0))] * 4, (1.0, ("hang", "gpt-a", 0))],
)
# The node that a plan has for a task breaks, and the task can't stay where it is either.
@example(
    seed=0,
    faults=[(1.5, ("lose", "n2", True)), (2.5, ("lose", "n1", False)), (1.0, ("xid", "n4", 0))],
)
# A task parks while all its nodes go out of sight; it is stopped, and they come back with its
# ranks.
@example(
    seed=1258,
    faults=[
        (0.995, ("agent", "n1", 0.0)),
        (0.12857594099058867, ("kill", "gpt-a", 1)),
        (0.19282294913484638, ("hang", "gpt-a", 0)),
        (1e-05, ("kill", "gpt-a", 1)),
        (3.6667286238223813, ("kill", "gpt-a", 1)),
        (0.0, ("cut", "n3", 8.0)),
        (3.9628205945641035, ("raise", "gpt-a", 1)),
        (1.90017801895605, ("blackout", "n1", 4.0)),
    ],
)
# A node is given up, its task stopped, and it comes back with ranks before the others are gone.
@example(
    seed=777892,
    faults=[
        (0.0, ("flap", "n2", 0)),
        (0.14843553455992645, ("blackout", "n4", 39.0)),
        (0.06114314146467792, ("reset", "gpt-a", 0)),
        (0.022571507382811017, ("stall", "gpt-a", 2)),
        (3.0, ("raise", "gpt-a", 0)),
        (2.0, ("xid", "n5", 0)),
        (2.3750444827958193, ("restore", "n3", 0)),
        (0.0, ("hang", "gpt-b", 1)),
        (0.0, ("xid", "n1", 0)),
    ],
)
# A task has parked, and waits to see a node again, when the controller is killed.
@example(
    seed=0,
    faults=[
        *[(0.0, ("kill", "gpt-a", 0))] * 4,
        (0.0, ("cut", "n2", 1.0)),
        (1.0, ("lose", "n3", 0.0)),
        (0.0, ("controller", "", 1.0)),
    ],
)
def test_promises_hold_and_nothing_is_left_undone(
    seed: int, faults: list[tuple[float, tuple[str, str, float]]]
) -> None:
    live_through(World(machine(), seed=seed, num_iterations=10**6), faults)


@examples(20)
@given(
    seed=st.integers(0, 2**16),
    faults=st.lists(st.tuples(pause, fault), max_size=8),
    copies_arrive=st.booleans(),
)
def test_promises_hold_for_sharded_state(
    seed: int, faults: list[tuple[float, tuple[str, str, float]]], *, copies_arrive: bool
) -> None:
    world = World(machine(is_sharded=True), seed=seed, num_iterations=10**6)
    world.copies_arrive = copies_arrive
    live_through(world, faults)


SLOW_TO_END = {TaskPhase.PARKING, TaskPhase.STOPPING}
"""A rank that hangs while its task parks or stops in peace has as long as a checkpoint may take."""


def live_through(world: World, faults: list[tuple[float, tuple[str, str, float]]]) -> None:
    """Strike the cluster, and see that all is well again afterwards."""
    world.run(4.0)
    for pause_s, (kind, target, detail) in faults:
        world.run(world.now + pause_s)
        strike(world, kind, target, detail)
    world.run(world.now + 90.0)
    state = world.machine.state
    if any(task.lifecycle.phase in SLOW_TO_END for task in state.tasks.values()):
        world.run(world.now + 210.0)
    for node in world.nodes.values():
        condition = state.nodes[node.name].contact.condition
        assert (condition is NodeCondition.HEALTHY) == node.is_up or (
            condition is NodeCondition.UNREACHABLE
            and not any(world.nodes[name].is_up for name in world.nodes)
        )
    assert_settled(world)


@examples(40)
@given(
    seed=st.integers(0, 2**16),
    faults=st.lists(st.tuples(pause, fault), max_size=6),
)
# A task is due to have parked in the moment in which its nodes come back into sight.
@example(
    seed=1653,
    faults=[
        (0.0, ("ecc", "gpt-a", 0)),
        (0.25, ("raise", "gpt-a", 0)),
        (0.28125, ("raise", "gpt-a", 1)),
        (0.0, ("blackout", "n1", 39.0)),
        (0.0, ("hang", "gpt-a", 0)),
    ],
)
def test_every_task_ends_whatever_hits_it_on_the_way(
    seed: int, faults: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(machine(num_iterations=9), seed=seed, num_iterations=9)
    world.run(4.0)
    for pause_s, (kind, target, detail) in faults:
        world.run(world.now + pause_s)
        strike(world, kind, target, detail)
    world.run(world.now + 150.0)
    state = world.machine.state
    for task in state.tasks.values():
        if task.lifecycle.phase is TaskPhase.WAITING:
            assert not any(node.is_in_service for node in state.nodes.values())
        elif task.lifecycle.phase is not TaskPhase.FINISHED:
            assert task.lifecycle.phase in {TaskPhase.STOPPED, TaskPhase.HELD}


verdict = st.tuples(st.sampled_from(["lost", "wait"]), st.sampled_from(NODES), st.just(0.0))
decision = verdict | st.tuples(
    st.sampled_from(["approve", "reject", "request"]), st.just("n1"), st.just(0.0)
)


def decide(world: World, kind: str, node: str = "n1") -> None:
    """Do what an operator might."""
    plan = world.machine.state.plans.pending()
    if kind in {"lost", "wait"}:
        world.post(LossDecided("r", "op", NodeId(node), is_lost=kind == "lost"))
    elif kind == "request":
        world.post(PlanRequested("r", "op"))
    elif plan and kind == "approve":
        world.post(PlanApproved("r", "op", plan.name, plan.revision))
    elif plan:
        world.post(PlanRejected("r", "op", plan.name, plan.revision, ""))


def take_step(world: World, kind: str, target: str, detail: float) -> None:
    """Do what an operator might, or one fault."""
    if kind in {"approve", "reject", "request", "lost", "wait"}:
        decide(world, kind, target)
    else:
        strike(world, kind, target, detail)


@examples(60)
@given(
    seed=st.integers(0, 2**16),
    steps=st.lists(st.tuples(pause, fault | decision), max_size=10),
)
def test_an_operator_can_always_get_everything_going_again(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(machine(is_auto_heal=False), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, (kind, target, detail) in steps:
        world.run(world.now + pause_s)
        take_step(world, kind, target, detail)
    world.run(world.now + 90.0)
    if not world.machine.state.plans.pending():
        decide(world, "request")
    decide(world, "approve")
    world.run(world.now + 60.0)
    state = world.machine.state
    for node in state.nodes.values():
        if node.service.isolated or node.service.isolated_gpus:
            world.post(UncordonRequested("r", "op", node.spec.node))
    world.run(world.now + 1.0)
    for kind in ("request", "approve"):
        decide(world, kind)
    world.run(world.now + 60.0)
    if any(node.is_up for node in world.nodes.values()):
        assert not [i for i in world.machine.state.incidents.all if i.is_open]
        assert {t.lifecycle.phase for t in world.machine.state.tasks.values()} <= {
            TaskPhase.RUNNING,
            TaskPhase.STOPPED,
        }


@examples(20)
@given(
    seed=st.integers(0, 2**16),
    steps=st.lists(st.tuples(pause, fault | verdict), max_size=6),
)
def test_replaying_the_journal_rebuilds_the_state(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(machine(is_auto_heal=False, limit_s=2.0), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, (kind, target, detail) in steps:
        world.run(world.now + pause_s)
        if kind in {"lost", "wait"}:
            decide(world, kind, target)
        else:
            strike(world, kind, target, detail)
    replayed = machine(is_auto_heal=False, limit_s=2.0)
    for event in world.events:
        replayed.handle(event)
    assert replayed.state == world.machine.state
