"""A playback over the real socket: commands and consoles see the past as they see a cluster."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from console.viewmodel.console_state import State
from controller.api.client import ask, connect
from controller.api.server import ApiServer
from controller.api.views import ClusterView
from controller.api.wire import (
    AskWhatIf,
    MovePlayback,
    OrderNode,
    ReadEvidence,
    Reply,
    Shutdown,
)
from controller.clock import SystemClock
from controller.core.machine import Machine
from controller.core.rehearsal import Supposition
from controller.plan.rehearsal_answer import rehearsal_answer
from controller.playback import playback_server
from controller.playback.journal_past import JournalPast
from controller.playback.playback_cursor import PlaybackCursor
from controller.playback.playback_server import PlaybackServer
from controller.playback.recorded_past import RecordedPast
from controller.store.history import HISTORY_NAME, History, HistoryLine, entries_of
from nodeagent.protocol.ids import TaskId
from tests.console.test_controller_link import Client, connected
from tests.fakes import cluster_views
from tests.fakes.api_server import FakeApiServer, running_server
from tests.fakes.polling import wait_until
from tests.fakes.world import World


@asynccontextmanager
async def served(past: JournalPast, socket: Path, at: float) -> AsyncIterator[Client]:
    """Serve a past, and yield a console's link to it."""
    server = PlaybackServer(past, PlaybackCursor(at), SystemClock())
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.run(socket))
        await server.is_listening.wait()
        async with connected(Client(socket)) as client:
            yield client
        server.end()
        await serving
    assert not socket.exists()  # noqa: ASYNC240 - of a test


def move(**fields: object) -> MovePlayback:
    return MovePlayback.model_validate({"request_id": "r", "actor": "a", **fields})


def is_at(at: float, num_lines: int) -> Callable[[State], bool]:
    return lambda state: (
        state.view is not None and state.view.now == at and len(state.log.lines) == num_lines
    )


async def test_the_evidence_is_that_of_the_instant(run_dir: Path, tmp_path: Path) -> None:
    past = JournalPast(run_dir, "c")
    question = ReadEvidence(request_id="r", actor="a", incident="I-4")
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        await client.until(lambda state: state.view is not None)
        answers = []
        for there in ({"moment": "I-4"}, {"by_s": 1e9}, {"moment": "I-1"}):
            await client.link.send(move(**there))
            answers.append(await client.link.send(question))
    at_first, at_end, before = answers
    assert num_pieces(at_first) == 1
    assert num_pieces(at_end) == 2
    assert (before.is_ok, before.code) == (False, "unknown")


async def test_the_planner_answers_for_the_instant(run_dir: Path, tmp_path: Path) -> None:
    past = JournalPast(run_dir, "c")
    instants = [mark.at for mark in past.facts.marks if mark.kind == "incident"][1::2]
    answers, expected = [], []
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        state = await client.until(lambda state: state.view is not None)
        assert state.view is not None
        name = state.view.tasks[0].name
        question = AskWhatIf(request_id="w", actor="a", weights={name: 100.0})
        for at in instants:
            await client.link.send(move(by_s=at - past.facts.end - 1e9))
            await client.link.send(move(by_s=at - past.facts.begin))
            answers.append(await client.link.send(question))
    for at in instants:
        core = JournalPast(run_dir, "c").core_at(at)
        supposition = Supposition(weights={TaskId(name): 100.0})
        expected.append(rehearsal_answer(*core, at, supposition, has_problem=False))
    found = [reply.data for reply in answers if reply.data is not None]
    assert [each["objective"] for each in found] == [each["objective"] for each in expected]
    assert [each["assignments"] for each in found] == [each["assignments"] for each in expected]
    assert len({str(each["objective"]) for each in found}) > 1, "the instants differ"


class ViewsOnly(JournalPast):
    """A past without the core's state, as a recording is."""

    def core_at(self, at: float) -> None:  # type: ignore[override]  # noqa: ARG002
        return None


