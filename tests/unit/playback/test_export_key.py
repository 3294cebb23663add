"""Writing the post-mortem of an incident from the console."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.client.incident_export import write_post_mortem
from console.command_registry import can_export
from console.viewmodel.console_state import Link, LinkPhase, State
from controller.playback.journal_past import JournalPast
from tests.console.bench import console
from tests.fakes import cluster_views
from tests.fakes.demo_runs import processes_under
from tests.fakes.directories import short_directory
from tests.unit.playback.test_playback_server import served

_LIMIT_S = 50.0


@pytest.fixture
def short() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


@pytest.mark.timeout(120)
async def test_the_key_writes_the_incident_that_is_shown(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = JournalPast(run_dir, "c")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        state = await client.until(lambda state: bool(state.view and state.view.incidents))
        assert state.view is not None
        name = state.view.incidents[-1].id
        async with console(state.view, size=(160, 48)) as bench:
            bench.source.socket_path = tmp_path / "p.sock"
            await bench.press("colon", opens_dialog=True)
            await bench.press(*name, "enter")
            assert "<e>export" in bench.screen
            await bench.press("e")
            async with asyncio.timeout(_LIMIT_S):
                while "written to" not in bench.screen:
                    await asyncio.sleep(0.1)  # its process needs the core that the pilot would take
                    await bench.pilot.pause()
            text = (tmp_path / "out" / f"{name}.md").read_text()
            assert name in text.splitlines()[0]
            assert len(text.splitlines()) > 20
            await bench.press("e")
            await bench.until(lambda: "is there already: move it away first" in bench.screen)


async def test_what_can_t_be_written_is_said(tmp_path: Path) -> None:
    missing = tmp_path / "none.sock"
    is_ok, message = await write_post_mortem(missing, "I-1", tmp_path)
    assert not is_ok
    assert "no controller" in message
    for name in ("../I-1", "-I", "", "a\x00b", "x" * 65):
        is_ok, message = await write_post_mortem(missing, name, tmp_path)
        assert (is_ok, message) == (False, "this incident has a name that no file should have")
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - of a test


async def test_no_process_outlives_a_console_that_ends_meanwhile(short: Path) -> None:
    has_come = asyncio.Event()

    def keep_waiting(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        has_come.set()

    writers = list[asyncio.StreamWriter]()
    server = await asyncio.start_unix_server(keep_waiting, short / "a.sock")
    async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(write_post_mortem(short / "a.sock", "I-1", short))
        await has_come.wait()
        assert len(processes_under(short)) == 1
        writing.cancel()
        async with asyncio.timeout(5.0):  # by itself it would wait for an answer
            await asyncio.wait([writing])
    assert writing.cancelled()
    assert processes_under(short) == []
    for writer in writers:
        writer.close()
    server.close()


def test_it_is_refused_with_the_reason() -> None:
    live = State(link=Link(LinkPhase.LIVE, 0.0), view=cluster_views.calm())
    assert can_export(State()) == "not connected to the controller"
    assert can_export(State(is_in_browser=True)) == "a console in a browser writes no files"
    assert can_export(live) is True
