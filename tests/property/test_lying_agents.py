"""Agents and ranks that report nonsense: the controller handles each message and goes on."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from controller.core.events import (
    Event,
    HaltCarriedOut,
    NodeAttached,
    Observed,
    StopCarriedOut,
)
from controller.core.instructions import Instruction
from nodeagent.protocol.findings import NodeFinding
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.messages import Heartbeat
from nodeagent.protocol.observations import RankHalted, RankObservation
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import Position
from tests.fakes.clusters import demo_machine
from tests.fakes.examples import examples
from tests.fakes.world import World

pytestmark = pytest.mark.timeout(120)

NODES = st.sampled_from([NodeId(f"n{number}") for number in range(1, 6)])
NAMES = st.sampled_from([TaskId("gpt-a"), TaskId("gpt-b"), TaskId("unknown")])
GENERATIONS = st.integers(0, 9).map(Generation) | st.integers().map(Generation)
PAUSES = st.sampled_from([0.0, 0.1, 2.0, 10.0])
RANKS = st.integers(0, 3) | st.integers(0, 3) | st.integers()
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "task": NAMES,
    "generation": GENERATIONS,
    "global_rank": RANKS,
    "iteration": st.integers(0, 40) | st.integers(),
}


def of(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Return messages of a kind: mostly about ranks that there are, all else at random."""
    return st.builds(kind, **{name: LIKELY.get(name, ...) for name in kind.model_fields})


class RankKilled(NamedTuple):
    """A true fault, so that there is a recovery to lie about."""

    task: str
    global_rank: int


observations = st.one_of(*(of(kind) for kind in get_args(RankObservation)), of(NodeFinding))
parked = st.builds(
    RankHalted,
    task=NAMES, generation=GENERATIONS, global_rank=RANKS, position=of(Position),
)  # fmt: skip
statuses = st.lists(of(RankStatus), max_size=4)
reports = st.one_of(
    st.builds(Observed, NODES, st.integers(1), st.floats(0.0, 1e6), observations),
    st.builds(Observed, NODES, st.integers(1), st.floats(0.0, 1e6), parked),
    st.builds(RankKilled, st.sampled_from(["gpt-a", "gpt-b"]), st.integers(0, 3)),
    st.builds(NodeAttached, NODES, st.just(AgentId("a")), st.integers(), statuses.map(tuple)),
    st.builds(StopCarriedOut, NODES, NAMES, GENERATIONS),
    st.builds(HaltCarriedOut, NODES, NAMES, GENERATIONS),
    st.tuples(NODES, of(Heartbeat)),
)


class NotHandledError(Exception):
    """The machine has raised, which ends a controller, and the next one at the same event."""


@contextlib.contextmanager
def only_the_machine_counts(world: World) -> Iterator[None]:
    """Let what the modelled agents expect fail: they were lied about."""
    handle = world.machine.handle

    def handled(event: Event) -> list[Instruction]:
        try:
            return handle(event)
        except Exception as error:
            raise NotHandledError(event) from error

    world.machine.handle = handled  # type: ignore[method-assign]
    with contextlib.suppress(AssertionError, LookupError, StopIteration):
        yield


def from_its_node(told: Observed, world: World) -> Observed:
    """Return an observation as the node of the rank tells it now, if there is such a rank."""
    about = told.observation
    if isinstance(about, NodeFinding):
        return told
    task = world.machine.state.tasks.get(about.task)
    if task is None or about.global_rank not in task.ranks:
        return told
    node = task.ranks[about.global_rank].worker.node
    about = about.model_copy(update={"generation": task.generation})
    return replace(told, node=node, observation=about)


@examples(200)
@given(
    is_sharded=st.booleans(),
    begins_at=st.sampled_from([0.5, 3.0, 8.0]),
    lies=st.lists(
        st.tuples(PAUSES, st.sampled_from([True, True, False]), reports), min_size=3, max_size=30
    ),
)
def test_whatever_is_reported_is_handled(
    *, is_sharded: bool, begins_at: float, lies: list[tuple[float, bool, Any]]
) -> None:
    world = World(demo_machine(num_nodes=5, is_sharded=is_sharded), num_iterations=10**6)
    with only_the_machine_counts(world):
        world.run(begins_at)
        for pause_s, about_now, lie in lies:
            if isinstance(lie, RankKilled):
                world.kill_rank(*lie)
            elif isinstance(lie, tuple):
                node, beat = lie
                policy = world.machine.policy
                for change in world.heartbeats.take(node, beat, world.now, world.now, policy):
                    world.post(change)
            elif isinstance(lie, Observed) and about_now:
                world.post(from_its_node(lie, world))
            else:
                world.post(lie)
            world.run(world.now + pause_s)
