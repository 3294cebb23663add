"""The view that is kept up to date is the view that is made anew, after every event."""

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

from controller.api.projection import Frame, project
from controller.api.view_keeper import ViewKeeper
from controller.core.events import Event, EventBody
from controller.core.instructions import Instruction
from controller.core.state.cluster import ClusterState
from tests.fakes.examples import examples
from tests.fakes.world import World
from tests.property.test_machine import decision, fault, machine, pause, take_step

pytestmark = pytest.mark.timeout(120)


class ViewedWorld(World):
    """Compares both views after every event."""

    keeper: ViewKeeper | None = None
    viewed: ClusterState | None = None

    @override
    def post(self, body: EventBody) -> None:
        if self.viewed is not self.machine.state:
            self.viewed = self.machine.state
            self.keeper = ViewKeeper(self.viewed)
        super().post(body)

    @override
    def note_handled(self, event: Event, instructions: list[Instruction]) -> None:
        assert self.keeper is not None
        self.keeper.note(event, instructions)
        frame = Frame("c", 0.0, is_auto_heal=True, pulses=self.heartbeats.pulses)
        kept = self.keeper.view(self.now, frame)
        assert kept == project(self.machine.state, self.now, frame), event


steps = st.lists(st.tuples(pause, fault | decision), max_size=8)


@examples(12)
@given(seed=st.integers(0, 2**16), steps=steps, is_auto_heal=st.booleans())
def test_the_kept_view_is_the_one_that_is_made_anew(
    seed: int, steps: list[tuple[float, tuple[str, str, float]]], *, is_auto_heal: bool
) -> None:
    world = ViewedWorld(machine(is_auto_heal=is_auto_heal), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, (kind, target, detail) in steps:
        world.run(world.now + pause_s)
        take_step(world, kind, target, detail)
    world.run(world.now + 20.0)
