"""A cure is verified before an incident ends; a task that got slower is no hang."""

import pytest

from controller.core.rules.pace import Pace
from controller.core.rules.policy import Policy
from controller.core.state.phases import IncidentState
from nodeagent.protocol.ids import TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next

A = TaskId("gpt-a")
POLICY = Policy()


def taught(*durations_s: float) -> Pace:
    pace = Pace()
    pace.begin(None)
    for duration_s in (9.0, 1.0, *durations_s):
        pace.add(duration_s, is_long=False)
    return pace


def test_one_committed_iteration_is_a_recovery_and_the_next_one_a_cure() -> None:
    world = World(demo_machine(num_nodes=4), num_iterations=10**6)
    world.run(9.0)
    world.kill_rank("gpt-a", 1)
    incidents = world.machine.state.incidents.all
    world.run_until(lambda: bool(incidents) and incidents[0].recovery.recovery_s is not None)
    assert incidents[0].state is IncidentState.ACTING
    world.run_until(lambda: incidents[0].state is IncidentState.RESOLVED, limit_s=3.0)


def test_an_iteration_in_its_band_is_needed_not_just_any() -> None:
    pace = taught(1.0, 1.0, 1.0)
    pace.begin(1.0)
    pace.add(3.0, is_long=False)
    assert not pace.is_in_band(POLICY), "the first holds the recovery"
    pace.add(1.2, is_long=False)
    assert not pace.is_in_band(POLICY)
    pace.add(1.05, is_long=False)
    assert pace.is_in_band(POLICY)


def test_a_task_that_stays_slower_is_called_cured_and_slower() -> None:
    world = World(demo_machine(is_auto_heal=False, num_nodes=5), num_iterations=10**6)
    world.run(9.0)
    world.raise_in_rank(
        "gpt-a", 0, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"
    )
    world.kill_rank("gpt-a", 2)
    world.run(40.0)
    approve_next(world)
    world.run(80.0)
    incidents = world.machine.state.incidents.all
    assert [incident.state for incident in incidents] == [IncidentState.RESOLVED], (
        "iterations do not shrink with their micro-batches here: no hang"
    )
    assert world.machine.state.tasks[A].progress.iteration > 60


@pytest.mark.parametrize(
    ("scale", "limit_s"), [(0.25, POLICY.recovering_limit_s), (1.0, 3.0), (2.0, 12.0)]
)
def test_what_fewer_micro_batches_promise_does_not_shorten_the_limit(
    scale: float, limit_s: float
) -> None:
    pace = taught(1.0, 1.0, 1.0)
    pace.begin(scale)
    for _ in range(2):
        pace.add(1.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == limit_s
    for _ in range(3):
        pace.add(0.5, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) <= 3.0


def test_after_a_hang_the_limits_are_longer_until_the_task_has_shown_what_it_does() -> None:
    pace = taught(1.0, 1.0, 1.0)
    pace.note_hang()
    pace.begin(1.0)
    for _ in range(2):
        pace.add(1.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == 6.0
    for _ in range(3):
        pace.add(1.0, is_long=False)
    assert pace.limit_s(POLICY, is_long=False) == 3.0
