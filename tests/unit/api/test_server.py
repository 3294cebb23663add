"""The API server on a real unix socket: messages to each client, and limits of a bad client."""

import asyncio
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import BaseModel, TypeAdapter

from controller.api import server
from controller.api.server import ApiServer, ApiSocketError
from controller.api.view_changes import applied
from controller.api.views import ClusterView, LogLevel, LogLine
from controller.api.wire import (
    Changes,
    Command,
    FollowChanges,
    FromServer,
    Greeting,
    LogLines,
    Reply,
    RequestPlan,
    RunDrill,
    Snapshot,
)
from tests.fakes import cluster_views
from tests.fakes.api_server import running_server
from tests.fakes.log_lines import log_entries

LIMIT_S = 5.0
MANY_BYTES = 64 * 1024 * 1024
FROM_SERVER: TypeAdapter[FromServer] = TypeAdapter(FromServer)

MessageT = TypeVar("MessageT", bound=BaseModel)


class Served:
    """A server, and the controller behind it: its view, and the commands it was given."""

    def __init__(self, path: Path, largest_share: float = 0.1) -> None:
        self.path = path
        self.view = cluster_views.calm()
        self.num_views = 0
        self.pause_s = 0.0
        self.commands: list[Command] = []
        self.has_command = asyncio.Event()
        self.server = ApiServer("demo", self._look, self._take, largest_share=largest_share)
        self._num_lines = 0

    def _look(self) -> ClusterView:
        self.num_views += 1
        time.sleep(self.pause_s)  # other processes have the processor meanwhile
        return self.view

    def _take(self, command: Command) -> None:
        self.commands.append(command)
        self.has_command.set()

    async def next_command(self) -> Command:
        await self.has_command.wait()
        self.has_command.clear()
        return self.commands[-1]

    def change(self, now: float) -> None:
        self.view = self.view.model_copy(update={"now": now})
        self.server.state_changed()

    def write(self, text: str) -> None:
        self._num_lines += 1
        self.server.add_line(
            LogLine(seq=self._num_lines, at=0.0, level=LogLevel.INFO, source="n1", text=text)
        )

    def answer(self, command: Command, message: str = "") -> None:
        self.server.answer(Reply(request_id=command.request_id, is_ok=True, message=message))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Served"]:
        async with running_server(self.server, self.path):
            yield self


