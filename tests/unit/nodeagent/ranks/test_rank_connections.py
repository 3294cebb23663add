"""What a rank is told when it says hello, and on which name its reports count."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pydantic import BaseModel

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.outbox.outbox_records import MarkScope
from nodeagent.process_tools.json_streams import LineChannel
from nodeagent.protocol.codec import encode
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.local import RankHello, RankPulse, RankReport
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import RankDone
from nodeagent.protocol.orders import HaltOrder
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch
from nodeagent.ranks.rank_connections import RankConnections
from nodeagent.ranks.store_relay import StoreRelay
from nodeagent.ranks.supervisor import RankKey, key_of
from tests.fakes.fake_rank import Script, launch

TASK = TaskId("gpt-a")
PID = os.getpid()
BORN = RankKey(TASK, Generation(1), 0)
"""This process is at both ends of the socket, so its pid is the rank's."""


@dataclass
class Process:
    pid: int = PID
    key: RankKey = BORN
    name: str = BORN.process(PID)
    num_reports: int = 0
    is_foreign: bool = False
    became: RankLaunch | None = None

    def rename(self, generation: int, global_rank: int) -> RankLaunch:
        self.became = launch(Script(), generation=generation, global_rank=global_rank)
        self.key = key_of(self.became)
        return self.became


class OneRank:
    """Looks after one process."""

    def __init__(self) -> None:
        self.process = Process()

    async def greet(self, hello: RankHello) -> Process:
        assert hello.pid == PID
        return self.process

    def pulse(self, pid: int, pulse: RankPulse) -> None:
        raise AssertionError(f"{pid} sent no {pulse}")

    def is_foreign(self, pid: int) -> bool:
        return self.process.is_foreign and pid == PID


class FakeOwner:
    """A hub, the rank that it serves, and the rank's end of a connection."""

    def __init__(self, directory: Path) -> None:
        self.outbox = OutboxFile(directory / "outbox.jsonl")
        self.hub = RankConnections(self.outbox, StoreRelay(NodeId("n1")))
        self.ranks = OneRank()
        self.hub.attach(self.ranks)

    @property
    def process(self) -> Process:
        return self.ranks.process

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        ours, theirs = socket.socketpair()
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(self.hub.serve(LineChannel(theirs)))
            with ours:
                yield Connection(ours, self.process)


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[FakeOwner]:
    owner = FakeOwner(tmp_path)
    yield owner
    owner.outbox.close()


class Connection:
    """A rank's end of its control connection."""

    def __init__(self, end: socket.socket, process: Process) -> None:
        self._end = end
        self._process = process
        end.setblocking(False)

    async def hello(self, generation: int, global_rank: int) -> list[str]:
        """Say hello, and return the answers up to a report's that follows it."""
        who = RankHello(
            task=TASK, generation=Generation(generation), global_rank=global_rank, pid=PID
        )
        await self._send(who)
        return await self.report(generation, global_rank)

    async def report(self, generation: int, global_rank: int) -> list[str]:
        self._process.num_reports += 1
        return await self.repeat(generation, global_rank)

    async def repeat(self, generation: int, global_rank: int) -> list[str]:
        """Send the newest report again; return what came before the answer to it."""
        seq = self._process.num_reports
        done = RankDone(
            task=TASK,
            generation=Generation(generation),
            global_rank=global_rank,
            iteration=seq,
            reason="stopped",
        )
        await self._send(RankReport(seq=seq, wall_s=0.0, observation=done))
        stored = b'{"kind":"report_stored","seq":%d}\n' % seq
        received = b""
        while not received.endswith(stored):
            received += await asyncio.get_running_loop().sock_recv(self._end, 65536)
        return [json.loads(line)["kind"] for line in received.splitlines()][:-1]

    async def is_closed_after(self, observation: Mapping[str, object]) -> bool:
        """Send a report of ``observation``; return whether the agent hangs up without an answer."""
        self._process.num_reports += 1
        report = {"kind": "rank_report", "seq": self._process.num_reports, "wall_s": 0.0}
        line = json.dumps({**report, "observation": observation}).encode() + b"\n"
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._end, line)
        try:
            return await loop.sock_recv(self._end, 65536) == b""
        except ConnectionResetError:
            return True

    async def _send(self, message: BaseModel) -> None:
        await asyncio.get_running_loop().sock_sendall(self._end, encode(message))


def iterations(owner: FakeOwner) -> list[int]:
    reports = [Report.model_validate_json(held.line) for held in owner.outbox.outbox.after(0)]
    return [one.observation.iteration for one in reports if isinstance(one.observation, RankDone)]


DONE: Final = {
    "kind": "rank_done", "task": TASK, "generation": 1, "global_rank": 0,
    "iteration": 9, "reason": "stopped",
}  # fmt: skip
PARKED: Final = {"committed": 1, "has_state": True, "phase": "accumulate"}


