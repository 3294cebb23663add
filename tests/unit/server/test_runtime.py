"""The runtime: events in one order, each in the journal before an instruction follows from it."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from controller.clock import Clock
from controller.core.events import (
    Event,
    EventBody,
    NodeAttached,
    Observed,
    PlanRequested,
    TimerFired,
)
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    CarryOutDrill,
    DropRendezvous,
    HaltRanks,
    Instruction,
    PrepareSpares,
    ProbeNode,
    SetTimer,
    StartRanks,
    StopRanks,
)
from controller.core.machine import Machine
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from controller.core.timers import JudgeNode, SettleIncident, Timer
from controller.loop_clock import LoopClock
from controller.server.rank_launches import encode_program
from controller.server.runtime import Runtime, RuntimeDependencies
from controller.store.journal import SEGMENT_EVENTS, Journal, read_journal
from nodeagent.protocol.ids import AgentId, Generation, NodeId, TaskId
from nodeagent.protocol.observations import RankStarted
from nodeagent.protocol.orders import HaltOrder, StopOrder
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import RankRef, Resume
from profiles.layout import Layout
from profiles.model import ModelShape
from tests.fakes.clusters import demo_machine
from tests.fakes.log_lines import log_entries
from tests.fakes.runtime_ports import Call, Ports
from tests.fakes.synced_disk import SyncedDisk

A, B = TaskId("gpt-a"), TaskId("gpt-b")
N1, N2 = NodeId("n1"), NodeId("n2")
SHAPE = ModelShape(num_layers=2, hidden_size=8, num_attention_heads=2, seq_length=8)
TRAINING = {
    A: TrainingSpec(model=SHAPE, checkpoint_dir="/checkpoints/a", seed=1),
    B: TrainingSpec(model=SHAPE, checkpoint_dir="/checkpoints/b", seed=2),
}
REQUEST = PlanRequested("r1", "op")


class Ticks(Clock):
    """A clock that advances by a second whenever it is read."""

    def __init__(self) -> None:
        self._now = -1.0

    @override
    def now(self) -> float:
        self._now += 1.0
        return self._now

    @override
    def wall_s(self) -> float:
        return 1e9 + self._now


class Scripted(Machine):
    """A machine with scripted instructions that records its events."""

    def __init__(self, script: Callable[[Event], Sequence[Instruction]] | None = None) -> None:
        super().__init__([], [], Policy())
        self.script = script or (lambda _event: ())
        self.on_event: Callable[[Event], None] = lambda _event: None
        self.events: list[Event] = []

    def handle(self, event: Event) -> list[Instruction]:
        self.on_event(event)
        self.events.append(event)
        return list(self.script(event))


def with_programs(machine: Machine) -> Machine:
    """Give the tasks of a new machine the programs of their ranks."""
    for name, task in machine.state.tasks.items():
        task.spec = replace(task.spec, program=encode_program(TRAINING[name]))
    return machine


class Harness:
    """A runtime over fakes, with a journal on disk."""

    def __init__(self, path: Path, machine: Machine, segment_events: int = SEGMENT_EVENTS) -> None:
        self.path = path
        self.ports = Ports()
        self.journal = Journal(path, segment_events=segment_events)
        self.clock = LoopClock(Ticks())
        self.runtime = Runtime(machine, self.journal, self.clock, "gloo")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Harness"]:
        dependencies = RuntimeDependencies(self.ports, self.ports, self.ports, self.ports)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.clock.run()),
                group.create_task(self.runtime.run(dependencies)),
            ]
            yield self
            for task in tasks:
                task.cancel()
        self.journal.close()

    async def handled(self, count: int) -> None:
        """Wait until ``count`` events have been handled."""
        while len(self.ports.named("state_changed")) < count:
            self.ports.has_news.clear()
            await self.ports.has_news.wait()

    async def post(self, *bodies: EventBody) -> None:
        """Post events and wait until they are handled."""
        before = len(self.ports.named("state_changed"))
        for body in bodies:
            self.runtime.post(body)
        await self.handled(before + len(bodies))

    @property
    def journaled(self) -> list[Event]:
        return list(read_journal(self.path))


@pytest.fixture
def machine() -> Scripted:
    return Scripted()


@pytest.fixture
async def harness(tmp_path: Path, machine: Scripted) -> AsyncIterator[Harness]:
    async with Harness(tmp_path / "journal.jsonl", machine).running() as harness:
        yield harness


def report(seq: int) -> Observed:
    started = RankStarted(
        task=A, generation=Generation(1), global_rank=0, pid=7, warm=True, start_s=0.1
    )
    return Observed(N1, seq, 0.5, started)


@pytest.mark.parametrize("segment_events", [7, SEGMENT_EVENTS])
async def test_a_loss_of_power_loses_nothing_from_which_something_followed(
    tmp_path: Path, machine: Scripted, monkeypatch: pytest.MonkeyPatch, segment_events: int
) -> None:
    """At each call of a port, after a loss of power: the disk has the event already."""
    (tmp_path / "run").mkdir()
    disk = SyncedDisk(tmp_path / "run", monkeypatch)
    harness = Harness(tmp_path / "run" / "journal.jsonl", machine, segment_events)
    known: list[int] = []

    class AtEachCall(Ports):
        def _note(self, name: str, *arguments: object) -> None:
            super()._note(name, *arguments)
            if name != "state_changed":
                for left in disk.survivors(tmp_path):
                    events = list(read_journal(left / "journal.jsonl"))
                    assert events == machine.events[: len(events)]
                    known.append(len(events) - len(self.named("state_changed")))

    harness.ports = AtEachCall()
    machine.script = lambda event: [
        Announce(event.number, "info", "note", "n1", "text"),
        ProbeNode(event.number, N1, (N2,)),
        AnswerRequest(event.number, "r1", is_ok=True, code="ok", message=""),
    ]
    async with harness.running():
        for first in range(1, 16, 3):
            await harness.post(*(report(number) for number in range(first, first + 3)))
        await harness.post(REQUEST)
    disk.close()
    assert len(known) >= 2 * (15 * 4 + 3)
    assert min(known) >= 1, "the event itself is on the disk"
    for left in disk.survivors(tmp_path):
        assert list(read_journal(left / "journal.jsonl")) == machine.events


async def test_events_that_wait_are_committed_together(
    harness: Harness, machine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, num_commits = os.fdatasync, 0

    def sync(descriptor: int) -> None:
        nonlocal num_commits
        num_commits += 1
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    await harness.post(*(report(number) for number in range(1, 31)))
    assert len(machine.events) == 30
    assert 1 <= num_commits < 30


async def test_a_runtime_that_is_ended_during_a_commit_leaves_nothing_out(
    tmp_path: Path, machine: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever saw the new state may end it: the announcements of that state are published."""
    is_syncing, real = threading.Event(), os.fdatasync

    def sync(descriptor: int) -> None:
        is_syncing.set()
        time.sleep(0.05)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    harness = Harness(tmp_path / "journal.jsonl", machine)
    machine.script = lambda event: [Announce(event.number, "info", "note", "n1", "text")]
    async with harness.running():
        harness.runtime.post(report(1))
        harness.runtime.post(REQUEST)
        while not is_syncing.is_set():  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.001)
        assert not harness.ports.calls
    assert harness.ports.named("acknowledge") == [(N1, 1)]
    assert len(harness.ports.named("publish")) == 2
    assert harness.journaled == machine.events