class Client:
    """A console: reads messages, sends commands."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def next(self) -> FromServer:
        line = await self.reader.readline()
        assert line, "the server closed the connection"
        return FROM_SERVER.validate_json(line)

    async def next_of(self, kind: type[MessageT]) -> MessageT:
        while not isinstance(message := await self.next(), kind):
            pass
        return message

    async def until_line(self, text: str) -> list[FromServer]:
        """Return everything up to the log line ``text``."""
        messages = []
        while True:
            messages.append(message := await self.next())
            if isinstance(message, LogLines) and message.lines[-1].text == text:
                return messages

    def send(self, command: BaseModel | bytes) -> None:
        line = command if isinstance(command, bytes) else command.model_dump_json().encode()
        self.writer.write(line + b"\n")

    async def is_cut_off(self) -> bool:
        """Read to the end."""
        try:
            while await self.reader.readline():
                pass
        except ConnectionResetError:
            return True
        return True


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with Served(tmp_path / "api.sock").running() as served:
        yield served


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_unix_connection(served.path, limit=MANY_BYTES)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


async def dial(served: Served) -> socket.socket:
    """Return a connection that reads nothing unless told to."""
    connection = socket.socket(socket.AF_UNIX)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, str(served.path))
    return connection


async def ask_for_ever(connection: socket.socket) -> None:
    """Send lines that are refused, as long as the connection lasts."""
    while True:
        await asyncio.get_running_loop().sock_sendall(connection, b"?\n" * 1000)


async def read_to_the_end(connection: socket.socket) -> int:
    """Return how many bytes were left to be read."""
    num_bytes = 0
    while True:
        try:
            data = await asyncio.get_running_loop().sock_recv(connection, 1 << 20)
        except ConnectionResetError:
            return num_bytes
        if not data:
            return num_bytes
        num_bytes += len(data)


def drill(request_id: str = "r1") -> RunDrill:
    return RunDrill(request_id=request_id, actor="op", drill="kill-rank")


async def test_a_client_gets_greeting_view_and_log_at_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SILENCE_S", 60.0)  # the line then differs from the intended one
    served.write("one")
    served.write("two")
    async with asyncio.timeout(20), connected(served) as client:
        assert await client.next() == Greeting(cluster="demo")
        assert await client.next() == Snapshot(view=served.view)
        lines = await client.next()
    assert isinstance(lines, LogLines)
    assert [line.text for line in lines.lines] == ["one", "two"]


async def test_every_log_line_comes_once_and_in_order(served: Served) -> None:
    served.write("before")
    async with connected(served) as client:
        await client.until_line("before")
        for number in range(100):
            served.write(str(number))
        messages = await client.until_line("99")
    lines = [
        line for message in messages if isinstance(message, LogLines) for line in message.lines
    ]
    assert [line.seq for line in lines] == list(range(2, 102))


async def test_only_the_newest_lines_are_kept_for_who_comes_later(served: Served) -> None:
    for number in range(3000):
        served.write(str(number))
    async with connected(served) as client:
        lines = await client.next_of(LogLines)
    assert [line.text for line in lines.lines] == [str(number) for number in range(1000, 3000)]


async def test_many_changes_are_one_snapshot_of_the_newest(served: Served) -> None:
    async with connected(served) as client:
        await client.next_of(Snapshot)
        num_before = served.num_views
        for number in range(100):
            served.change(float(number))
        snapshot = await client.next_of(Snapshot)
    assert snapshot.view.now == 99.0
    assert served.num_views == num_before + 1


async def test_a_reply_does_not_wait_for_views_that_are_slow_to_make(tmp_path: Path) -> None:
    """After such a view the next ones rest for longer than this test may take."""
    served = Served(tmp_path / "slow.sock", largest_share=1e-6)
    async with served.running(), connected(served) as client:
        await client.next_of(Snapshot)
        served.change(7.0)
        client.send(drill())
        async with asyncio.timeout(LIMIT_S):
            served.answer(await served.next_command(), "done")
            assert (await client.next_of(Reply)).message == "done"
        assert served.num_views == 1


async def test_the_rest_after_a_view_follows_from_the_processor_and_not_from_the_clock(
    tmp_path: Path,
) -> None:
    """By the clock this view would cost a third of a second, and the next one wait ten times so."""
    served = Served(tmp_path / "busy.sock")
    served.pause_s = 0.3
    async with served.running(), connected(served) as client:
        await client.next_of(Snapshot)
        served.change(7.0)
        async with asyncio.timeout(2.0):
            assert (await client.next_of(Snapshot)).view.now == 7.0


async def test_silence_is_told_by_a_snapshot_so_that_the_view_is_not_stale(served: Served) -> None:
    async with connected(served) as client:
        await client.next_of(Snapshot)
        assert await client.next() == Snapshot(view=served.view)


async def test_who_follows_changes_is_sent_them_alone_and_others_whole_views(
    served: Served,
) -> None:
    async with connected(served) as follower, connected(served) as script:
        view = (await follower.next_of(Snapshot)).view
        follower.send(FollowChanges())
        view = (await follower.next_of(Snapshot)).view  # from here on it counts
        await script.next_of(Snapshot)
        for scene in (cluster_views.waiting(), cluster_views.healed(), cluster_views.calm(200.0)):
            served.view = scene
            served.server.state_changed()
            while view != scene:
                view = applied(view, (await follower.next_of(Changes)).fields)
            while (await script.next_of(Snapshot)).view != scene:
                pass
        silence = await follower.next_of(Changes)
        assert silence.fields == {}


async def test_followers_that_are_not_equally_far_get_what_each_lacks(served: Served) -> None:
    async with connected(served) as early, connected(served) as late:
        early.send(FollowChanges())
        late.send(FollowChanges())
        views = {}
        for client in (early, late):
            await client.next_of(Snapshot)
            views[client] = (await client.next_of(Snapshot)).view
        served.view = cluster_views.waiting()
        served.server.state_changed()
        while views[early] != served.view:
            views[early] = applied(views[early], (await early.next_of(Changes)).fields)
        served.view = cluster_views.healed()
        served.server.state_changed()
        for client in (early, late):
            while views[client] != served.view:
                views[client] = applied(views[client], (await client.next_of(Changes)).fields)


async def test_the_socket_belongs_to_its_owner_alone(served: Served) -> None:
    mode = served.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


async def test_a_command_arrives_and_only_who_asked_gets_the_reply(served: Served) -> None:
    async with connected(served) as asker, connected(served) as other:
        await other.next_of(Snapshot)
        asker.send(drill())
        command = await served.next_command()
        assert command == drill().model_copy(update={"request_id": command.request_id})
        served.answer(command, "kill-rank on rank 1")
        reply = await asker.next_of(Reply)
        assert (reply.request_id, reply.is_ok, reply.code) == ("r1", True, "ok")
        assert reply.message == "kill-rank on rank 1"
        served.write("end")
        assert not any(isinstance(each, Reply) for each in await other.until_line("end"))


async def test_clients_that_choose_equal_request_ids_get_their_own_replies(served: Served) -> None:
    async with connected(served) as first, connected(served) as second:
        first.send(drill("same"))
        command_of_first = await served.next_command()
        second.send(drill("same"))
        command_of_second = await served.next_command()
        served.answer(command_of_second, "second")
        served.answer(command_of_first, "first")
        for client, message in ((first, "first"), (second, "second")):
            reply = await client.next_of(Reply)
            assert (reply.request_id, reply.message) == ("same", message)


async def test_answers_nobody_asked_for_go_nowhere(served: Served) -> None:
    async with connected(served) as client:
        await client.next_of(Snapshot)
        served.server.answer(Reply(request_id="drill-1", is_ok=True))
        served.write("end")
        assert not any(isinstance(each, Reply) for each in await client.until_line("end"))


async def test_what_is_no_command_is_refused_and_the_connection_stays(served: Served) -> None:
    request_id_by_line = {
        b"": "",
        b"hello": "",
        b"\xff\xfe": "",
        b"[" * 30_000: "",
        b'{"kind":"explode","request_id":"r7","actor":"op"}': "r7",
        b'{"kind":"approve_plan","request_id":"r8","actor":"op","plan":"P-1"}': "r8",
        b'{"kind":"shutdown","request_id":7,"actor":"op"}': "",
        b'{"kind":"shutdown","request_id":"\\ud800","actor":"op"}': "",
    }
    async with connected(served) as client:
        for line in request_id_by_line:
            client.send(line)
        for request_id in request_id_by_line.values():
            reply = await client.next_of(Reply)
            assert (reply.request_id, reply.is_ok, reply.code) == (request_id, False, "invalid")
            assert reply.message
        assert not served.commands
        client.send(drill())
        served.answer(await served.next_command())
        assert (await client.next_of(Reply)).is_ok


@pytest.mark.parametrize("end", [b"\n", b""])
async def test_a_line_longer_than_any_command_ends_its_client_alone(
    served: Served, end: bytes
) -> None:
    async with connected(served) as good, connected(served) as bad:
        bad.writer.write(b"x" * 200_000 + end)
        assert await bad.is_cut_off()
        good.send(drill())
        served.answer(await served.next_command())
        assert (await good.next_of(Reply)).is_ok
    assert len(served.commands) == 1


async def test_a_client_that_disappears_disturbs_nobody(served: Served) -> None:
    async with connected(served) as good:
        await good.next_of(Snapshot)
        async with connected(served) as gone:
            gone.send(drill())
            command = await served.next_command()
        async with connected(served) as silent:
            await silent.next_of(Snapshot)
        for number in range(20):
            served.change(float(number))
            served.write(str(number))
        served.answer(command)
        await good.until_line("19")


async def test_a_client_that_does_not_read_is_cut_off_before_it_costs_memory(
    served: Served,
) -> None:
    async with connected(served) as good:
        connection = await dial(served)
        await good.next_of(Snapshot)
        for number in range(6):
            for _ in range(2000):
                served.write("x" * 500)
            served.write(f"round {number}")
            await good.until_line(f"round {number}")
        assert await read_to_the_end(connection) < 3_000_000  # of 6 MB that were sent
        connection.close()
        served.write("still there")
        await good.until_line("still there")


async def test_a_client_that_asks_and_does_not_read_is_cut_off(served: Served) -> None:
    async with connected(served) as good:
        connection = await dial(served)
        with pytest.raises(ConnectionError):
            await ask_for_ever(connection)
        connection.close()
        good.send(RequestPlan(request_id="r1", actor="op"))
        served.answer(await served.next_command())
        assert (await good.next_of(Reply)).is_ok


async def test_the_end_brings_the_last_news_and_removes_the_socket(tmp_path: Path) -> None:
    served = Served(tmp_path / "api.sock")
    async with asyncio.timeout(LIMIT_S):
        async with served.running():
            client = Client(*await asyncio.open_unix_connection(served.path))
            await client.next_of(Snapshot)
            client.send(drill("last"))
            command = await served.next_command()
            served.view = served.view.model_copy(update={"is_closing": True})
            served.answer(command)
        assert (await client.next_of(Reply)).request_id == "last"
        assert (await client.next_of(Snapshot)).view.is_closing
        assert await client.is_cut_off()
    assert not served.path.exists()
    client.writer.transport.abort()


async def test_the_end_does_not_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    served = Served(tmp_path / "api.sock")
    async with asyncio.timeout(LIMIT_S):
        async with served.running(), connected(served) as good:
            connection = await dial(served)
            served.write("x" * 1_000_000)
            await good.next_of(LogLines)
        assert 0 < await read_to_the_end(connection) < 1_000_000
        connection.close()
    assert not served.path.exists()


def long_path(tmp_path: Path) -> Path:
    return tmp_path / ("x" * 120)


def taken_path(tmp_path: Path) -> Path:
    path = tmp_path / "taken.sock"
    path.write_text("mine")
    return path


def path_without_directory(tmp_path: Path) -> Path:
    return tmp_path / "missing" / "api.sock"


@pytest.mark.parametrize(
    ("choose", "reason"),
    [
        (taken_path, "Address already in use"),
        (path_without_directory, "No such file or directory"),
        (long_path, "AF_UNIX path too long"),
    ],
)
async def test_a_path_that_can_not_be_served_is_one_line(
    tmp_path: Path, choose: Callable[[Path], Path], reason: str
) -> None:
    path = choose(tmp_path)
    with pytest.raises(ApiSocketError) as caught:
        await Served(path).server.run(path)
    assert str(caught.value) == f"can't serve on {path}: {reason}"


async def test_a_file_that_is_in_the_way_is_left_alone(tmp_path: Path) -> None:
    path = taken_path(tmp_path)
    with pytest.raises(ApiSocketError):
        await Served(path).server.run(path)
    assert path.read_text() == "mine"


async def test_a_second_server_does_not_take_the_socket_of_the_first(served: Served) -> None:
    with pytest.raises(ApiSocketError):
        await Served(served.path).server.run(served.path)
    async with connected(served) as client:
        assert await client.next() == Greeting(cluster="demo")


async def test_the_log_tells_of_clients_and_of_the_answers_to_their_commands(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(served) as client:
        client.send(drill("r1"))
        served.answer(await served.next_command(), "kill-rank on rank 1")
        client.send(drill("r2"))
        request_id = (await served.next_command()).request_id
        refusal = Reply(request_id=request_id, is_ok=False, code="no_target", message="no rank")
        served.server.answer(refusal)
        client.send(b"hello")
        for _ in range(3):
            await client.next_of(Reply)
    entries = log_entries(caplog, "controller.api")
    assert entries[0].message == "client connected"
    answers = [entry.fields for entry in entries if entry.message.startswith("command ")]
    assert [(each["client"], each["request"], each["code"]) for each in answers] == [
        (1, "r1", "ok"),
        (1, "r2", "no_target"),
        (1, "", "invalid"),
    ]
    [command, _] = [entry for entry in entries if entry.message == "command"]
    assert command.fields == {"client": 1, "request": "r1", "kind": "run_drill", "actor": "op"}


async def test_the_log_warns_of_a_client_that_is_cut_off(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(served) as good:
        connection = await dial(served)
        await good.next_of(Snapshot)
        with pytest.raises(ConnectionError):
            await ask_for_ever(connection)
        connection.close()
    [warning] = [e for e in log_entries(caplog, "controller.api") if e.level == "warning"]
    assert warning.message == "client is too slow and is disconnected"
    assert warning.fields["client"] == 2


async def test_a_stale_socket_is_replaced_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with pytest.raises(ApiSocketError):
        await Served(path).server.run(path)
    served = Served(path)
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        task = group.create_task(served.server.run(path, replaces_stale=True))
        await served.server.is_listening.wait()
        task.cancel()
    path.write_text("a file of the user")
    with pytest.raises(ApiSocketError):
        await Served(path).server.run(path, replaces_stale=True)
    assert path.read_text() == "a file of the user"
