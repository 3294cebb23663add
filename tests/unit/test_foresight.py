"""What the controller works out beside its work: the table of next plans, and explanations."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from controller import foresight as module
from controller.core.lookup import look_ahead
from controller.foresight import Foresight
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
from tests.fakes.world import World


class Watched:
    """A foresight at work beside the core of a modelled cluster."""

    def __init__(self) -> None:
        self.world = World(demo_machine(is_auto_heal=False, num_nodes=5), num_iterations=10**6)
        self.world.run(4.0)
        self.news = asyncio.Event()
        self.foresight = Foresight(self.world.machine, self.news)
        self.changes = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        self.news.set()
        async with asyncio.timeout(30):
            while not condition():
                await self.changes.wait()
                self.changes.clear()


@pytest.fixture
async def watched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(module, "_QUIET_S", 0.01)
    watched = Watched()
    async with asyncio.TaskGroup() as group:
        service = group.create_task(watched.foresight.run(watched.changes.set))
        yield watched
        service.cancel()


async def test_plans_for_what_comes_next_are_there_once_the_cluster_is_quiet(
    watched: Watched,
) -> None:
    machine, foresight = watched.world.machine, watched.foresight
    assert not foresight.prepared.is_current
    await watched.until(lambda: foresight.prepared.is_current)
    assert machine.table.divisions == look_ahead(machine.outlook()).divisions
    watched.world.lose_node("n1")
    watched.world.run_until(lambda: machine.state.pending_plan() is not None)
    assert (foresight.prepared.num_found, foresight.prepared.num_missed) == (1, 0)


async def test_the_table_follows_the_cluster_and_keeps_count(watched: Watched) -> None:
    machine, foresight = watched.world.machine, watched.foresight
    await watched.until(lambda: foresight.prepared.is_current)
    before = machine.table
    watched.world.lose_node("n1")
    watched.world.run_until(lambda: machine.state.pending_plan() is not None)
    await watched.until(lambda: machine.table is not before and foresight.prepared.is_current)
    assert machine.table.divisions == look_ahead(machine.outlook()).divisions
    assert foresight.prepared.num_found == 1


async def test_a_plan_is_explained_after_it_is_made(watched: Watched) -> None:
    watched.world.lose_node("n1")
    watched.world.run_until(lambda: watched.world.machine.state.pending_plan() is not None)
    plan = watched.world.machine.state.plans[0]
    key = plan.name, plan.revision
    await watched.until(lambda: key in watched.foresight.explanations)
    explanation = watched.foresight.explanations[key]
    assert {each.name for each in explanation.terms} == set(plan.changes)
    assert explanation.alternatives
    assert NodeId("n1") in plan.isolated_nodes
