"""Measurements under random faults: they end, and change nothing about the tasks."""

import pytest
from hypothesis import given, strategies as st

from controller.core.events import MeasurementCancelled, MeasurementRequested
from controller.core.state.phases import NodeCondition
from nodeagent.protocol.ids import TaskId
from tests.fakes.examples import examples
from tests.fakes.settled import assert_settled
from tests.fakes.world import World
from tests.property.test_machine import decide, decision, fault, machine, pause, strike

pytestmark = pytest.mark.timeout(120)

RUNS = ["gpt-a@measure", "gpt-b@measure"]
of_measurement = st.one_of(
    st.tuples(st.just("measure"), st.sampled_from(["gpt-a", "gpt-b"]), st.sampled_from([1, 2, 0])),
    st.tuples(st.just("cancel"), st.just(""), st.just(0)),
    st.tuples(st.sampled_from(["kill", "raise", "hang"]), st.sampled_from(RUNS), st.integers(0, 1)),
)
steps = st.lists(st.tuples(pause, of_measurement | of_measurement | fault | decision), max_size=12)


def take(world: World, kind: str, target: str, detail: float) -> None:
    """Do one step; a size of 0 stands for all sizes."""
    newest = world.machine.state.measurements.current
    if kind == "measure":
        sizes = (int(detail),) if detail else ()
        world.post(MeasurementRequested("r", "op", TaskId(target), sizes, 3))
    elif kind == "cancel":
        world.post(MeasurementCancelled("r", "op", newest.name if newest else "M-1"))
    elif kind in {"lost", "wait", "approve", "reject", "request"}:
        decide(world, kind, target)
    else:
        strike(world, kind, target, detail)


def _is_over(world: World) -> bool:
    newest = world.machine.state.measurements.current
    return newest is None or newest.is_over


@examples(40)
@given(seed=st.integers(0, 2**16), steps=steps, is_auto_heal=st.booleans())
def test_a_measurement_ends_and_nothing_of_it_is_left(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]], *, is_auto_heal: bool
) -> None:
    world = World(machine(is_auto_heal=is_auto_heal), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, step in steps:
        world.run(world.now + pause_s)
        take(world, *step)
    world.run(world.now + 60.0)
    world.run_until(lambda: _is_over(world))
    world.run(world.now + 5.0)
    state = world.machine.state
    assert not [
        rank
        for node in world.nodes.values()
        if node.is_up and state.nodes[node.name].contact.condition is NodeCondition.HEALTHY
        for rank in node.ranks.values()
        if rank.task in RUNS
    ]
    if is_auto_heal:
        assert_settled(world)


@examples(15)
@given(seed=st.integers(0, 2**16), steps=steps)
def test_replaying_the_journal_rebuilds_a_measurement(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = World(machine(is_auto_heal=False), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, step in steps:
        world.run(world.now + pause_s)
        take(world, *step)
    replayed = machine(is_auto_heal=False)
    for event in world.events:
        replayed.handle(event)
    assert replayed.state == world.machine.state
