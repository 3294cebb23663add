"""What the watch of heartbeats passes over would have changed nothing, under random faults."""

import copy
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from typing_extensions import override

from controller.core.events import RanksListed
from controller.core.nodes.contact import take_listing
from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_status import RankStatus
from tests.fakes.examples import examples
from tests.fakes.world import World
from tests.property.test_machine import fault, machine, pause, strike

pytestmark = pytest.mark.timeout(120)


class DoubtingWorld(World):
    """Tries each heartbeat that tells the core nothing on a copy of its state."""

    num_tried = num_told = 0

    @override
    def take_beat(self, name: NodeId, statuses: Sequence[RankStatus]) -> None:
        num_events = len(self.events)
        super().take_beat(name, statuses)
        told = [event.body for event in self.events[num_events:]]
        self.num_told += bool(told)
        node = self.machine.state.nodes[name]
        if told or not self.has_controller or node.contact.condition is not NodeCondition.HEALTHY:
            return
        self.num_tried += 1
        state = copy.deepcopy(self.machine.state)
        for task in state.tasks.values():
            for status in statuses:  # iterations have an event of their own
                if task.spec.task == status.task and status.global_rank in task.ranks:
                    task.ranks[status.global_rank].note_iteration(status.iteration)
                    task.newest_iteration = max(task.newest_iteration, status.iteration)
        before = copy.deepcopy(state)
        turn = Turn(state, self.machine.policy, cause=0, at=self.now)
        take_listing(turn, RanksListed(name, tuple(statuses)))
        assert turn.instructions == []
        assert state == before


@examples(12)
@given(seed=st.integers(0, 2**16), faults=st.lists(st.tuples(pause, fault), max_size=8))
def test_a_heartbeat_that_is_passed_over_would_change_nothing(
    seed: int, faults: list[tuple[float, tuple[str, str, float]]]
) -> None:
    world = DoubtingWorld(machine(), seed=seed, num_iterations=10**6)
    world.run(4.0)
    for pause_s, (kind, target, detail) in faults:
        world.run(world.now + pause_s)
        strike(world, kind, target, detail)
    world.run(world.now + 20.0)
    assert world.num_tried > 0


def test_most_heartbeats_are_passed_over() -> None:
    world = DoubtingWorld(machine(), num_iterations=10**6)
    world.run(20.0)
    assert world.num_told < 0.1 * world.num_tried
