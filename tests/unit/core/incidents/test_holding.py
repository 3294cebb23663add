"""Held tasks: with auto-heal they are tried again, after growing pauses and a few times only."""

import pytest

from controller.core.events import PlanRequested
from controller.core.rules.policy import Policy
from controller.core.state.phases import TaskPhase
from tests.fakes.world import World
from tests.fakes.world_queries import running_world, task

PAUSE_S = 4.0


def held_text(world: World) -> str:
    """Return what operators were told when the task was held last."""
    return [line.text for _, line in world.announcements if line.kind == "held"][-1]


def world_with(*, is_auto_heal: bool = True, held_retries: int = 3) -> World:
    """Return a world in which the first fault holds a task."""
    policy = Policy(
        is_auto_heal=is_auto_heal, held_retries=held_retries, max_recoveries=0, held_pause_s=PAUSE_S
    )
    return running_world(policy=policy)


def hold(world: World) -> float:
    """Break the task, so that it is held; return when that was."""
    world.kill_rank("gpt-a", 0)
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.HELD)
    return world.now


def wait_for_try(world: World) -> float:
    """Wait until the task starts again, and return when that was."""
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.STARTING, limit_s=300.0)
    began = world.now
    world.run_until(lambda: all(rank.is_seen for rank in task(world).ranks.values()))
    return began


def test_it_is_tried_three_times_and_then_it_is_the_operators() -> None:
    world = world_with()
    pauses = []
    for number, pause_s in ((1, 4), (2, 20), (3, 100)):
        held_at = hold(world)
        assert f"it is tried again in {pause_s} s, {number} of 3" in held_text(world)
        pauses.append(wait_for_try(world) - held_at)
    assert pauses == [pytest.approx(pause_s, abs=1.0) for pause_s in (4, 20, 100)]
    hold(world)
    assert "tried again" not in held_text(world)
    world.run(world.now + 600.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD
    world.post(PlanRequested("r1", "op"))
    wait_for_try(world)


def test_progress_gives_it_all_its_tries_again() -> None:
    world = world_with()
    hold(world)
    wait_for_try(world)
    assert task(world).faults.num_tries == 1
    iteration = task(world).progress.iteration
    world.run_until(lambda: task(world).progress.iteration > iteration + 1)
    assert task(world).faults.num_tries == 0
    hold(world)
    assert "it is tried again in 4 s, 1 of 3" in held_text(world)


@pytest.mark.parametrize(("is_auto_heal", "held_retries"), [(False, 3), (True, 0)])
def test_without_auto_heal_or_tries_an_operator_has_to_ask(
    *, is_auto_heal: bool, held_retries: int
) -> None:
    world = world_with(is_auto_heal=is_auto_heal, held_retries=held_retries)
    hold(world)
    assert "tried again" not in held_text(world)
    world.run(world.now + 300.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD


@pytest.mark.parametrize("error", ["NonFiniteLossError", "ProgramError"])
def test_what_only_a_person_can_mend_is_never_tried(error: str) -> None:
    world = world_with()
    if error == "ProgramError":
        world.raise_in_rank("gpt-a", 1, kind=error)
    else:
        world.raise_in_rank("gpt-a", 1, error, "iteration 9: loss or gradient, twice")
    world.run_until(lambda: task(world).lifecycle.phase is TaskPhase.HELD)
    world.run(world.now + 300.0)
    assert task(world).lifecycle.phase is TaskPhase.HELD


def test_an_operator_who_is_faster_makes_the_try_meaningless() -> None:
    world = world_with()
    held_at = hold(world)
    world.post(PlanRequested("r1", "op"))
    began = wait_for_try(world)
    assert began - held_at < 3.0
    generation = task(world).generation
    world.run(held_at + 30.0)
    assert task(world).generation == generation
    assert task(world).lifecycle.phase is TaskPhase.RUNNING


def test_without_room_it_is_stopped_and_starts_when_there_is_some() -> None:
    world = world_with()
    hold(world)
    for name in ("n1", "n2", "n3", "n4"):
        world.cut(name, 15.0)
    world.run(world.now + 10.0)
    assert task(world).lifecycle.phase is TaskPhase.STOPPED
    world.run(world.now + 30.0)
    assert task(world).lifecycle.phase is TaskPhase.RUNNING
