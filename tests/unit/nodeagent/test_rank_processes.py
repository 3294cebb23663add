"""Watching processes: what is stored at an exit, in which order, and what is left behind."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from nodeagent.command_ranks import CommandRanks
from nodeagent.outbox_file import OutboxFile
from nodeagent.probes.processes import read_stat
from nodeagent.processes import RankProcesses
from nodeagent.protocol.messages import Report
from nodeagent.protocol.observations import RankExited
from nodeagent.rank_files import RankFiles
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


class Watch:
    """``RankProcesses`` over a directory, with a hook where the rank's connections are drained."""

    def __init__(self, directory: Path, group: asyncio.TaskGroup) -> None:
        self.files = RankFiles(directory / "ranks")
        self.outbox = OutboxFile(directory / "outbox.jsonl")
        self.on_drain: Callable[[], None] = lambda: None

        def spawn(work: Coroutine[Any, Any, None], _what: str) -> None:
            group.create_task(work)

        async def drained(_pid: int) -> None:
            self.on_drain()

        clock = LeapingClock()
        commands = CommandRanks(self.files, self.outbox, clock)
        self.ranks = RankProcesses(self.files, self.outbox, clock, spawn, drained, commands)

    def write(self, suffix: str, content: dict[str, object]) -> None:
        (self.files.directory / f"{STEM}{suffix}").write_text(json.dumps(content))

    def write_record(self, pid: int) -> None:
        stat = read_stat(pid)
        assert stat is not None
        rank = launch(Script()).model_dump(mode="json")
        self.write(".json", {"launch": rank, "pid": pid, "start_ticks": stat.start_ticks})

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