async def test_what_waits_long_is_committed_in_parts(tmp_path: Path, machine: Scripted) -> None:
    harness = Harness(tmp_path / "journal.jsonl", machine)
    machine.on_event = lambda _event: time.sleep(0.004)
    sizes: list[int] = []

    class Counting(Ports):
        def publish(self, at: float, announcement: Announce) -> None:
            sizes.append(len(machine.events) - len(sizes))
            super().publish(at, announcement)

    harness.ports = Counting()
    machine.script = lambda event: [Announce(event.number, "info", "note", "n1", "text")]
    async with harness.running():
        await harness.post(*(report(number) for number in range(1, 41)))
    assert max(sizes) <= 10, "nobody waits for the fortieth event"


async def test_events_are_numbered_without_gaps_in_the_order_they_came(
    harness: Harness, machine: Scripted
) -> None:
    bodies = [PlanRequested(f"r{number}", "op") for number in range(50)]
    await harness.post(*bodies[:20])
    await harness.post(*bodies[20:])
    assert [event.number for event in machine.events] == list(range(1, 51))
    assert [event.body for event in machine.events] == bodies
    times = [event.at for event in machine.events]
    assert times == sorted(times)
    assert harness.journaled == machine.events


async def test_an_event_that_can_not_be_journaled_is_neither_handled_nor_acknowledged(
    tmp_path: Path, machine: Scripted
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.close()
    ports = Ports()
    runtime = Runtime(machine, journal, LoopClock(Ticks()), "gloo")
    runtime.post(report(1))
    with pytest.raises(ValueError, match="closed file"):
        await runtime.run(RuntimeDependencies(ports, ports, ports, ports))
    assert (machine.events, ports.calls) == ([], [])


async def test_instructions_are_carried_out_in_order_before_the_next_event(
    harness: Harness, machine: Scripted
) -> None:
    halt = HaltRanks(1, (N1,), HaltOrder(task=A, generation=Generation(1), broken=(2,)))
    stop = StopRanks(1, (N1, N2), StopOrder(task=A, generation=Generation(1), is_graceful=True))
    probe = ProbeNode(1, N1, (N2,))
    announce = Announce(1, "info", "note", "n1", "text")
    answer = AnswerRequest(1, "r1", is_ok=True, code="ok", message="")
    drill = CarryOutDrill(1, "lose-node", N1)
    machine.script = lambda event: (
        [halt, stop, probe, DropRendezvous(1, A, Generation(1)), announce, answer, drill]
        if event.number == 1
        else []
    )
    await harness.post(REQUEST, REQUEST)
    assert harness.ports.calls == [
        Call("order_ranks", ((N1,), halt.order)),
        Call("order_ranks", ((N1, N2), stop.order)),
        Call("probe", (probe,)),
        Call("drop_rendezvous", (A, 1)),
        Call("publish", (0.0, announce)),
        Call("answer", (answer,)),
        Call("carry_out", (drill,)),
        Call("state_changed"),
        Call("state_changed"),
    ]


async def test_an_event_that_an_instruction_causes_waits_for_its_turn(
    tmp_path: Path, machine: Scripted
) -> None:
    harness = Harness(tmp_path / "journal.jsonl", machine)

    class Echoing(Ports):
        def answer(self, answer: AnswerRequest) -> None:
            super().answer(answer)
            harness.runtime.post(PlanRequested("echo", "op"))

    harness.ports = Echoing()
    first = AnswerRequest(1, "r1", is_ok=True, code="ok", message="")
    machine.script = lambda event: [first] if event.number == 1 else []
    async with harness.running():
        await harness.post(REQUEST, PlanRequested("r2", "op"))
        await harness.handled(3)
    requests = [event.body for event in machine.events]
    assert requests == [REQUEST, PlanRequested("r2", "op"), PlanRequested("echo", "op")]


async def test_a_start_is_one_command_per_node_with_the_ranks_of_that_node(
    harness: Harness, machine: Scripted
) -> None:
    placement = (Worker(N1, 1), Worker(N2, 0), Worker(N1, 0), Worker(N2, 1))
    goes_on = RankRef(generation=Generation(2), global_rank=3)
    resume = Resume(source="peer", committed=7, state_from=(1,))
    start = StartRanks(
        1, B, Generation(3), Layout(tp=2, dp=2), placement, (0, 1, 2), {1: goes_on}, resume,
        program=encode_program(TRAINING[B]),
    )  # fmt: skip
    machine.script = lambda _event: [start]
    await harness.post(REQUEST)

    def launch(global_rank: int, worker: int) -> RankLaunch:
        return RankLaunch(
            task=B,
            generation=Generation(3),
            global_rank=global_rank,
            worker=worker,
            layout=Layout(tp=2, dp=2),
            backend="gloo",
            training=TRAINING[B],
            continues=goes_on if global_rank == 1 else None,
            resume=resume,
            copy_holders=(3, 2, None, None),
        )

    # Rank 3 runs already, so it is not asked for.
    assert harness.ports.named("start_ranks") == [
        (N1, [launch(0, 1), launch(2, 0)]),
        (N2, [launch(1, 0)]),
    ]


async def test_ranks_that_prepare_are_told_which_rank_they_are_to_be(
    harness: Harness, machine: Scripted
) -> None:
    spares = {4: (Worker(N2, 1), 2), 5: (Worker(N1, 0), 3)}
    program = encode_program(TRAINING[B])
    machine.script = lambda _event: [
        PrepareSpares(1, B, Generation(3), Layout(tp=2, dp=3), spares, program)
    ]
    await harness.post(REQUEST)

    def launch(global_rank: int, worker: int, prepares_for: int) -> RankLaunch:
        return RankLaunch(
            task=B,
            generation=Generation(3),
            global_rank=global_rank,
            worker=worker,
            layout=Layout(tp=2, dp=3),
            training=TRAINING[B],
            prepares_for=prepares_for,
        )

    assert harness.ports.named("start_ranks") == [(N2, [launch(4, 1, 2)]), (N1, [launch(5, 0, 3)])]


async def test_a_timer_fires_once_as_an_event(harness: Harness, machine: Scripted) -> None:
    timer = JudgeNode(N1)
    machine.script = lambda event: [SetTimer(1, timer, 0.01)] if event.number == 1 else []
    await harness.post(REQUEST)
    await harness.handled(2)
    assert machine.events[1].body == TimerFired(timer)
    machine.script = lambda event: [SetTimer(1, timer, 0.01)] if event.number == 3 else []
    await harness.post(REQUEST)  # a timer that has fired can be set again
    await harness.handled(4)
    assert machine.events[3].body == TimerFired(timer)


@pytest.mark.parametrize(("first_s", "second_s"), [(60.0, 0.01), (0.02, 0.06), (0.0, 0.04)])
async def test_setting_an_equal_timer_moves_it(
    harness: Harness, machine: Scripted, first_s: float, second_s: float
) -> None:
    moved, last = JudgeNode(N1), SettleIncident("I-1")
    machine.script = lambda event: (
        [
            SetTimer(1, moved, first_s),
            SetTimer(1, last, second_s + 0.02),
            SetTimer(1, JudgeNode(NodeId("n1")), second_s),
        ]
        if event.number == 1
        else []
    )
    await harness.post(REQUEST)
    await harness.handled(3)
    timers: list[Timer] = [e.body.timer for e in machine.events if isinstance(e.body, TimerFired)]
    assert timers == [moved, last]


async def test_a_timer_does_not_count_a_pause_of_the_controller(
    harness: Harness, machine: Scripted
) -> None:
    """What came meanwhile is taken in first: a report may make the timer meaningless."""
    timer = JudgeNode(N1)
    machine.script = lambda event: [SetTimer(1, timer, 0.3)] if event.number == 1 else []
    await harness.post(REQUEST)
    time.sleep(0.8)  # noqa: ASYNC251 - the loop is to be held up
    asyncio.get_running_loop().call_later(0.02, harness.runtime.post, report(1))
    await harness.handled(3)
    assert [event.body for event in machine.events[1:]] == [report(1), TimerFired(timer)]


async def test_timers_end_with_the_runtime(tmp_path: Path, machine: Scripted) -> None:
    posted: list[EventBody] = []

    class Noting(Runtime):
        def post(self, body: EventBody) -> None:
            posted.append(body)
            super().post(body)

    harness = Harness(tmp_path / "journal.jsonl", machine)
    harness.runtime = Noting(machine, harness.journal, harness.clock, "gloo")
    machine.script = lambda _event: [SetTimer(1, JudgeNode(N1), 0.01)]
    async with harness.running():
        await harness.post(REQUEST)
    is_past = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, is_past.set)
    await is_past.wait()
    assert posted == [REQUEST]


