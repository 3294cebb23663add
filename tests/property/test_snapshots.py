"""A snapshot at any event, with the events after it, gives what all events give."""

import json

import pytest
from hypothesis import given, strategies as st

from controller.core.events import MeasurementRequested
from controller.core.machine import Machine
from controller.store.replay import ReplayedRun, replay
from controller.store.snapshots import saved_state
from controller.store.state_codec import decode_state, encode_state
from nodeagent.protocol.ids import TaskId
from tests.fakes.examples import examples
from tests.fakes.world import World
from tests.property.test_machine import decision, fault, machine, pause, take_step

pytestmark = pytest.mark.timeout(120)

steps = st.lists(st.tuples(pause, fault | decision), max_size=8)


@examples(15)
@given(
    seed=st.integers(0, 2**16),
    steps=steps,
    is_auto_heal=st.booleans(),
    is_sharded=st.booleans(),
    fractions=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_a_snapshot_with_its_tail_gives_the_state_of_the_whole_journal(
    seed: int,
    steps: list[tuple[float, tuple[str, str, float]]],
    fractions: list[float],
    *,
    is_auto_heal: bool,
    is_sharded: bool,
) -> None:
    made_of = machine(is_auto_heal=is_auto_heal, is_sharded=is_sharded)
    world = World(made_of, seed=seed, num_iterations=10**6)
    world.run(4.0)
    world.post(MeasurementRequested("r", "op", TaskId("gpt-b"), (1,), 3))
    for pause_s, (kind, target, detail) in steps:
        world.run(world.now + pause_s)
        take_step(world, kind, target, detail)
    world.run(world.now + 15.0)
    cuts = sorted({int(fraction * len(world.events)) for fraction in fractions})
    whole, run, done = Machine(), ReplayedRun(), 0
    for cut in cuts:
        run, done = replay(whole, world.events[done:cut], run), cut
        saved = decode_state(json.loads(json.dumps(encode_state(saved_state(whole, run)))))
        restored = saved.machine()
        assert restored.state == whole.state
        replayed = replay(restored, world.events[cut:], saved.run)
        assert restored.state == world.machine.state
        assert replayed.num_events == len(world.events)