async def test_a_past_of_views_has_no_planner(run_dir: Path, tmp_path: Path) -> None:
    past = ViewsOnly(run_dir, "c")
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        await client.until(lambda state: state.view is not None)
        reply = await client.link.send(AskWhatIf(request_id="w", actor="a"))
    assert (reply.is_ok, reply.code) == (False, "unsupported")
    assert "not what a planner needs: play the journal" in reply.message


def num_pieces(reply: Reply) -> object:
    assert reply.data is not None
    return reply.data["num_evidence"]


async def test_a_console_follows_the_instant_forth_and_back(run_dir: Path, tmp_path: Path) -> None:
    past = JournalPast(run_dir, "c")
    facts = past.facts
    incidents = [mark for mark in facts.marks if mark.kind == "incident"]
    lines_at = {at: sum(line.at <= at for line in facts.lines) for at in (facts.begin, facts.end)}
    async with served(past, tmp_path / "p.sock", facts.end) as client:
        state = await client.until(is_at(facts.end, lines_at[facts.end]))
        assert state.playback is not None
        assert state.playback.marks == facts.marks
        for mark in incidents[:3]:
            reply = await client.link.send(move(moment=mark.name))
            assert reply.is_ok
            num = sum(line.at <= mark.at for line in facts.lines)
            state = await client.until(is_at(mark.at, num))
            assert state.view is not None
            assert mark.name in {each.id for each in state.view.incidents}
            assert state.log.num_missed == 0
        reply = await client.link.send(move(moment="I-999"))
        assert (reply.is_ok, reply.code) == (False, "invalid")
        assert "there is no incident I-999" in reply.message
        await client.link.send(move(by_s=-1e9))
        state = await client.until(is_at(facts.begin, lines_at[facts.begin]))
        await client.link.send(move(is_playing=True, speed=8.0))
        state = await client.until(
            lambda state: bool(state.view and state.view.now > facts.begin + 5)
        )
        assert state.playback is not None
        assert state.playback.is_playing


async def test_its_own_share_decides_how_long_it_rests_after_a_view(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playback_server, "_LARGEST_SHARE", 1e-6)
    past = JournalPast(run_dir, "c")
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        await client.until(lambda state: state.view is not None)
        assert (await client.link.send(move(by_s=-1e9))).is_ok
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await client.until(
                    lambda state: bool(state.view and state.view.now == past.facts.begin)
                )


async def test_nothing_can_be_ordered(run_dir: Path, tmp_path: Path) -> None:
    past = JournalPast(run_dir, "c")
    async with served(past, tmp_path / "p.sock", past.facts.end) as client:
        await client.until(lambda state: state.view is not None)
        order = OrderNode(request_id="r", actor="a", order="drain", node="n1")
        reply = await client.link.send(order)
        assert (reply.is_ok, reply.code) == (False, "unsupported")
        assert "this is a playback of the past" in reply.message


