"""Watching processes: the records of an exit, their order, and the remaining files."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from nodeagent.outbox.outbox_file import OutboxFile
from nodeagent.probes.process_stats import read_stat
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import IterationCommitted, RankExited
from nodeagent.protocol.rank_launch import CommandPlace
from nodeagent.ranks.command_ranks import CommandRanks
from nodeagent.ranks.rank_exits import ExitSources
from nodeagent.ranks.rank_files import RankFiles
from nodeagent.ranks.rank_processes import RankProcesses
from profiles.command_task import CommandTask
from tests.fakes.fake_rank import Script, launch

STEM = "gpt-a.1.0"


class LeapingClock:
    """Each look at it is a second later."""

    def __init__(self) -> None:
        self.now = 0.0

    def wall_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        self.now += 1.0
        return self.now


class FakeCauses:
    """Knows which processes were killed for memory."""

    def __init__(self) -> None:
        self.killed: set[int] = set()
        self.asked: list[int] = []
        self.watched: set[int] = set()

    def watch(self, pid: int) -> None:
        self.watched.add(pid)

    def forget(self, pid: int) -> None:
        self.watched.remove(pid)

    async def is_out_of_memory(self, pid: int) -> bool:
        self.asked.append(pid)
        return pid in self.killed


class Watch:
    """``RankProcesses`` over a directory, with a hook where the rank's connections are drained."""

    def __init__(self, directory: Path, group: asyncio.TaskGroup) -> None:
        self.files = RankFiles(directory / "ranks")
        self.outbox = OutboxFile(directory / "outbox.jsonl")
        self.on_drain: Callable[[], None] = lambda: None
        self.causes = FakeCauses()

        def spawn(work: Coroutine[Any, Any, None], _what: str) -> None:
            group.create_task(work)

        async def drained(_pid: int) -> None:
            self.on_drain()

        clock = LeapingClock()
        commands = CommandRanks(self.files, self.outbox, clock)
        sources = ExitSources(drained, self.causes, commands)
        self.ranks = RankProcesses(self.files, self.outbox, clock, spawn, sources)

    def write(self, suffix: str, content: dict[str, object]) -> None:
        (self.files.directory / f"{STEM}{suffix}").write_text(json.dumps(content))

    def write_record(self, pid: int) -> None:
        stat = read_stat(pid)
        assert stat is not None
        rank = launch(Script()).model_dump(mode="json")
        self.write(".json", {"launch": rank, "pid": pid, "start_ticks": stat.start_ticks})

    def write_command(self, pid: int) -> None:
        """Write the record of a rank that is a command."""
        stat = read_stat(pid)
        assert stat is not None
        place = CommandPlace(
            command=CommandTask(argv=("program",)),
            local_rank=0,
            local_workers=(0,),
            master_address="127.0.0.1",
        )
        rank = launch(Script()).model_copy(update={"training": None, "command": place})
        content = {"launch": rank.model_dump(mode="json"), "pid": pid}
        self.write(".json", {**content, "start_ticks": stat.start_ticks})

    def reports(self) -> list[Report]:
        return [Report.model_validate_json(held.line) for held in self.outbox.outbox.after(0)]

    def kinds(self) -> list[str]:
        return [report.observation.kind for report in self.reports()]


@pytest.fixture
def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


