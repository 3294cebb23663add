"""A task without workers says why, and what would make room."""

from dataclasses import replace

import pytest

from controller.core.events import PolicyChanged, TaskAdded
from controller.core.rules.policy import Policy
from controller.core.state.phases import TaskPhase
from nodeagent.protocol.ids import TaskId
from tests.fakes.clusters import demo_machine
from tests.fakes.served_clusters import a_task
from tests.fakes.world import World
from tests.fakes.world_queries import all_run


@pytest.mark.parametrize("is_auto_heal", [True, False])
def test_a_task_that_fits_nowhere_is_queued_with_what_would_make_room(is_auto_heal: bool) -> None:
    world = World(demo_machine(is_auto_heal=True), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    if not is_auto_heal:
        world.post(PolicyChanged(Policy()))
    spec = replace(a_task("big", 4, weight=1e-9), min_workers=4)
    world.post(TaskAdded(spec))
    world.run(world.now + 30.0)
    task = world.machine.state.tasks[TaskId("big")]
    assert task.lifecycle.phase is TaskPhase.STOPPED
    assert task.lifecycle.note == (
        "queued: it needs 4 workers and 0 are free; 4 more make room, of further nodes or of gpt-a (4),"
        " gpt-b (4)"
    )


def test_a_task_that_a_plan_stops_says_what_would_make_room() -> None:
    world = World(demo_machine(is_auto_heal=True), num_iterations=10**6)
    world.run_until(lambda: all_run(world))
    world.post(TaskAdded(replace(a_task("big", 8, weight=1e12), min_workers=4)))
    world.run(world.now + 60.0)
    stopped = [
        task
        for task in world.machine.state.tasks.values()
        if task.lifecycle.phase is TaskPhase.STOPPED
    ]
    assert stopped
    for task in stopped:
        assert task.lifecycle.note.startswith("queued: it needs "), task.lifecycle.note
        assert "big (" in task.lifecycle.note
