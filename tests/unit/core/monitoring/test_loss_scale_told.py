"""A task whose loss follows its number of replicas says so once, and others are silent."""

from controller.core.instructions import Announce
from profiles.layout import Layout
from tests.fakes.world import World
from tests.fakes.world_queries import approve_next, task, trained
from tests.unit.core.recovery.test_generations import machine_of


def told_after_shrinking(*, is_scaled: bool) -> list[Announce]:
    """Lose one of two replicas, and return what is told about the scale of the loss."""
    world = World(machine_of([Layout(dp=1), Layout(dp=2)], num_nodes=2, workers=2), 1)
    trained(world, 15)
    world.lose_node("n2")
    approve_next(world)
    if is_scaled:
        world.loss_factor = 0.5
    trained(world, 40)
    layout = task(world).layout
    assert layout is not None
    assert layout.dp == 1
    return [one for _, one in world.announcements if one.kind == "loss_scaled"]


def test_a_loss_that_halves_with_the_replicas_is_told_once_with_the_mend() -> None:
    [told] = told_after_shrinking(is_scaled=True)
    assert "when its replicas went from 2 to 1: it seems to be divided by the micro-batches" in (
        told.text
    )
    assert "Report the mean over the global batch, before that division" in told.text
    facts = dict(told.facts)
    assert (facts["replicas_before"], facts["replicas_after"]) == (2, 1)


def test_a_loss_that_stays_is_not_told() -> None:
    assert told_after_shrinking(is_scaled=False) == []