@contextmanager
def command(*words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "controller.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_other_commands_see_the_past_and_a_request_ends_the_playback(
    run_dir: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "p.sock"
    with command("playback", run_dir, "--at", "I-1", "--serve", socket) as playback:
        assert wait_until(socket.exists, limit_s=60)
        with connect(socket) as connection:
            view = next(connection.views())
        assert [incident.id for incident in view.incidents] == ["I-1"]
        with command("incidents", "--connect", socket, "--json") as incidents:
            told = json.loads(incidents.communicate(timeout=30)[0])
        assert [each["id"] for each in told] == ["I-1"]
        ask(socket, Shutdown(request_id="r", actor="a"))
        assert playback.wait(30) == 0
    assert not socket.exists()


def test_a_post_mortem_is_written_of_the_past_with_its_history(
    run_dir: Path, world: World, tmp_path: Path
) -> None:
    machine = Machine()
    entries = [each for event in world.events for each in entries_of(event, machine.handle(event))]
    History(run_dir / HISTORY_NAME).write(entries)
    socket, file = tmp_path / "p.sock", tmp_path / "I-1.md"
    with command("playback", run_dir, "--serve", socket):
        wait_until(socket.exists, limit_s=60)
        ask_for = ("post-mortem", "I-1", "--connect", socket)
        with command(*ask_for, "--output", file) as written:
            assert written.wait(30) == 0
        with command(*ask_for, "--json") as printed:
            told = json.loads(printed.communicate(timeout=30)[0])
        with command(*ask_for, "--output", file) as again:
            assert "the file is there already" in again.communicate(timeout=30)[1]
        with command("post-mortem", "I-999", "--connect", socket) as unknown:
            assert unknown.wait(30) == 4
    text = file.read_text()
    assert text.startswith("# I-1: ")
    assert told["incident"]["id"] == "I-1"
    assert told["iterations"], "the history has them"
    assert f"| {told['iterations'][0]['iteration']} |" in text
    assert {line["text"] for line in told["lines"]} <= {
        each.line.text for each in entries if isinstance(each, HistoryLine)
    }


async def has_entries(file: Path, least: int) -> None:
    """Wait until a recording has so many lines after its first."""

    def has_them() -> bool:
        return least == 0 or (file.exists() and file.read_bytes().count(b"\n") > least)

    await asyncio.to_thread(wait_until, has_them, limit_s=60)


async def test_what_a_controller_shows_is_recorded_until_ctrl_c(tmp_path: Path) -> None:
    server = FakeApiServer(tmp_path / "api.sock", cluster_views.calm())
    server.log = cluster_views.log(5)
    file = tmp_path / "night.unicron"
    async with server.serving():
        with command("record", file, "--connect", server.path, "--interval", "0.1s") as record:
            views = [cluster_views.calm(), cluster_views.parking_task(), cluster_views.waiting()]
            now = views[0].now
            for n, view in enumerate(views):
                await has_entries(file, n)
                server.publish(view.model_copy(update={"now": now + n}))
            await has_entries(file, 4)  # three moments, and the lines
            record.send_signal(signal.SIGINT)
            out, err = await asyncio.to_thread(record.communicate)
    assert record.returncode == 0, err
    assert f"unicron-console --playback {file}" in out
    past = RecordedPast(file)
    assert past.view_at(past.facts.end) == views[2].model_copy(update={"now": now + 2})
    assert len(past.facts.lines) == 5


async def test_a_recorder_is_sent_changes_and_gives_back_the_views(tmp_path: Path) -> None:
    views = [cluster_views.calm(float(n)) for n in range(100, 104)]
    views[2] = cluster_views.waiting(102.0)
    shown = iter(views)
    server = ApiServer("c", lambda: next(shown, views[-1]), lambda _: None)
    path = tmp_path / "api.sock"

    def read() -> list[ClusterView]:
        found: list[ClusterView] = []
        with connect(path) as connection:
            for news in connection.news():
                if not isinstance(news, list):
                    found.append(news)
                if news == views[-1]:
                    break
        return found

    async with running_server(server, path), asyncio.TaskGroup() as group:
        reading = group.create_task(asyncio.to_thread(read))
        while not reading.done():
            server.state_changed()
            await asyncio.sleep(0.05)
    assert reading.result() == views


async def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "there"
    file.write_text("mine")
    server = FakeApiServer(tmp_path / "api.sock", cluster_views.calm())
    async with server.serving():
        with command("record", file, "--connect", server.path) as record:
            _, err = await asyncio.to_thread(record.communicate)
    assert record.returncode == 1
    assert f"{file}: the file is there already: name a new one" in err
    assert file.read_text() == "mine"


def test_without_a_controller_no_file_is_made(tmp_path: Path) -> None:
    with command("record", tmp_path / "x", "--connect", tmp_path / "no.sock") as record:
        _, err = record.communicate(timeout=30)
    assert record.returncode == 3
    assert "there is no controller's socket" in err
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_told(run_dir: Path) -> None:
    with command("playback", run_dir, "--json") as playback:
        told = json.loads(playback.communicate(timeout=30)[0])
    facts = JournalPast(run_dir, "c").facts
    assert (told["begin"], told["end"]) == (facts.begin, facts.end)
    assert told["marks"] == [mark.model_dump(mode="json") for mark in facts.marks]
    with command("playback", run_dir) as playback:
        text = playback.communicate(timeout=30)[0]
    assert all(mark.name in text for mark in facts.marks)
    assert f"unicron-console --playback {run_dir}" in text
