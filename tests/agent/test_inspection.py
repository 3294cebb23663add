"""A real agent looks where ranks stand, whatever state their processes are in."""

import asyncio
import itertools
import os
import signal

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.messages import OrderRanksCommand
from nodeagent.protocol.observations import IterationCommitted, RankInspected
from nodeagent.protocol.orders import InspectOrder
from nodeagent.protocol.standing import Standing
from tests.fakes.fake_rank import Script, launch
from tests.fakes.node import LIMIT_S, AgentNode, FakeController, record_pids, until
from tests.fakes.process_states import is_stopped

_NUMBERS = itertools.count()


async def look(
    controller: FakeController, *, generation: int = 1, answer_limit_s: float = 3.0
) -> dict[int, Standing]:
    """Have the agent look, and return what it reported by global rank.

    Who can answer does so in milliseconds; a machine with other work takes its time.
    """
    num_before = len(controller.observed(RankInspected))
    command = OrderRanksCommand(command_id=f"look-{next(_NUMBERS)}", order=InspectOrder(
        task=TaskId("gpt-a"),
        generation=Generation(generation), answer_limit_s=answer_limit_s,
        limit_s=answer_limit_s + 2.0,
    ))  # fmt: skip
    assert (await controller.do(command)).error is None
    found = controller.observed(RankInspected)[num_before:]
    return {one.global_rank: one.standing for one in found}


async def look_at_the_only_rank(controller: FakeController) -> Standing:
    """Look at a rank that gives no answer. One that had no core meanwhile is not reported."""
    async with asyncio.timeout(LIMIT_S):
        while not (standings := await look(controller, answer_limit_s=0.2)):
            pass
    [standing] = standings.values()
    return standing


async def look_into_the_lock(controller: FakeController) -> Standing:
    """Look at the only rank until it holds the interpreter's lock.

    It does soon after its report.
    """
    async with asyncio.timeout(LIMIT_S):
        while True:
            standing = await look_at_the_only_rank(controller)
            if "_hold_the_lock (" in standing.stack:
                return standing


async def started(node: AgentNode, controller: FakeController, *scripts: Script) -> dict[str, int]:
    """Start one rank per script, wait until each was heard, and return their pids."""
    ranks = [launch(one, global_rank=n, worker=n) for n, one in enumerate(scripts)]
    await controller.start_ranks(*ranks)

    def answered_nodes() -> set[int]:
        return {one.global_rank for one in controller.observed(IterationCommitted)}

    await until(lambda: answered_nodes() >= set(range(len(scripts))), "an iteration of every rank")
    return record_pids(node)


async def test_rank_answers_for_itself(node: AgentNode) -> None:
    async with node.controller() as controller:
        await started(node, controller, Script(), Script())
        standings = await look(controller)
        assert {(one.where, one.source) for one in standings.values()} == {("computing", "rank")}
        assert standings.keys() == {0, 1}


async def test_stopped_rank_is_seen_at_once_and_may_go_on(node: AgentNode) -> None:
    async with node.controller() as controller:
        pids = await started(node, controller, Script(), Script())
        pid = pids["gpt-a.1.1"]
        os.kill(pid, signal.SIGSTOP)
        await until(lambda: is_stopped(pid), "it stops")
        standings = await look(controller)
        assert (standings[0].where, standings[1].where) == ("computing", "stopped")
        os.kill(pid, signal.SIGCONT)
        assert (await look(controller))[1].where == "computing"
        assert record_pids(node) == pids


async def test_rank_that_does_not_answer_tells_its_stacks_at_a_signal(node: AgentNode) -> None:
    async with node.controller() as controller:
        pids = await started(node, controller, Script(is_locked=True, has_dumps=True))
        for _ in range(2):  # what an earlier look has written is not read again
            standing = await look_into_the_lock(controller)
            assert (standing.where, standing.source) == ("computing", "faulthandler")
            assert standing.place.startswith("match (")
            assert standing.stack.count("training thread:") == 1
        assert record_pids(node) == pids


async def test_rank_without_a_handler_is_not_ended_by_the_look(node: AgentNode) -> None:
    async with node.controller() as controller:
        pids = await started(node, controller, Script(is_locked=True))
        standing = await look_at_the_only_rank(controller)
        assert (standing.where, standing.source) in {
            ("no answer", "kernel"),
            ("computing", "py-spy"),
        }
        assert record_pids(node) == pids


async def test_an_answer_too_long_to_be_passed_on_harms_neither_agent_nor_other_ranks(
    node: AgentNode,
) -> None:
    async with node.controller() as controller:
        agent = (await controller.welcome()).agent_id
        pids = await started(node, controller, Script(is_talkative=True), Script())
        assert (await look(controller)).keys() == {1}
        assert record_pids(node) == pids
    async with node.controller() as controller:
        assert (await controller.welcome()).agent_id == agent
    assert "cannot store an inspection" in node.log


async def test_ranks_of_another_generation_are_not_looked_at(node: AgentNode) -> None:
    async with node.controller() as controller:
        await started(node, controller, Script())
        assert await look(controller, generation=2) == {}
