"""Plain output and calls for attention: each piece of news once, in words, and nothing else."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from console.viewmodel.console_state import Link, LinkPhase, State
from console.viewmodel.news import Attention, attention_sequence, new_alerts, plain_news
from console.viewmodel.reducer import LinkChanged, Received, reduce
from controller.api.views import ClusterView, LogLevel, LogLine
from controller.api.wire import LogLines, Snapshot
from tests.console.bench import console
from tests.fakes import cluster_views
from tests.fakes.api_server import FakeApiServer

HOSTILE = "boom\x1b]0;title\x07\x1b[2J\nnext; line"


def after(state: State, *messages: ClusterView | LogLine | Link) -> State:
    for message in messages:
        match message:
            case ClusterView():
                state = reduce(state, Received(state.now + 1, Snapshot(view=message)))
            case LogLine():
                state = reduce(state, Received(state.now + 1, LogLines(lines=[message])))
            case Link():
                state = reduce(state, LinkChanged(message))
    return state


def told(*steps: ClusterView | LogLine | Link) -> list[str]:
    state, lines = State(), list[str]()
    for step in steps:
        before, state = state, after(state, step)
        lines += plain_news(before, state)
    return lines


def test_at_first_the_state_then_what_changes() -> None:
    line = LogLine(seq=1, at=31.0, level=LogLevel.ERROR, source="n4", text="lost")
    lines = told(
        Link(LinkPhase.LIVE, 1.0), cluster_views.calm(), line, cluster_views.calm(101.0),
        cluster_views.waiting(), cluster_views.healed(), Link(LinkPhase.LOST, 9.0, "it closed"),
    )  # fmt: skip
    assert lines[:3] == [
        "connected",
        "14:01:40 demo: 4 of 4 nodes healthy, 2 of 2 tasks running, WAF 100% of full",
        "14:00:31 error n4: lost",
    ]
    alerts = [line for line in lines if line.startswith("ALERT")]
    assert any("P-2" in alert and "In a shell: unicron" in alert for alert in alerts), alerts
    assert any(line.startswith("over: ") for line in lines)
    assert lines[-1] == "disconnected: it closed"
    assert len(lines) == len(set(lines)), "each is told once"


def test_of_what_was_before_only_the_newest_lines_are_told() -> None:
    state = after(State(), cluster_views.calm())
    old = reduce(state, Received(2.0, LogLines(lines=cluster_views.log(12) * 1)))
    assert len(plain_news(state, old)) == 10
    assert plain_news(old, old) == []


def test_text_of_ranks_brings_no_escape_into_a_line() -> None:
    line = LogLine(seq=1, at=31.0, level=LogLevel.ERROR, source=HOSTILE, text=HOSTILE)
    hostile = cluster_views.waiting().model_copy(update={"cluster": HOSTILE})
    for text in told(cluster_views.calm(), line, hostile):
        assert text.isprintable()
    for how in ("osc9", "osc777"):
        sequence = attention_sequence(how, HOSTILE)
        assert sequence.startswith("\x1b]")
        assert sequence.endswith("\a")
        assert sequence[2:-1].isprintable()
    assert attention_sequence("osc777", HOSTILE).count(";") == 3
    assert attention_sequence("bell", HOSTILE) == "\a"


def test_what_was_there_at_first_and_what_is_past_calls_nobody() -> None:
    first = after(State(), cluster_views.waiting())
    assert new_alerts(State(), first) == []
    calm = after(State(), cluster_views.calm())
    assert new_alerts(calm, after(calm, cluster_views.waiting()))


@pytest.mark.parametrize(
    ("how", "begin"), [("bell", "\a"), ("osc9", "\x1b]9;Unicron: "), ("none", None)]
)
async def test_the_terminal_is_called_once_when_something_waits(
    how: Attention, begin: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(cluster_views.calm(), attention=how) as bench:
        written: list[str] = []
        monkeypatch.setattr(bench.app, "_write_to_terminal", written.append)
        await bench.show(cluster_views.waiting())
        num = len(written)
        await bench.show(cluster_views.waiting(132.0))
        await bench.wait(1)
        assert len(written) == num
        assert (num > 0) is (begin is not None)
        assert all(text.startswith(begin or "?") for text in written)


async def test_lines_go_into_a_pipe_until_ctrl_c(tmp_path: Path) -> None:
    server = FakeApiServer(tmp_path / "api.sock", cluster_views.calm())
    server.log = cluster_views.log(3)
    async with server.serving():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "console.cli", "--plain", "--connect", str(server.path),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TERM": "dumb"},
        )  # fmt: skip
        assert process.stdout is not None
        lines: list[str] = []

        async def until(pattern: str) -> None:
            async with asyncio.timeout(30):
                while not (lines and re.search(pattern, lines[-1])):
                    lines.append((await process.stdout.readline()).decode().rstrip("\n"))  # type: ignore[union-attr]

        await until("running, WAF")
        server.publish(cluster_views.waiting())
        await until("ALERT .*P-2")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        _, errors = await process.communicate()
    assert errors == b""
    assert all(line.isprintable() for line in lines)


def test_plain_is_refused_where_it_tells_nothing() -> None:
    for words in (["--demo", "--plain"], ["--playback", "x", "--plain"]):
        ended = subprocess.run(
            [sys.executable, "-m", "console.cli", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 2
        assert "--plain needs --cluster or --connect" in ended.stderr
