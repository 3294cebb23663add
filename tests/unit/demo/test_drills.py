"""Drills: what the command line understands of them, and how each is carried out."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.core.instructions import CarryOutDrill
from controller.core.operators import NODE_DRILLS, RANK_DRILLS
from controller.demo.drills import (
    DRILLS,
    DrillError,
    LocalDrillGround,
    ScheduledDrill,
    parse_drill,
)
from nodeagent.protocol.ids import Generation, NodeId, TaskId

A, B = TaskId("gpt-a"), TaskId("gpt-b")
TASKS = {A: 4, B: 2}
NODES = [NodeId("n1"), NodeId("n2")]


def parse(text: str, num_iterations: int | None = 30) -> ScheduledDrill:
    return parse_drill(text, tasks=TASKS, nodes=NODES, num_iterations=num_iterations)


def refusal(text: str, num_iterations: int | None = 30) -> str:
    with pytest.raises(DrillError) as caught:
        parse(text, num_iterations)
    words = str(caught.value)
    assert "\n" not in words
    assert words.startswith(f"--drill {text}: ")
    return words.removeprefix(f"--drill {text}: ")


def test_the_drills_on_offer_are_those_that_the_core_knows() -> None:
    kinds_by_target = {
        target: {d.kind for d in DRILLS if d.target == target} for target in ("rank", "node")
    }
    assert kinds_by_target == {"rank": RANK_DRILLS, "node": NODE_DRILLS}
    assert all(drill.title and drill.expectation for drill in DRILLS)


@pytest.mark.parametrize(
    ("text", "drill"),
    [
        ("kill-rank@12", ScheduledDrill("kill-rank", 12, A)),
        ("kill-rank@12:", ScheduledDrill("kill-rank", 12, A)),
        ("exception@1:task=gpt-b,rank=1", ScheduledDrill("exception", 1, B, global_rank=1)),
        ("kill-rank@29:rank=3", ScheduledDrill("kill-rank", 29, A, global_rank=3)),
        ("lose-node@5:node=n2", ScheduledDrill("lose-node", 5, A, node=NODES[1])),
        ("kill-ssh@5:node=n1,task=gpt-b", ScheduledDrill("kill-ssh", 5, B, node=NODES[0])),
        ("kill-agent@5", ScheduledDrill("kill-agent", 5, A)),
    ],
)
def test_a_drill_is_read_and_the_first_task_is_the_default(
    text: str, drill: ScheduledDrill
) -> None:
    assert parse(text) == drill


def test_a_run_without_an_end_takes_any_iteration() -> None:
    assert parse("kill-rank@5000", num_iterations=None).iteration == 5000


def test_a_drill_knows_what_it_breaks() -> None:
    assert [parse(f"{drill.kind}@1").target for drill in DRILLS] == [d.target for d in DRILLS]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown drill ''; known: kill-rank, exception, lose-node, kill-agent, kill-ssh"),
        ("earthquake@3", "unknown drill 'earthquake'; known: "),
        ("kill-rank", "write kill-rank@ITERATION with an iteration of 1 or more"),
        ("kill-rank@", "write kill-rank@ITERATION"),
        ("kill-rank@0", "with an iteration of 1 or more"),
        ("kill-rank@-1", "with an iteration of 1 or more"),
        ("kill-rank@1.5", "with an iteration of 1 or more"),
        ("kill-rank@soon", "with an iteration of 1 or more"),
        ("kill-rank@30", "must come before the last iteration, 30"),
        ("kill-rank@3:task=gpt-c", "no task 'gpt-c'; there are gpt-a, gpt-b"),
        ("kill-rank@3:rank=4", "rank must be 0 to 3 for gpt-a"),
        ("kill-rank@3:task=gpt-b,rank=2", "rank must be 0 to 1 for gpt-b"),
        ("kill-rank@3:rank=-1", "rank must be 0 to 3"),
        ("kill-rank@3:rank=one", "rank must be 0 to 3"),
        ("lose-node@3:node=n9", "no node 'n9'; there are n1, n2"),
        ("kill-rank@3:node=n1", "'node=n1' is not one of task=..., rank=..."),
        ("lose-node@3:rank=1", "'rank=1' is not one of task=..., node=..."),
        ("kill-rank@3:rank", "'rank' is not one of"),
        ("kill-rank@3:rank=", "'rank=' is not one of"),
        ("kill-rank@3:rank=1,rank=2", "rank is given twice"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_allowed(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_number_too_long_to_be_one_is_a_mistake_like_any_other() -> None:
    digits = "9" * 5000  # more than Python converts
    assert "with an iteration of 1 or more" in refusal(f"kill-rank@{digits}")
    assert "rank must be 0 to 3" in refusal(f"kill-rank@3:rank={digits}")


class Breaker:
    """Notes what was broken; ranks and nodes alike."""

    def __init__(self) -> None:
        self.broken: list[tuple[object, ...]] = []
        self.said: list[str] = []
        self.news = asyncio.Event()

    def inject(
        self, node: NodeId, task: TaskId, generation: Generation, global_rank: int, *, kill: bool
    ) -> None:
        self._note("kill" if kill else "raise", node, task, generation, global_rank)

    async def lose_node(self, node: NodeId) -> None:
        self._note("lose", node)

    async def cut_connections(self, node: NodeId) -> None:
        self._note("cut", node)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.news.set()

    def _note(self, *what: object) -> None:
        self.broken.append(what)
        self.news.set()

    @asynccontextmanager
    async def ground(self, agent_pid: int | None = None) -> AsyncIterator[LocalDrillGround]:
        ground = LocalDrillGround(self, self, lambda _node: agent_pid, self.say)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(ground.run())
            yield ground
            task.cancel()


def order(kind: str, *, has_rank: bool = False) -> CarryOutDrill:
    if has_rank:
        return CarryOutDrill(1, kind, NODES[0], A, Generation(2), 3)
    return CarryOutDrill(1, kind, NODES[0])


@pytest.mark.parametrize(
    ("drill", "what"),
    [
        (order("kill-rank", has_rank=True), ("kill", "n1", "gpt-a", 2, 3)),
        (order("exception", has_rank=True), ("raise", "n1", "gpt-a", 2, 3)),
        (order("lose-node"), ("lose", "n1")),
        (order("kill-ssh"), ("cut", "n1")),
    ],
)
async def test_a_drill_breaks_the_named_thing(
    drill: CarryOutDrill, what: tuple[object, ...]
) -> None:
    breaker = Breaker()
    async with breaker.ground() as ground:
        ground.carry_out(drill)
        await breaker.news.wait()
    assert breaker.broken == [what]
    assert not breaker.said


async def test_an_agent_is_killed_by_a_signal_that_it_can_not_catch() -> None:
    breaker = Breaker()
    with subprocess.Popen(["sleep", "20"]) as agent:  # noqa: ASYNC220 - a fork, and done
        async with breaker.ground(agent.pid) as ground:
            ground.carry_out(order("kill-agent"))
            assert await asyncio.to_thread(agent.wait, 5) == -9
    assert not breaker.said


@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_drill_on_an_agent_that_is_gone_is_said(has_ended: bool) -> None:
    breaker = Breaker()
    pid = None
    if has_ended:
        with subprocess.Popen(["true"]) as agent:  # noqa: ASYNC220 - the same
            pid = agent.pid
    async with breaker.ground(pid) as ground:
        ground.carry_out(order("kill-agent"))
        await breaker.news.wait()
    assert breaker.said == ["drill kill-agent: n1 has no living agent"]


async def test_a_drill_that_can_not_be_run_here_does_not_stop_the_next() -> None:
    breaker = Breaker()
    async with breaker.ground() as ground:
        ground.carry_out(order("unplug-switch"))
        ground.carry_out(order("lose-node"))
        while not breaker.broken:
            await breaker.news.wait()
            breaker.news.clear()
    assert breaker.said == ["drill unplug-switch can't be run here"]
    assert breaker.broken == [("lose", "n1")]
