"""The control link of a rank, against an agent that comes, goes and forgets."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from nodeagent.protocol.codec import Codec, LineSplitter, encode
from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.local import (
    AskStanding,
    BreakRank,
    FromRank,
    RankHello,
    RankPulse,
    RankReport,
    ReportStored,
    StopAtBoundary,
)
from nodeagent.protocol.observations import CheckpointSaved
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.standing import Standing
from nodeagent.rank.agent_link.control_link import ControlLink
from tests.fakes.directories import short_directory
from tests.fakes.polling import wait_until

TASK, GENERATION = TaskId("gpt"), Generation(1)
HELLO = RankHello(task=TASK, generation=GENERATION, global_rank=0, pid=1)


def saved(iteration: int) -> CheckpointSaved:
    return CheckpointSaved(
        task=TASK,
        generation=GENERATION,
        global_rank=0,
        iteration=iteration,
        duration_s=0.0,
        num_bytes=0,
    )


class Agent:
    """One run of an agent: listens, takes one connection, and can be killed."""

    def __init__(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(10)
        self._connection: socket.socket | None = None
        self._codec: Codec[Any] = Codec(TypeAdapter(FromRank))
        self._splitter = LineSplitter()
        self._messages: list[Any] = []

    def next(self) -> Any:  # noqa: ANN401 - any member of the union
        if self._connection is None:
            self._connection, _ = self._listener.accept()
            self._connection.settimeout(10)
        while not self._messages:
            data = self._connection.recv(65536)
            assert data, "the link closed the connection"
            self._messages += [self._codec.decode(line) for line in self._splitter.feed(data)]
        return self._messages.pop(0)

    def send(self, message: BaseModel | bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(message if isinstance(message, bytes) else encode(message))

    def die(self) -> None:
        self._listener.close()
        if self._connection is not None:
            self._connection.close()


@pytest.fixture
def path() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory / "ranks.sock"


@pytest.fixture
def link(path: Path) -> Iterator[ControlLink]:
    link = ControlLink(path, HELLO, lambda: 7.0, lambda *_: None)
    link.start()
    yield link
    link.close()


def test_hello_comes_first_and_reports_in_order(link: ControlLink, path: Path) -> None:
    link.report(saved(1))
    link.report(saved(2))
    agent = Agent(path)
    assert agent.next() == HELLO
    assert agent.next() == RankReport(seq=1, wall_s=7.0, observation=saved(1))
    assert agent.next() == RankReport(seq=2, wall_s=7.0, observation=saved(2))
    agent.die()


def test_unstored_reports_go_to_the_next_agent_and_stored_ones_do_not(
    link: ControlLink, path: Path
) -> None:
    first = Agent(path)
    for iteration in (1, 2, 3):
        link.report(saved(iteration))
    assert first.next() == HELLO
    assert [first.next().seq for _ in range(3)] == [1, 2, 3]
    first.send(ReportStored(seq=2))
    assert not link.wait_until_stored(0.05)
    first.die()

    second = Agent(path)
    assert second.next() == HELLO
    assert second.next() == RankReport(seq=3, wall_s=7.0, observation=saved(3))
    second.send(ReportStored(seq=3))
    assert link.wait_until_stored(10)
    link.report(saved(4))
    assert second.next().seq == 4
    second.die()


def test_of_pulses_only_the_newest_waits_for_an_agent(link: ControlLink, path: Path) -> None:
    for iteration in range(1, 5):
        link.pulse(iteration, 0.1)
    agent = Agent(path)
    assert agent.next() == HELLO
    assert agent.next() == RankPulse(iteration=4, duration_s=0.1)
    agent.die()


def test_a_report_that_goes_along_with_a_pulse_is_kept_when_the_pulse_is_not(
    link: ControlLink, path: Path
) -> None:
    link.pulse(1, 0.1, report=saved(1))
    link.pulse(2, 0.1)
    agent = Agent(path)
    assert agent.next() == HELLO
    assert agent.next() == RankReport(seq=1, wall_s=7.0, observation=saved(1))
    assert agent.next() == RankPulse(iteration=2, duration_s=0.1)
    agent.die()


def test_requests_are_noted_and_a_drill_is_taken_once(link: ControlLink, path: Path) -> None:
    agent = Agent(path)
    agent.next()
    assert (link.is_stop_requested, link.take_fault()) == (False, None)
    # The report's answer is sent last, so when it is in, so are the requests.
    link.report(saved(1))
    agent.next()
    agent.send(StopAtBoundary())
    agent.send(BreakRank(fault=RankFault(kind="nan")))
    agent.send(BreakRank(fault=RankFault(kind="raise")))
    agent.send(ReportStored(seq=1))
    assert link.wait_until_stored(10)
    assert (link.is_stop_requested, link.take_fault()) == (True, RankFault(kind="raise"))
    assert (link.is_stop_requested, link.take_fault()) == (True, None)
    agent.die()


def test_nonsense_from_the_agent_costs_the_connection_only(link: ControlLink, path: Path) -> None:
    agent = Agent(path)
    agent.next()
    agent.send(b"nonsense\n")
    agent.die()
    again = Agent(path)
    assert again.next() == HELLO
    again.die()


def test_a_stack_that_can_not_be_read_costs_the_answer_only(path: Path) -> None:
    def read() -> Standing:
        raise TypeError("a frame without a line")

    agent = Agent(path)
    link = ControlLink(path, HELLO, lambda: 7.0, lambda *_: None, read)
    link.start()
    assert agent.next() == HELLO
    agent.send(AskStanding(number=1))
    agent.send(StopAtBoundary())
    wait_until(lambda: link.is_stop_requested, limit_s=10)
    link.report(saved(1))
    assert agent.next() == RankReport(seq=1, wall_s=7.0, observation=saved(1))
    agent.die()
    link.close()


def test_closing_ends_a_link_that_never_found_an_agent(path: Path) -> None:
    link = ControlLink(path, HELLO, lambda: 0.0, lambda *_: None)
    link.start()
    link.report(saved(1))
    assert not link.wait_until_stored(0.01)
    link.close()