async def test_the_demos_tasks_start_on_their_nodes_and_the_journal_tells_the_same(
    tmp_path: Path,
) -> None:
    machine = with_programs(demo_machine())
    async with Harness(tmp_path / "journal.jsonl", machine).running() as harness:
        nodes = [NodeId(f"n{number}") for number in range(1, 5)]
        await harness.post(*(NodeAttached(node, AgentId(f"{node}-1"), 1, ()) for node in nodes))
        assert [call[0] for call in harness.ports.named("start_ranks")] == nodes
        replayed = with_programs(demo_machine())
        for event in harness.journaled:
            replayed.handle(event)
        assert replayed.state == machine.state


async def test_the_log_names_each_instruction_with_its_cause(
    harness: Harness, machine: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    def script(event: Event) -> list[Instruction]:
        stop = StopRanks(
            event.number, (N2, N1), StopOrder(task=A, generation=Generation(3), is_graceful=False)
        )
        return [stop, SetTimer(event.number, JudgeNode(N1), 60.0)]

    machine.script = script
    await harness.post(REQUEST)
    entries = {e.message: e for e in log_entries(caplog, "controller.server.runtime")}
    assert entries.keys() == {"instruction carried out", "timer set"}
    assert entries["instruction carried out"].level == "info"
    assert entries["instruction carried out"].fields == {
        "instruction": "StopRanks", "cause": 1, "event": "PlanRequested",
        "task": "gpt-a", "generation": 3, "nodes": "n1,n2",
    }  # fmt: skip
    assert entries["timer set"].level == "debug"
    assert entries["timer set"].fields["after_s"] == 60.0


async def test_an_instruction_that_raises_is_logged_and_ends_the_runtime(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Ports):
        @override
        def probe(self, instruction: ProbeNode) -> None:
            raise RuntimeError("a bug")

    machine = Scripted(lambda event: [ProbeNode(event.number, N1, (N2,))])
    harness = Harness(tmp_path / "journal.jsonl", machine)
    harness.ports = Broken()
    with pytest.RaisesGroup(RuntimeError):
        async with harness.running():
            harness.runtime.post(REQUEST)
            await asyncio.Event().wait()
    harness.journal.close()
    [entry] = log_entries(caplog, "controller.server.runtime")
    assert entry.level == "error"
    assert entry.message == "instruction failed"
    assert entry.fields == {"instruction": "ProbeNode", "cause": 1}
