"""Drills: what the command line understands of them, and how each is carried out."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from controller.core.instructions import CarryOutDrill
from controller.drills.drill_arguments import (
    NO_NAMESPACES,
    DrillArgumentError,
    ScheduledDrill,
    available_drills,
    parse_drill,
)
from controller.drills.drill_execution import DrillExecutor
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.regroup import RankRef
from profiles.drills.drill_catalogue import DRILL_BY_KIND, DRILLS

A, B = TaskId("gpt-a"), TaskId("gpt-b")
TASKS = {A: 4, B: 2}
NODES = [NodeId("n1"), NodeId("n2"), NodeId("n3")]
AVAILABLE = available_drills(has_namespaces=True)


def parse(text: str, num_iterations: int | None = 30) -> ScheduledDrill:
    return parse_drill(text, tasks=TASKS, nodes=NODES, num_iterations=num_iterations)


def parse_in_namespaces(text: str) -> ScheduledDrill:
    return parse_drill(text, tasks=TASKS, nodes=NODES, num_iterations=30, has_namespaces=True)


def refusal(text: str, num_iterations: int | None = 30) -> str:
    with pytest.raises(DrillArgumentError) as caught:
        parse(text, num_iterations)
    words = str(caught.value)
    assert "\n" not in words
    assert words.startswith(f"--drill {text}: ")
    return words.removeprefix(f"--drill {text}: ")


def test_every_drill_is_on_offer_with_what_should_be_seen() -> None:
    assert {drill.kind for drill in AVAILABLE} == {drill.kind for drill in DRILLS}
    assert all(drill.title and drill.expectation for drill in AVAILABLE)


def test_what_needs_networks_of_their_own_is_on_offer_only_with_them() -> None:
    without = {drill.kind for drill in available_drills(has_namespaces=False)}
    assert {drill.kind for drill in AVAILABLE} - without == {"partition"}


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
        (
            "exception@5:rank=1,status=ecc_error",
            ScheduledDrill("exception:status=ecc_error", 5, A, global_rank=1),
        ),
        (
            "kernel-log@5:line=xid-79,node=n2",
            ScheduledDrill("kernel-log:line=xid-79", 5, A, node=NODES[1]),
        ),
        (
            "kernel-log@5:line=xid-31,rank=2",
            ScheduledDrill("kernel-log:line=xid-31", 5, A, global_rank=2),
        ),
    ],
)
def test_a_drill_is_read_and_the_first_task_is_the_default(
    text: str, drill: ScheduledDrill
) -> None:
    assert parse(text) == drill


def test_a_run_without_an_end_takes_any_iteration() -> None:
    assert parse("kill-rank@5000", num_iterations=None).iteration == 5000


def test_a_drill_that_a_command_can_not_stage_is_refused_before_anything_starts() -> None:
    def parse_for_command(text: str) -> ScheduledDrill:
        return parse_drill(text, tasks=TASKS, nodes=NODES, num_iterations=30, command_tasks={A})

    for text in ("kill-rank@3", "exception@3", "lose-node@3", "slow-rank@3:task=gpt-b"):
        assert parse_for_command(text).iteration == 3
    for text in ("slow-rank@3", "exception@3:status=ecc_error", "kernel-log@3:line=xid-31"):
        with pytest.raises(
            DrillArgumentError, match=r"gpt-a is a command: .* needs a training loop"
        ) as error:
            parse_for_command(text)
        assert str(error.value).endswith(
            "it can have kill-rank, memory-kill, exception, freeze-rank"
        )


def test_a_drill_knows_what_it_breaks() -> None:
    for drill in DRILLS:
        options = f":{'='.join(drill.option)}" if drill.option else ""
        text = f"{drill.family}@1{options}"
        assert parse_in_namespaces(text).target == drill.target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unknown drill ''; known: kill-rank, exit-code, segfault, "),
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
        ("lose-node@3:node=n9", "no node 'n9'; there are n1, n2, n3"),
        ("kill-rank@3:node=n1", "'node=n1' is not one of task=..., rank=..."),
        ("lose-node@3:rank=1", "'rank=1' is not one of task=..., node=..."),
        ("exception@3:status=boredom", "no status 'boredom'; there are illegal_memory_access, "),
        ("exception@3:line=xid-79", "'line=xid-79' is not one of status=..., task=..., rank=..."),
        ("kernel-log@3", "needs line=...; there are xid-48, "),
        ("kernel-log@3:line=xid-79,rank=1", "'rank=1' is not one of line=..., task=..., node=..."),
        ("nan@3", "needs times=...; there are 1, 2"),
        ("kill-controller@3:node=n1", "'node=n1' is not one of task=..."),
        ("partition@3", "can't be run here: the nodes share one network; with --namespaces "),
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


AT = ("n1", "gpt-a", 2, 3)


class Breaker:
    """Notes what was broken; ranks and nodes alike."""

    def __init__(self, *, has_namespaces: bool = True) -> None:
        self.has_namespaces = has_namespaces
        self.broken: list[tuple[object, ...]] = []
        self.said: list[str] = []
        self._agent_pid: int | None = None
        self._rank_pid: int | None = None
        self.news = asyncio.Event()

    def inject(self, node: NodeId, task: TaskId, rank: RankRef, fault: RankFault) -> None:
        self._note(fault, node, task, rank.generation, rank.global_rank)

    @property
    def names(self) -> list[NodeId]:
        return list(NODES)

    async def lose_node(self, node: NodeId) -> None:
        self._note("lose", node)

    async def cut_connections(self, node: NodeId) -> None:
        self._note("cut", node)

    async def unplug(self, node: NodeId) -> None:
        self._note("unplug", node)

    async def plug_in(self, node: NodeId) -> None:
        self._note("plug in", node)

    def freeze(self, node: NodeId, *, only_server: bool) -> None:
        self._note("freeze", node, only_server)

    def thaw(self, node: NodeId) -> None:
        self._note("thaw", node)

    def log_kernel(self, node: NodeId, text: str) -> None:
        self._note("log", node, text)

    def agent_pid(self, node: NodeId) -> int | None:
        assert node in NODES
        return self._agent_pid

    def rank_pid(self, task: TaskId, global_rank: int) -> int | None:
        assert (task, global_rank) == (A, 3)
        return self._rank_pid

    def kill_controller(self) -> None:
        self._note("controller")

    def say(self, text: str) -> None:
        self.said.append(text)
        self.news.set()

    def _note(self, *what: object) -> None:
        self.broken.append(what)
        self.news.set()

    @asynccontextmanager
    async def executor(
        self, agent_pid: int | None = None, rank_pid: int | None = None
    ) -> AsyncIterator[DrillExecutor]:
        async def is_refused(_pid: int) -> bool:
            return False

        self._agent_pid, self._rank_pid = agent_pid, rank_pid or os.getpid()
        executor = DrillExecutor(
            self,
            self,
            self.say,
            is_refused,
        )
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(executor.run())
            yield executor
            task.cancel()


def order(kind: str, *, has_rank: bool = False) -> CarryOutDrill:
    if has_rank:
        return CarryOutDrill(1, kind, NODES[0], A, Generation(2), 3)
    return CarryOutDrill(1, kind, NODES[0])


@pytest.mark.parametrize(
    ("drill", "what"),
    [
        (order("kill-rank", has_rank=True), (RankFault(kind="kill"), *AT)),
        (order("exception", has_rank=True), (RankFault(kind="raise"), *AT)),
        (
            order("exception:status=ecc_error", has_rank=True),
            (RankFault(kind="raise", status="ecc_error"), *AT),
        ),
        (order("nan:times=2", has_rank=True), (RankFault(kind="nan", count=2), *AT)),
        (order("partition"), ("unplug", "n1")),
        (order("freeze-ssh"), ("freeze", "n1", True)),
        (order("freeze-node"), ("freeze", "n1", False)),
        (order("lose-node"), ("lose", "n1")),
        (order("lose-two-nodes"), ("lose", "n1")),
        (order("kill-ssh"), ("cut", "n1")),
        (CarryOutDrill(1, "kill-controller"), ("controller",)),
    ],
)
async def test_a_drill_breaks_the_named_thing(
    drill: CarryOutDrill, what: tuple[object, ...]
) -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(drill)
        await breaker.news.wait()
    assert breaker.broken[0] == what
    assert not breaker.said


async def test_two_nodes_are_lost_at_once() -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(CarryOutDrill(1, "lose-two-nodes", NODES[2]))
        await breaker.news.wait()
    assert breaker.broken == [("lose", "n3"), ("lose", "n1")]


def test_two_nodes_of_two_are_not_lost() -> None:
    with pytest.raises(DrillArgumentError, match="needs 3 nodes; here are 2"):
        parse_drill("lose-two-nodes@3", tasks={A: 4}, nodes=NODES[:2], num_iterations=None)


async def test_an_order_that_lacks_its_node_is_a_bug_and_breaks_nothing() -> None:
    breaker = Breaker()

    async def carry_out() -> None:
        async with breaker.executor() as executor:
            executor.carry_out(CarryOutDrill(1, "lose-node"))
            await breaker.news.wait()

    with pytest.raises(ExceptionGroup) as caught:
        await carry_out()
    assert caught.group_contains(AssertionError)
    assert not breaker.broken


async def test_what_is_frozen_is_thawed_when_the_demo_ends() -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(order("freeze-node"))
        await breaker.news.wait()
    assert breaker.broken == [("freeze", "n1", False), ("thaw", "n1")]


async def test_what_is_unplugged_is_plugged_in_again_when_the_demo_ends() -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(order("partition"))
        await breaker.news.wait()
    assert breaker.broken == [("unplug", "n1"), ("plug in", "n1")]


async def test_without_networks_of_their_own_nodes_are_not_cut_off_and_it_is_said_why() -> None:
    breaker = Breaker(has_namespaces=False)
    async with breaker.executor() as executor:
        executor.carry_out(order("partition"))
        await breaker.news.wait()
    assert breaker.said == [f"drill partition can't be run here: {NO_NAMESPACES}"]
    assert not breaker.broken


async def test_a_kernel_message_names_the_process_and_comes_before_its_exception() -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(order("kernel-log:line=xid-31", has_rank=True))
        await breaker.news.wait()
    (_, node, text), raised = breaker.broken
    assert (node, raised) == ("n1", (RankFault(kind="raise", status="illegal_memory_access"), *AT))
    assert f": 31, pid={os.getpid()}, name=" in str(text)


ELSEWHERE = {"kill-agent", "memory-kill", "kill-controller"}
"""They end a real process by its id, or strike no node; other tests do that."""


@pytest.mark.parametrize("kind", [d.kind for d in AVAILABLE if d.kind not in ELSEWHERE])
async def test_every_drill_on_offer_is_carried_out(kind: str) -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(order(kind, has_rank=DRILL_BY_KIND[kind].target == "rank"))
        await breaker.news.wait()
    assert breaker.broken
    assert not breaker.said


async def test_an_agent_is_killed_by_a_signal_that_it_can_not_catch() -> None:
    breaker = Breaker()
    with subprocess.Popen(["sleep", "20"]) as agent:  # noqa: ASYNC220 - a fork, and done
        async with breaker.executor(agent.pid) as executor:
            executor.carry_out(order("kill-agent"))
            assert await asyncio.to_thread(agent.wait, 5) == -9
    assert not breaker.said


async def test_a_kill_for_memory_without_a_cgroup_is_said_and_staged_by_its_words() -> None:
    breaker = Breaker()
    with subprocess.Popen(["sleep", "20"]) as rank:  # noqa: ASYNC220 - the same
        async with breaker.executor(rank_pid=rank.pid) as executor:
            executor.carry_out(order("memory-kill", has_rank=True))
            assert await asyncio.to_thread(rank.wait, 5) == -9
    ((what, _, text),) = breaker.broken
    assert (what, f"Killed process {rank.pid} (sleep)" in str(text)) == ("log", True)
    (said,) = breaker.said
    assert "SIGKILL instead" in said


@pytest.mark.parametrize("has_ended", [True, False])
async def test_a_drill_on_an_agent_that_is_gone_is_said(has_ended: bool) -> None:
    breaker = Breaker()
    pid = None
    if has_ended:
        with subprocess.Popen(["true"]) as agent:  # noqa: ASYNC220 - the same
            pid = agent.pid
    async with breaker.executor(pid) as executor:
        executor.carry_out(order("kill-agent"))
        await breaker.news.wait()
    assert breaker.said == ["drill kill-agent: node n1 has no running agent"]


async def test_a_drill_that_can_not_be_run_here_does_not_stop_the_next() -> None:
    breaker = Breaker()
    async with breaker.executor() as executor:
        executor.carry_out(order("unplug-switch"))
        executor.carry_out(order("lose-node"))
        while not breaker.broken:
            await breaker.news.wait()
            breaker.news.clear()
    assert breaker.said == ["drill unplug-switch can't be run here"]
    assert breaker.broken == [("lose", "n1")]
