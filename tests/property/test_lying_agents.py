"""Agents and ranks that report nonsense: the controller handles each message and goes on."""

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

from hypothesis import example, given, strategies as st
from pydantic import BaseModel
from typing_extensions import override

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
from nodeagent.protocol.observations import RankObservation
from nodeagent.protocol.rank_status import RankStatus
from nodeagent.protocol.regroup import HeldCopy, Position
from tests.fakes.clusters import demo_machine
from tests.fakes.examples import examples
from tests.fakes.world import FakeNode, World

NODES = st.sampled_from([NodeId(f"n{number}") for number in range(1, 6)])
NAMES = st.sampled_from([TaskId("gpt-a"), TaskId("gpt-b"), TaskId("unknown")])
GENERATIONS = st.integers(0, 9).map(Generation) | st.integers().map(Generation)
PAUSES = st.sampled_from([0.0, 0.1, 2.0, 10.0])
RANKS = st.integers(0, 3) | st.integers(0, 3) | st.integers()
BOUNDLESS = 10**400
"""Python's whole numbers have no largest one; floats and tables have."""
COUNTS = st.integers(0, 40) | st.integers() | st.sampled_from([BOUNDLESS, -BOUNDLESS, 2**63])
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "task": NAMES,
    "generation": GENERATIONS,
    "global_rank": RANKS,
    "iteration": COUNTS,
    "committed": COUNTS,
    "num_tokens": COUNTS,
    "num_bytes": COUNTS,
    "num_shards": st.sampled_from([1, 2, 0, -1, 2**40]),
    "shard": st.none() | st.tuples(st.integers(0, 3), st.sampled_from([2, 0, 2**40])),
}


def of(kind: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Return messages of a kind: mostly about ranks that there are, all else at random."""
    return st.builds(kind, **{name: LIKELY.get(name, ...) for name in kind.model_fields})


LIKELY["copies"] = st.lists(of(HeldCopy), max_size=4).map(tuple)
corruptions = st.dictionaries(
    st.integers(0, 60),
    st.fixed_dictionaries(
        {},
        optional={
            "position": of(Position),
            "iteration": LIKELY["iteration"],
            "num_tokens": COUNTS,
            "num_recomputed": COUNTS,
            "pid": st.integers(),
            "form_s": st.floats(),
            "state_s": st.floats(),
            "duration_s": st.floats(),
            "message": st.text(),
        },
    ),
)
"""By number of a report that a rank makes: the fields that come out wrong."""


class RankKilled(NamedTuple):
    """A true fault, so that there is a recovery to lie about."""

    task: str
    global_rank: int


class NodeDied(NamedTuple):
    """A true fault that asks for a plan."""

    node: str


BOASTING = Position(
    committed=0,
    has_state=False,
    copies=(HeldCopy(tp_rank=0, pp_rank=0, dp_rank=0, num_shards=2**40, iteration=1),),
)

observations = st.one_of(*(of(kind) for kind in get_args(RankObservation)), of(NodeFinding))
statuses = st.lists(of(RankStatus), max_size=4)
reports = st.one_of(
    st.builds(Observed, NODES, st.integers(1), st.floats(0.0, 1e6), observations),
    st.builds(RankKilled, st.sampled_from(["gpt-a", "gpt-b"]), st.integers(0, 3)),
    st.builds(NodeDied, NODES),
    st.builds(NodeAttached, NODES, st.just(AgentId("a")), st.integers(), statuses.map(tuple)),
    st.builds(StopCarriedOut, NODES, NAMES, GENERATIONS),
    st.builds(HaltCarriedOut, NODES, NAMES, GENERATIONS),
    st.tuples(NODES, of(Heartbeat)),
)


class NotHandledError(Exception):
    """The machine has raised, which ends a controller, and the next one at the same event."""


def always(**fields: object) -> dict[int, dict[str, object]]:
    """Return the corruption of every report that has these fields."""
    return dict.fromkeys(range(200), fields)


class LiedTo(World):
    """A cluster whose reports arrive with wrong fields."""

    corruptions: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    num_reports = 0

    @override
    def observe(self, node: FakeNode, observation: RankObservation | NodeFinding) -> None:
        kind, self.num_reports = type(observation), self.num_reports + 1
        wrong = self.corruptions.get(self.num_reports, {})
        known = {name: value for name, value in wrong.items() if name in kind.model_fields}
        told = kind.model_validate({**dict(observation), **known})
        super().observe(node, told)


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


@examples(200)
@given(
    is_sharded=st.booleans(),
    begins_at=st.sampled_from([0.5, 3.0, 8.0]),
    wrong=corruptions,
    lies=st.lists(st.tuples(PAUSES, reports), min_size=3, max_size=30),
)
# Each rank claims copies of more shards than there can be.
@example(
    is_sharded=True, begins_at=3.0, wrong=always(position=BOASTING),
    lies=[(10.0, RankKilled("gpt-a", 0))],
)  # fmt: skip
# A rate of tokens would be computed from it.
@example(
    is_sharded=False, begins_at=3.0, wrong=always(num_tokens=BOUNDLESS, iteration=BOUNDLESS),
    lies=[(10.0, RankKilled("gpt-a", 0))],
)  # fmt: skip
# No rank knows how long it takes to join, and the next plan counts with that.
@example(
    is_sharded=False, begins_at=3.0,
    wrong=always(form_s=float("nan"), state_s=float("nan")),
    lies=[(10.0, RankKilled("gpt-a", 0)), (1.0, RankKilled("gpt-b", 0)), (10.0, NodeDied("n1"))],
)  # fmt: skip
def test_whatever_is_reported_is_handled(
    *,
    is_sharded: bool,
    begins_at: float,
    wrong: Mapping[int, Mapping[str, Any]],
    lies: list[tuple[float, Any]],
) -> None:
    world = LiedTo(demo_machine(num_nodes=5, is_sharded=is_sharded), num_iterations=10**6)
    world.corruptions = wrong
    with only_the_machine_counts(world):
        world.run(begins_at)
        for pause_s, lie in lies:
            if isinstance(lie, RankKilled):
                world.kill_rank(*lie)
            elif isinstance(lie, NodeDied):
                world.lose_node(lie.node)
            elif isinstance(lie, tuple):
                node, beat = lie
                policy = world.machine.policy
                for change in world.heartbeats.take(node, beat, world.now, world.now, policy):
                    world.post(change)
            else:
                world.post(lie)
            world.run(world.now + pause_s)
