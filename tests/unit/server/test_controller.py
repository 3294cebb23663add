"""A controller's config, and the takeover from a former controller."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from typing_extensions import override

from controller.clock import SystemClock
from controller.core.events import ControllerStarted, Event, PlanRequested
from controller.core.rules.policy import Policy
from controller.fleet.address import NodeAddress, SshTarget
from controller.ports import DrillGround, Publisher
from controller.server.compactor import Compactor, Retention
from controller.server.controller import Controller
from controller.server.controller_config import ControllerConfig
from controller.store.history import HISTORY_NAME, read_rows
from controller.store.journal import Journal, JournalError
from controller.store.run_lock import RunLockedError
from controller.store.segments import closed_segments, segments_directory, segments_of
from controller.store.snapshots import snapshots_of
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.rendezvous import StoreCall
from tests.fakes.node import until

N1, N2 = NodeId("n1"), NodeId("n2")


def address(node: NodeId) -> NodeAddress:
    return NodeAddress(
        node, SshTarget("127.0.0.1", 22, "op", "key", "ssh-ed25519 AAAA"), "/tmp/x", "python", 2
    )


def test_nodes_have_the_failure_domains_of_the_config(tmp_path: Path) -> None:
    config = ControllerConfig(
        [address(N1), address(N2)], [], {}, Policy(), failure_domains={N2: "rack-2"}
    )
    controller = Controller(config, tmp_path / "journal", SystemClock(), lambda _node, _text: None)
    domains = {name: node.spec.failure_domain for name, node in controller.state.nodes.items()}
    controller.close()
    assert domains == {N1: "", N2: "rack-2"}


def test_a_second_controller_on_the_same_journal_is_refused_and_writes_nothing(
    tmp_path: Path,
) -> None:
    config = ControllerConfig([address(N1), address(N2)], [], {}, Policy())
    journal = tmp_path / "journal"
    first = Controller(config, journal, SystemClock(), lambda _node, _text: None)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = ControllerConfig([address(N1)], [], {}, Policy())
    for second in (config, other):
        with pytest.raises(RunLockedError, match="a controller acts on this run already"):
            Controller(second, journal, SystemClock(), lambda _node, _text: None)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    first.close()
    Controller(config, journal, SystemClock(), lambda _node, _text: None).close()


def test_a_controller_that_can_not_begin_leaves_no_lock(tmp_path: Path) -> None:
    config = ControllerConfig([address(N1)], [], {}, Policy())
    journal = tmp_path / "journal"
    journal.write_text("?\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="line 1"):
            Controller(config, journal, SystemClock(), lambda _node, _text: None)


class Nobody(Publisher, DrillGround):
    """A publisher and drill ground that does nothing."""

    @override
    def publish(self, *_: object) -> None: ...
    @override
    def answer(self, *_: object) -> None: ...
    @override
    def state_changed(self) -> None: ...
    @override
    def carry_out(self, *_: object) -> None: ...


async def live(controller: Controller) -> None:
    """Let a controller begin its work, and end it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await controller.run(Nobody(), Nobody())


def arrival(rank: str, generation: int = 1) -> StoreCall:
    return StoreCall(
        call_id=rank,
        task=TaskId("gpt"),
        generation=Generation(generation),
        operation="add",
        keys=["arrived"],
        amount=1,
    )


async def test_the_next_controller_knows_the_rendezvous_calls_of_the_former(tmp_path: Path) -> None:
    journal, kept = tmp_path / "journal", tmp_path / "rendezvous"
    config = ControllerConfig([address(N1)], [], {}, Policy())

    def controller() -> Controller:
        return Controller(config, journal, SystemClock(), lambda _node, _text: None)

    first = controller()
    first.fleet.take_store_call(N1, arrival("rank-0"))
    await live(first)
    second = controller()
    answers = [
        reply.number
        for rank in ("rank-1", "rank-0")
        for _, reply in second.fleet._tables.call(N1, arrival(rank), 0.0)
    ]
    assert answers == [2, 1], "what was carried out is counted, and answered when it is repeated"
    second.fleet.take_store_call(N1, arrival("rank-1"))
    assert len((kept / "gpt.1.jsonl").read_text().splitlines()) == 2
    second.fleet.drop_rendezvous(TaskId("gpt"), Generation(1))
    assert not list(kept.iterdir())
    second.fleet.take_store_call(N1, arrival("rank-0", generation=2))
    await live(second)

    (tmp_path / "journal").unlink()  # another run in the same directory
    third = controller()
    assert not list(kept.iterdir())
    await live(third)


# --- segments and snapshots ------------------------------------------------------------------


