"""Orders of operators, reloads of the file and faults, all at random instants."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from controller.core.events import (
    CureApproved,
    NodeOrdered,
    PlanApproved,
    PolicyChanged,
    TaskLimited,
    TaskOrdered,
    TaskSubmitted,
    TimerFired,
    UncordonRequested,
)
from controller.core.machine import Machine
from controller.core.membership.change_words import lines_of
from controller.core.membership.file_changes import WantedCluster, changes
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.upkeep import UpkeepState
from controller.store.replay import replay
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine, wanted_of
from tests.fakes.examples import examples
from tests.fakes.world import World
from tests.property.test_machine import fault, strike

pytestmark = pytest.mark.timeout(180)

NODES = [NodeId(f"n{number}") for number in range(1, 6)]
FILE = wanted_of(demo_machine(num_nodes=5))
A, B, C = TaskId("gpt-a"), TaskId("gpt-b"), TaskId("gpt-c")
THIRD = replace(FILE.tasks[A], task=C, workers=2)

task_order = st.tuples(
    st.sampled_from(["stop", "start", "finish", "archive"]), st.sampled_from([A, B, C]), st.just(0)
)
node_order = st.tuples(
    st.sampled_from(["cordon", "drain", "force drain", "isolate", "repair", "return", "uncordon"]),
    st.sampled_from(NODES),
    st.just(0),
)
limits = st.tuples(
    st.sampled_from(["weight", "min", "max"]), st.sampled_from([A, B]), st.integers(0, 5)
)
other = st.tuples(
    st.sampled_from(["submit", "reload", "rehearse", "approve", "approve"]),
    st.just(""),
    st.integers(0, 7),
)
step = st.one_of(task_order, node_order, node_order, limits, other, fault)
pause = st.floats(0.0, 6.0) | st.floats(0.0, 0.3)


def file_of(number: int) -> WantedCluster:
    """Return one of eight cluster files."""
    tasks = dict(FILE.tasks)
    if number & 1:
        tasks[A] = replace(tasks[A], weight=4.0)
    if number & 2:
        tasks[B] = replace(tasks[B], min_workers=4)
    if number & 4:
        tasks[C] = THIRD
    return replace(FILE, tasks=tasks)


def reload(world: World, number: int) -> None:
    """Take a file in. What is said before is what happens."""
    state, policy = world.machine.state, world.machine.policy
    wanted = replace(file_of(number), policy=policy)
    found = list(changes(wanted, state, policy))
    lines = list(lines_of(found, state, policy))
    assert bool(lines) == bool(found)
    assert all("\n" not in line and line for line in lines)
    for each in found:
        world.post(each)
    assert list(changes(wanted, state, policy)) == []


def carry_out(world: World, kind: str, target: str, detail: float) -> None:
    match kind:
        case "stop" | "start" | "finish" | "archive":
            world.post(TaskOrdered("r", "ann", kind, TaskId(target)))
        case "cordon" | "drain" | "isolate" | "repair" | "return":
            world.post(NodeOrdered("r", "ann", kind, NodeId(target)))
        case "force drain":
            world.post(NodeOrdered("r", "ann", "drain", NodeId(target), is_forced=True))
        case "uncordon":
            world.post(UncordonRequested("r", "ann", NodeId(target)))
        case "weight":
            world.post(TaskLimited("r", "ann", TaskId(target), weight=detail + 0.5))
        case "min":
            world.post(TaskLimited("r", "ann", TaskId(target), min_workers=int(detail) + 1))
        case "max":
            world.post(TaskLimited("r", "ann", TaskId(target), max_workers=int(detail)))
        case "submit":
            world.post(TaskSubmitted("r", "ann", (THIRD,)))
        case "reload":
            reload(world, int(detail))
        case "rehearse":
            policy = replace(world.machine.policy, is_rehearsal=bool(int(detail) & 1))
            world.post(PolicyChanged(policy))
        case "approve":
            approve(world)
        case _:
            strike(world, kind, target, detail)


def approve(world: World) -> None:
    """Approve the plan and each cure that wait."""
    state = world.machine.state
    for incident in state.incidents.open():
        if incident.awaits_consent and incident.rehearsed is not None:
            world.post(CureApproved("r", "ann", incident.name, incident.rehearsed.action))
    if (plan := state.plans.pending()) is not None:
        world.post(PlanApproved("r", "ann", plan.name, plan.revision))


def check_orders(world: World) -> None:
    """What was ordered holds, whatever else has happened."""
    state = world.machine.state
    for task in state.tasks.values():
        if task.orders.stopped is not None:
            assert not task.is_active, "a stopped task does not train"
            assert task.assignment.target is None
        if task.orders.finished is not None:
            assert task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.STOPPING}
    for node in state.nodes.values():
        targets = [each.assignment.target for each in state.tasks.values()]
        is_used = any(target and target.uses(node.spec.node) for target in targets)
        if node.upkeep.state in {UpkeepState.DRAINED, UpkeepState.REPAIR, UpkeepState.RETURNING}:
            assert not is_used, "nothing comes to a node that is out"
        is_there = node.contact.condition is NodeCondition.HEALTHY
        if node.upkeep.state is UpkeepState.RETURNING and is_there:
            assert node.findings.present, "it would be back"


@examples(60)
@given(seed=st.integers(0, 2**16), steps=st.lists(st.tuples(pause, step), max_size=12))
def test_whatever_is_ordered_nothing_raises_and_it_holds(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(demo_machine(num_nodes=5), seed, num_iterations=10**6)
    world.run(2.0)
    for wait_s, (kind, target, detail) in steps:
        world.run(world.now + wait_s)
        if world.has_controller:
            carry_out(world, kind, target, detail)
            check_orders(world)
    world.run(world.now + 60.0)
    check_orders(world)
    for answer in world.answers:
        assert answer.message
    state = world.machine.state
    replayed = Machine()
    replay(replayed, world.events)
    assert replayed.state == state
    # Hours later every timer that was ever set fires once more: none may raise.
    world.now += 4 * 3600.0
    for timer in sorted(world.timers_set, key=repr):
        world.post(TimerFired(timer))