def halt(generation: int) -> HaltOrder:
    return HaltOrder(task=TASK, generation=Generation(generation), broken=(3,))


async def test_untroubled_rank_is_told_nothing(owner: FakeOwner) -> None:
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == []


async def test_halted_generation_hears_it_at_every_connection(owner: FakeOwner) -> None:
    owner.outbox.request_halt(halt(1))
    for _ in range(2):
        async with owner.connection() as connection:
            assert await connection.hello(1, 0) == ["halt"]
            assert await connection.report(1, 0) == []


async def test_halt_that_overtook_the_joining_is_repeated_at_the_new_hello(
    owner: FakeOwner,
) -> None:
    """It reached the rank before it had become part of that generation, and may be ignored."""
    owner.process.rename(2, 1)
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == ["join"]
        owner.outbox.request_halt(halt(2))
        owner.hub.halt(PID, halt(2))
        assert await connection.report(1, 0) == ["halt"]
        assert await connection.hello(2, 1) == ["halt"]


async def test_rank_that_was_renamed_without_its_knowledge_gets_the_order_at_its_hello(
    owner: FakeOwner,
) -> None:
    owner.outbox.request_halt(halt(1))
    owner.process.rename(2, 1)
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == ["halt", "join"]
        assert await connection.hello(2, 1) == []


async def test_halt_of_the_new_generation_comes_after_the_join(owner: FakeOwner) -> None:
    owner.process.rename(2, 1)
    owner.outbox.request_halt(halt(2))
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == ["join", "halt"]


async def test_request_reaches_the_process_whatever_it_calls_itself(owner: FakeOwner) -> None:
    async with owner.connection() as connection:
        await connection.hello(1, 0)
        owner.hub.join(PID, owner.process.rename(2, 1))
        owner.hub.halt(PID, halt(2))
        owner.hub.stop_at_boundary(PID)
        assert owner.hub.break_rank(PID, RankFault(kind="raise"))
        asked = ["join", "halt", "stop_at_boundary", "break_rank"]
        assert await connection.report(1, 0) == asked
    assert not owner.hub.break_rank(PID, RankFault(kind="raise"))


async def test_hello_of_a_name_in_between_brings_no_second_join(owner: FakeOwner) -> None:
    async with owner.connection() as connection:
        await connection.hello(1, 0)
        owner.hub.join(PID, owner.process.rename(2, 1))
        owner.hub.join(PID, owner.process.rename(3, 0))
        assert await connection.hello(2, 1) == ["join", "join"]
        assert await connection.hello(3, 0) == []


async def test_stop_of_an_older_generation_does_not_reach_the_new_one(
    owner: FakeOwner,
) -> None:
    owner.outbox.advance(MarkScope.GRACEFUL_STOP, TASK, 1)
    owner.process.rename(2, 1)
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == ["join"]
        owner.outbox.advance(MarkScope.GRACEFUL_STOP, TASK, 2)
        assert await connection.hello(2, 1) == ["stop_at_boundary"]


async def test_reports_before_and_after_a_second_hello_are_one_sequence(
    owner: FakeOwner,
) -> None:
    async with owner.connection() as connection:
        await connection.hello(1, 0)
        owner.process.rename(2, 1)
        await connection.report(1, 0)
        await connection.hello(2, 1)
    assert iterations(owner) == [1, 2, 3]
    assert owner.outbox.outbox.mark(MarkScope.INTAKE, BORN.process(PID)) == 3
    async with owner.connection() as connection:
        await connection.hello(2, 1)
        await connection.repeat(2, 1)
    assert iterations(owner) == [1, 2, 3, 4]


async def test_rank_of_another_run_is_answered_and_told_nothing(owner: FakeOwner) -> None:
    owner.outbox.request_halt(halt(1))
    owner.process.rename(2, 1)
    owner.process.is_foreign = True
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == []
    assert iterations(owner) == []


@pytest.mark.parametrize(
    "observation",
    [
        pytest.param({**DONE, "task": "gpt-b"}, id="of another task"),
        pytest.param({**DONE, "kind": "rank_exited", "pid": PID}, id="that only an agent makes"),
        pytest.param({"kind": "node_finding", "source": "gpu"}, id="of its node"),
        # Written out, each number has 17 digits, and the controller takes no line of 4 MB.
        pytest.param(
            {**DONE, "kind": "rank_halted", "position": {**PARKED, "counted": [1e16] * 300_000}},
            id="too long to be passed on",
        ),
    ],
)
async def test_a_report_that_no_rank_may_send_ends_the_connection_and_is_not_stored(
    owner: FakeOwner, observation: dict[str, object]
) -> None:
    async with owner.connection() as connection:
        await connection.hello(1, 0)
        assert await connection.is_closed_after(observation)
    assert iterations(owner) == [1]
    async with owner.connection() as connection:
        assert await connection.hello(1, 0) == []
    assert iterations(owner) == [1, 3]