async def request_plans(controller: Controller, journal: Path, num: int) -> None:
    """Have the core handle so many events, and end once its segments are compacted."""
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(controller.run(Nobody(), Nobody()))
        for number in range(num):
            controller.post(PlanRequested(f"r{number}", "op"))
            await asyncio.sleep(0)
        await until(
            lambda: controller.num_events > num and is_compacted(journal), "it is compacted", 60
        )
        await until(lambda: controller.view().journal_bytes == num_bytes(journal), "it says so", 60)
        serving.cancel()


def num_bytes(journal: Path) -> int:
    return sum(segment.num_bytes for segment in segments_of(journal))


def is_compacted(journal: Path) -> bool:
    closed = closed_segments(journal)
    return all(each.is_compressed for each in closed) and bool(snapshots_of(journal))


async def test_segments_are_compacted_and_the_next_controller_begins_with_the_snapshot(
    tmp_path: Path,
) -> None:
    config = ControllerConfig(
        [address(N1)], [], {}, Policy(), retention=Retention(segment_events=10)
    )
    journal, clock = tmp_path / "journal.jsonl", SystemClock()
    first = Controller(config, journal, clock, lambda _node, _text: None)
    await request_plans(first, journal, 35)
    newest = snapshots_of(journal)[0].number
    assert newest >= 10
    for segment in closed_segments(journal):
        segment.path.unlink()
    second = Controller(config, journal, clock, lambda _node, _text: None)
    try:
        assert second.view().term == 2
        assert second.num_events == first.num_events + 1
        assert second.state.nodes.keys() == first.state.nodes.keys()
    finally:
        second.close()


async def test_a_compaction_that_fails_is_told_and_costs_nothing_else(tmp_path: Path) -> None:
    config = ControllerConfig(
        [address(N1)], [], {}, Policy(), retention=Retention(segment_events=10)
    )
    notes: list[tuple[str, str]] = []
    journal = tmp_path / "journal.jsonl"
    controller = Controller(config, journal, SystemClock(), lambda *note: notes.append(note))
    damaged = segments_directory(journal) / "000000000001-000000000003.jsonl"
    damaged.parent.mkdir()
    damaged.write_bytes(b"?\n")
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(controller.run(Nobody(), Nobody()))
        for number in range(15):
            controller.post(PlanRequested(f"r{number}", "op"))
        await until(lambda: any(source == "journal" for source, _ in notes), "it is told", 60)
        assert controller.num_events > 15
        serving.cancel()
    [text] = [text for source, text in notes if source == "journal"]
    assert text.startswith("can't be compacted, and grows meanwhile: ")
    assert f"{damaged}, line 1" in text


async def test_what_a_crash_kept_from_the_history_is_written_by_the_next_controller(
    tmp_path: Path,
) -> None:
    config = ControllerConfig([address(N1)], [], {}, Policy())
    journal, clock, history = tmp_path / "journal.jsonl", SystemClock(), tmp_path / HISTORY_NAME
    for _ in range(2):
        await live(Controller(config, journal, clock, lambda _node, _text: None))
    before = list(read_rows(history, "lines"))
    assert [row["kind"] for row in before] == ["takeover"]
    history.unlink()
    await live(Controller(config, journal, clock, lambda _node, _text: None))
    after = list(read_rows(history, "lines"))
    assert after[0] == before[0]
    assert [row["kind"] for row in after] == ["takeover", "takeover"]


async def test_a_history_that_cannot_be_written_is_told_once_and_costs_nothing_else(
    tmp_path: Path,
) -> None:
    config = ControllerConfig([address(N1)], [], {}, Policy())
    (tmp_path / HISTORY_NAME).write_bytes(b"?" * 5000)
    notes: list[tuple[str, str]] = []
    controller = Controller(
        config, tmp_path / "journal.jsonl", SystemClock(), lambda *note: notes.append(note)
    )
    await live(controller)
    assert controller.num_events > 0
    [text] = [text for source, text in notes if source == "history"]
    assert text.startswith(f"is not written: {tmp_path / HISTORY_NAME}: ")


async def test_the_history_is_written_before_a_snapshot_takes_the_place_of_events(
    tmp_path: Path,
) -> None:
    path, done = tmp_path / "journal.jsonl", asyncio.Event()
    journal = Journal(path, segment_events=1)
    journal.append(Event(1, 0.0, ControllerStarted("run", 1, 0.0)))
    journal.commit_at_once()
    journal.begin_segment()
    journal.close()
    seen, notes = list[int](), list[str]()

    async def prepare() -> None:
        seen.append(len(snapshots_of(path)))

    compactor = Compactor(path, Retention(), prepare, done.set, notes.append)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        serving = group.create_task(compactor.run())
        await done.wait()
        serving.cancel()
    assert seen == [0]
    assert len(snapshots_of(path)) == 1
