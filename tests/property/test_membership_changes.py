"""Nodes and tasks that come, change and go at random instants, beside faults."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from controller.core.events import (
    NodeAdded,
    NodeRemoved,
    PolicyChanged,
    TaskAdded,
    TaskChanged,
    TaskRemoved,
    TimerFired,
)
from controller.core.machine import Machine
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.phases import TaskPhase
from controller.store.replay import replay
from nodeagent.protocol.ids import NodeId, TaskId
from tests.fakes.clusters import demo_machine, wanted_of
from tests.fakes.examples import examples
from tests.fakes.world import World
from tests.property.test_machine import fault, strike

pytestmark = pytest.mark.timeout(120)

NODES = [NodeId(f"n{number}") for number in range(1, 8)]
SPECS = dict(wanted_of(demo_machine()).tasks)
THIRD = replace(SPECS[TaskId("gpt-a")], task=TaskId("gpt-c"), workers=2)
TASKS: dict[TaskId, TaskSpec] = {**SPECS, THIRD.task: THIRD}

change = st.one_of(
    st.tuples(st.just("add node"), st.sampled_from(NODES), st.integers(2, 3)),
    st.tuples(st.just("remove node"), st.sampled_from(NODES), st.just(0)),
    st.tuples(st.just("add task"), st.sampled_from(sorted(TASKS)), st.just(0)),
    st.tuples(st.just("remove task"), st.sampled_from(sorted(TASKS)), st.just(0)),
    st.tuples(st.just("weigh"), st.sampled_from(sorted(TASKS)), st.integers(1, 9)),
    st.tuples(st.just("program"), st.sampled_from(sorted(TASKS)), st.integers(1, 9)),
    st.tuples(st.just("heal"), st.just(""), st.integers(0, 1)),
)
step = st.one_of(change, change, fault)
pause = st.floats(0.0, 6.0) | st.floats(0.0, 0.3)


def carry_out(world: World, kind: str, target: str, detail: float) -> None:
    """Change something, if the present state allows it."""
    state = world.machine.state
    node, task = state.nodes.get(NodeId(target)), state.tasks.get(TaskId(target))
    match kind:
        case "add node":
            size = max(int(detail), node.spec.num_workers if node else 0)
            world.post(NodeAdded(NodeSpec(NodeId(target), f"h:{detail}", size)))
        case "remove node":
            world.post(NodeRemoved(NodeId(target)))
        case "add task":
            world.post(TaskAdded(TASKS[TaskId(target)]))
        case "remove task":
            world.post(TaskRemoved(TaskId(target)))
        case "weigh" | "program":
            if task is not None and not task.membership.is_removed:
                other = {"weight": detail} if kind == "weigh" else {"program": str(detail)}
                world.post(TaskChanged(replace(task.spec, **other)))
        case "heal":
            world.post(PolicyChanged(replace(world.machine.policy, is_auto_heal=bool(detail))))
        case _:
            if NodeId(target) in world.nodes or kind in {"controller", "blackout"} or task:
                strike(world, kind, target, detail)


@examples(60)
@given(seed=st.integers(0, 2**16), steps=st.lists(st.tuples(pause, step), max_size=9))
def test_whatever_comes_and_goes_nothing_raises_and_the_journal_says_the_same(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(demo_machine(num_nodes=5), seed, num_iterations=10**6)
    world.run(2.0)
    for wait_s, (kind, target, detail) in steps:
        world.run(world.now + wait_s)
        if world.has_controller:
            carry_out(world, kind, target, detail)
    world.run(world.now + 60.0)
    state = world.machine.state
    replayed = Machine()
    replay(replayed, world.events)
    assert replayed.state == state
    assert replayed.policy == world.machine.policy
    # Hours later every timer that was ever set fires once more: none may raise.
    world.now += 4 * 3600.0
    for timer in sorted(world.timers_set, key=repr):
        world.post(TimerFired(timer))
    for task in state.tasks.values():
        if task.membership.is_removed:
            assert task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.STOPPING}