async def test_exit_is_stored_after_the_last_words_and_files_go_after_that(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    kinds_at_drain: list[list[str]] = []
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.on_drain = lambda: kinds_at_drain.append(watch.kinds())
            watch.write_record(sleeper.pid)
            watch.ranks.adopt_all()
            watch.ranks.adopt_all()
            ended: dict[str, object] = {
                "pid": sleeper.pid,
                "exit_code": None,
                "signal": 9,
                "wall_s": 0.0,
            }
            watch.write(".exit", ended)
            (rank,) = watch.ranks.living()
            rank.kill()
        assert kinds_at_drain == [["rank_started"]]
        assert watch.kinds() == ["rank_started", "rank_exited"]
        assert watch.ranks.living() == []
        assert list(watch.files.directory.iterdir()) == []
        watch.outbox.close()


async def test_exit_that_nobody_wrote_down_is_reported_as_unknown(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.write_record(sleeper.pid)
            watch.ranks.adopt_all()
            (rank,) = watch.ranks.living()
            rank.kill()
        exited = watch.reports()[-1].observation
        assert isinstance(exited, RankExited)
        assert (exited.exit_code, exited.signal, exited.is_expected) == (None, None, False)
        watch.outbox.close()


async def test_kill_that_nobody_here_sent_is_asked_about_and_told(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.write_record(sleeper.pid)
            watch.ranks.adopt_all()
            assert watch.causes.watched == {sleeper.pid}
            watch.causes.killed.add(sleeper.pid)
            watch.write(".exit", {"pid": sleeper.pid, "signal": 9, "wall_s": 0.0})
            sleeper.kill()
        exited = watch.reports()[-1].observation
        assert isinstance(exited, RankExited)
        assert exited.is_out_of_memory
        assert watch.causes.watched == set()
        watch.outbox.close()


@pytest.mark.parametrize(("number", "is_own"), [(9, True), (11, False)])
async def test_other_ends_are_not_asked_about(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", number: int, is_own: bool
) -> None:
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.write_record(sleeper.pid)
            watch.ranks.adopt_all()
            ended: dict[str, object] = {"pid": sleeper.pid, "signal": number, "wall_s": 0.0}
            watch.write(".exit", {**ended, "is_core_dumped": number == 11})
            (rank,) = watch.ranks.living()
            rank.kill() if is_own else sleeper.kill()
        exited = watch.reports()[-1].observation
        assert isinstance(exited, RankExited)
        assert (watch.causes.asked, exited.is_out_of_memory) == ([], False)
        assert exited.is_core_dumped == (number == 11)
        watch.outbox.close()


async def test_exit_is_told_with_the_words_of_its_own_generation_alone(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]"
) -> None:
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.write_record(sleeper.pid)
            watch.ranks.adopt_all()
            log = watch.files.directory / f"{STEM}.log"
            log.write_text("Traceback (most recent call last):\nRuntimeError: before\n")
            (rank,) = watch.ranks.living()
            watch.ranks.rename(rank, launch(Script()).model_copy(update={"generation": 2}))
            with log.open("a") as file:
                file.write("joins generation 2\n")
            watch.write(".exit", {"pid": sleeper.pid, "exit_code": 3, "wall_s": 0.0})
            sleeper.kill()
        exited = watch.reports()[-1].observation
        assert isinstance(exited, RankExited)
        assert (exited.generation, exited.stderr_tail) == (2, "joins generation 2\n")
        watch.outbox.close()


@pytest.mark.parametrize("has_attached", [True, False])
async def test_log_of_an_attached_program_is_left_alone_from_its_first_line_on(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", *, has_attached: bool
) -> None:
    with sleeper:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            first = Watch(tmp_path, group)
            first.write_command(sleeper.pid)
            log = first.files.directory / f"{STEM}.log"
            first.ranks.adopt_all()
            if has_attached:  # its hello is still on its way
                log.with_suffix(".attached").touch()
            log.write_text(" iteration 1/9 | lm loss: 1.0 |\n")
            await asyncio.sleep(0)  # the agent reads
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            first.outbox.close()

            with log.open("a") as file:
                file.write(" iteration 2/9 | lm loss: 1.0 |\n")
            watch = Watch(tmp_path, group)
            watch.ranks.adopt_all()
            watch.write(".exit", {"pid": sleeper.pid, "signal": 9, "wall_s": 0.0})
            sleeper.kill()
        told = [] if has_attached else ["iteration_committed"] * 2
        assert watch.kinds() == ["rank_started", *told, "rank_exited"]
        watch.outbox.close()


@pytest.mark.parametrize("between", ["\n", "\n" * 3000, "\r\n", "no step\n" * 50])
async def test_a_long_log_is_read_in_parts_between_which_the_loop_goes_on(
    tmp_path: Path, sleeper: "subprocess.Popen[bytes]", between: str
) -> None:
    """The clock leaps, so that each look takes the lines of one part only."""
    numbers = range(1, 101)
    lines = [f" iteration {number}/100 | lm loss: 1.0 |{between}" for number in numbers]
    num_turns, done = 0, asyncio.Event()

    async def count_turns() -> None:
        nonlocal num_turns
        while not done.is_set():
            await asyncio.sleep(0)
            num_turns += 1

    with sleeper:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            watch = Watch(tmp_path, group)
            watch.write_command(sleeper.pid)
            (watch.files.directory / f"{STEM}.log").write_text("".join(lines))
            group.create_task(count_turns())
            watch.on_drain = done.set
            watch.ranks.adopt_all()
            turns_before = num_turns
            while len(watch.reports()) < 101:  # noqa: ASYNC110 - with ``rank_started``
                await asyncio.sleep(0)
            assert num_turns - turns_before >= 3
            watch.write(".exit", {"pid": sleeper.pid, "exit_code": 0, "wall_s": 0.0})
            sleeper.kill()
        committed = [each.observation for each in watch.reports()]
        told = [each.iteration for each in committed if isinstance(each, IterationCommitted)]
        assert told == list(numbers)
        assert watch.kinds()[-2:] == ["rank_done", "rank_exited"]
        watch.outbox.close()
