"""A server without a demo: started, asked, replaced, and stopped."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from typing_extensions import override

from controller.api import wire
from controller.api.client import ask, connect
from controller.api.server import ApiSocketError
from controller.clock import SystemClock
from controller.core.events import DrillRequested, PlanRequested
from controller.core.instructions import Announce, AnswerRequest, CarryOutDrill
from controller.core.rules.policy import Policy
from controller.fleet.address import NodeAddress, SshTarget
from controller.ports import DrillGround
from controller.server.announcements import AnnouncementObserver
from controller.server.controller_config import ControllerConfig
from controller.server.controller_server import ControllerServer, ServerPlaces
from controller.server.server_hooks import ServerHooks
from nodeagent.protocol.ids import NodeId
from tests.fakes.log_lines import log_entries
from tests.fakes.saved_runs import readable_events

N1 = NodeId("n1")
LIMIT_S = 20.0
CONFIG = ControllerConfig(
    [
        NodeAddress(
            N1, SshTarget("127.0.0.1", 1, "op", "key", "ssh-ed25519 AAAA"), "/tmp/x", "python", 2
        )
    ],
    [],
    {},
    Policy(),
)
"""One node, and nothing listens at its port."""


class Recorder(AnnouncementObserver, DrillGround):
    """Keeps announcements, answers and drills."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.answers: list[AnswerRequest] = []
        self.drills: list[str] = []

    @override
    def observe(self, at: float, announcement: Announce) -> None:
        self.texts.append(announcement.text)

    @override
    def carry_out(self, drill: CarryOutDrill) -> None:
        self.drills.append(drill.drill)


def new_server(directory: Path, hooks: ServerHooks | None = None) -> ControllerServer:
    places = ServerPlaces(directory, directory / "api.sock", directory / "events.jsonl")
    return ControllerServer("test", CONFIG, places, SystemClock(), hooks)


@contextlib.asynccontextmanager
async def running(server: ControllerServer) -> AsyncIterator[None]:
    """Run a server for the length of the block, from the moment when clients can connect."""
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        service = group.create_task(server.run())
        await server.is_ready.wait()
        try:
            yield
        finally:
            service.cancel()


async def asked(directory: Path, command: wire.Command) -> wire.Reply:
    return await asyncio.to_thread(ask, directory / "api.sock", command)


async def test_a_server_shows_its_cluster_and_leaves_only_files(tmp_path: Path) -> None:
    def first_view() -> str:
        with connect(tmp_path / "api.sock") as connection:
            return next(connection.views()).cluster

    server = new_server(tmp_path)
    async with running(server):
        assert (tmp_path / "api.sock").stat().st_mode & 0o777 == 0o600
        assert await asyncio.to_thread(first_view) == "test"
        assert [node.node for node in server.view().nodes] == ["n1"]
    assert not (tmp_path / "api.sock").exists()
    assert not server.is_ready.is_set()
    assert readable_events(tmp_path)[0]["type"] == "ControllerStarted"
    assert (tmp_path / "events.jsonl").exists()


async def test_without_hooks_drills_and_shutdown_are_refused(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    async with running(server):
        drill = await asked(tmp_path, wire.RunDrill(request_id="1", actor="a", drill="kill-rank"))
        end = await asked(tmp_path, wire.Shutdown(request_id="2", actor="a"))
    assert (drill.code, end.code) == ("unsupported", "unsupported")
    assert not server.is_closing
    assert "DrillRequested" not in {event["type"] for event in readable_events(tmp_path)}


async def test_a_drill_without_a_drill_ground_is_announced(tmp_path: Path) -> None:
    recorder = Recorder()
    server = new_server(tmp_path, ServerHooks(observers=[recorder]))
    async with running(server):
        server.post(DrillRequested("1", "a", "kill-controller"))
        while not any("is not carried out" in text for text in recorder.texts):
            await server.next_change()


async def test_hooks_get_announcements_answers_drills_and_the_end(tmp_path: Path) -> None:
    recorder = Recorder()
    hooks = ServerHooks(
        observers=[recorder],
        answered=recorder.answers.append,
        drills=recorder,
        may_shut_down=True,
    )
    server = new_server(tmp_path, hooks)
    async with running(server):
        server.note("test", "a line of the owner")
        drill = wire.RunDrill(request_id="1", actor="a", drill="kill-controller")
        assert (await asked(tmp_path, drill)).is_ok
        assert recorder.drills == ["kill-controller"]
        assert (await asked(tmp_path, wire.Shutdown(request_id="2", actor="a"))).is_ok
        assert server.is_closing
        assert server.view().is_closing
    assert "a line of the owner" in recorder.texts
    assert [answer.message for answer in recorder.answers] == [
        "kill-controller on the controller",
        "ending",
    ]
    log = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["text"] for line in log] == recorder.texts


async def test_questions_are_answered_by_the_present_controller(tmp_path: Path) -> None:
    async with running(new_server(tmp_path)):
        reply = await asked(tmp_path, wire.DescribeCluster(request_id="1", actor="a"))
    assert reply.is_ok
    assert reply.data is not None
    assert "settle_s" in json.dumps(reply.data), "the policy"


async def test_a_replaced_controller_is_followed_by_one_that_takes_over(tmp_path: Path) -> None:
    server = new_server(tmp_path)
    async with running(server):
        server.post(PlanRequested("1", "a"))
        server.replace_controller(pause_s=0.0)
        while [event["type"] for event in readable_events(tmp_path)].count("ControllerStarted") < 2:
            await server.next_change()
        await server.is_ready.wait()
        assert (await asked(tmp_path, wire.RequestPlan(request_id="2", actor="a"))).code
    terms = [
        event["body"]["term"]
        for event in readable_events(tmp_path)
        if event["type"] == "ControllerStarted"
    ]
    assert terms == [1, 2]


async def test_a_later_server_takes_over_from_the_journal(tmp_path: Path) -> None:
    async with running(new_server(tmp_path)):
        pass
    server = new_server(tmp_path)
    async with running(server):
        while [event["type"] for event in readable_events(tmp_path)].count("ControllerStarted") < 2:
            await server.next_change()


async def test_a_socket_that_is_taken_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "api.sock").touch()
    server = new_server(tmp_path)
    with pytest.RaisesGroup(ApiSocketError, flatten_subgroups=True):
        await server.run()


async def test_the_log_tells_when_a_server_starts_and_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(new_server(tmp_path)):
        pass
    entries = log_entries(caplog, "controller.server.controller_server")
    assert [entry.message for entry in entries] == [
        "server started", "server is ready", "server is stopping", "server stopped",
    ]  # fmt: skip
    assert entries[0].fields["nodes"] == 1
    assert entries[1].fields == {"cluster": "test", "socket": str(tmp_path / "api.sock")}


async def test_announcements_are_logged_at_their_level(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = new_server(tmp_path)
    async with running(server):
        server.note("n1", "trouble", level="warning")
        server.note("demo", "fine", level="good")
    entries = log_entries(caplog, "controller.server.announcements")
    mine = [(entry.level, entry.message, entry.fields["source"]) for entry in entries]
    assert ("warning", "trouble", "n1") in mine
    assert ("info", "fine", "demo") in mine
