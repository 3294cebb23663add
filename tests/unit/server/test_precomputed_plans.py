"""What the controller works out beside its work: the table of next plans, and explanations."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from controller.core.rules.planner.lookup import LookupTable, Outlook, look_ahead
from controller.server.precomputed_plans import PrecomputedPlans
from nodeagent.protocol.ids import NodeId
from tests.fakes.clusters import demo_machine
from tests.fakes.polling import PolledT
from tests.fakes.world import World


class Watched:
    """A foresight at work beside the core of a modelled cluster."""

    def __init__(self) -> None:
        self.world = World(demo_machine(is_auto_heal=False, num_nodes=5), num_iterations=10**6)
        self.world.run(4.0)
        self.news = asyncio.Event()
        self.notes: list[str] = []
        self.precomputed_plans = PrecomputedPlans(
            self.world.machine, self.news, self._note, quiet_s=0.01
        )
        self.changes = asyncio.Event()

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.changes.set()

    async def until(self, condition: Callable[[], PolledT | None]) -> PolledT:
        """Wait until ``condition`` returns a true value, and return that value."""
        self.news.set()
        async with asyncio.timeout(30):
            while not (found := condition()):
                await self.changes.wait()
                self.changes.clear()
            return found


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    async with asyncio.TaskGroup() as group:
        service = group.create_task(watched.precomputed_plans.run(watched.changes.set))
        yield watched
        service.cancel()


async def test_plans_for_what_comes_next_are_there_once_the_cluster_is_quiet(
    watched: Watched,
) -> None:
    machine, precomputed_plans = watched.world.machine, watched.precomputed_plans
    assert not precomputed_plans.prepared.is_current
    await watched.until(lambda: precomputed_plans.prepared.is_current)
    assert machine.table.divisions == look_ahead(machine.outlook()).divisions
    watched.world.lose_node("n1")
    watched.world.run_until(machine.state.plans.pending)
    assert (precomputed_plans.prepared.num_found, precomputed_plans.prepared.num_missed) == (1, 0)


async def test_the_table_follows_the_cluster_and_keeps_count(watched: Watched) -> None:
    machine, precomputed_plans = watched.world.machine, watched.precomputed_plans
    await watched.until(lambda: precomputed_plans.prepared.is_current)
    before = machine.table
    watched.world.lose_node("n1")
    watched.world.run_until(machine.state.plans.pending)
    await watched.until(
        lambda: machine.table is not before and precomputed_plans.prepared.is_current
    )
    assert machine.table.divisions == look_ahead(machine.outlook()).divisions
    assert precomputed_plans.prepared.num_found == 1


async def test_a_plan_is_explained_after_it_is_made(watched: Watched) -> None:
    watched.world.lose_node("n1")
    plan = watched.world.run_until(watched.world.machine.state.plans.pending)
    key = plan.name, plan.revision
    explanation = await watched.until(lambda: watched.precomputed_plans.explanations.get(key))
    assert {each.name for each in explanation.terms} == set(plan.changes)
    assert explanation.alternatives
    assert NodeId("n1") in plan.isolated_nodes


async def test_a_table_is_not_current_once_the_cluster_has_changed(watched: Watched) -> None:
    precomputed_plans = watched.precomputed_plans
    await watched.until(lambda: precomputed_plans.prepared.is_current)
    watched.world.lose_node("n1")
    watched.world.run_until(watched.world.machine.state.plans.pending)
    await watched.until(lambda: not precomputed_plans.prepared.is_current)


async def test_a_plan_is_explained_while_a_table_is_being_built(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def build(outlook: Outlook, after_step: Callable[[], None]) -> LookupTable:
        has_begun.set()
        may_end.wait(30)
        return look_ahead(outlook, after_step)

    monkeypatch.setattr("controller.server.precomputed_plans.look_ahead", build)
    watched.news.set()
    assert await asyncio.to_thread(has_begun.wait, 30)
    watched.world.lose_node("n1")
    watched.world.run_until(watched.world.machine.state.plans.pending)
    await watched.until(lambda: bool(watched.precomputed_plans.explanations))
    assert not watched.precomputed_plans.prepared.is_current
    may_end.set()


async def test_a_fault_of_ours_is_noted_and_ends_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("for a test")

    monkeypatch.setattr("controller.server.precomputed_plans.look_ahead", fail)
    monkeypatch.setattr("controller.server.precomputed_plans.explain", fail)
    watched.world.lose_node("n1")
    watched.world.run_until(watched.world.machine.state.plans.pending)
    await watched.until(lambda: len(watched.notes) == 2)
    assert {note.partition(",")[0] for note in watched.notes} == {
        "P-1 can't be explained",
        "plans for next events can't be computed",
    }
    assert all("MemoryError: for a test" in note for note in watched.notes)
