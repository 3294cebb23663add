"""The connection to the API socket, against a scripted server on a real unix socket."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from console.client.controller_link import ApiLink, connect_failure
from console.client.source import Inbox, NoReplyError
from console.viewmodel.console_state import LinkPhase, State
from console.viewmodel.reducer import reduce
from controller.api.server import ApiServer
from controller.api.view_changes import applied
from controller.api.views import ClusterView
from controller.api.wire import API_VERSION, Changes, Greeting, Reply, RequestPlan
from tests.fakes import cluster_views
from tests.fakes.api_server import FakeApiServer, running_server


class Client:
    """A link with its inbox folded into a state."""

    def __init__(self, path: Path, reply_timeout_s: float = 20.0) -> None:
        clock: Callable[[], float] = time.monotonic  # noqa: TID251 (a real connection)
        self.link = ApiLink(path, clock, first_delay_s=0.01, reply_timeout_s=reply_timeout_s)
        self.inbox = Inbox()
        self.state = State()

    async def until(self, is_reached: Callable[[State], bool]) -> State:
        """Fold events until the state is as wanted."""
        async with asyncio.timeout(5):
            while True:
                for event in self.inbox.drain():
                    self.state = reduce(self.state, event)
                if is_reached(self.state):
                    return self.state
                await asyncio.sleep(0.005)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer(tmp_path / "api.sock", cluster_views.calm())
    server.log = cluster_views.log(5)
    async with server.serving():
        yield server


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[Client]:
    async with connected(Client(server.path)) as client:
        yield client


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Client]:
    """Run the link of a client."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.link.run(client.inbox))
        yield client
        task.cancel()


async def test_a_client_gets_greeting_view_and_log(client: Client) -> None:
    state = await client.until(lambda state: len(state.log.lines) == 5)
    assert state.link.phase is LinkPhase.LIVE
    assert state.view == cluster_views.calm()


async def test_new_views_and_lines_arrive(server: FakeApiServer, client: Client) -> None:
    await client.until(lambda state: state.view is not None)
    server.publish(cluster_views.waiting())
    server.write(*cluster_views.log(7)[5:])
    state = await client.until(lambda state: len(state.log.lines) == 7)
    assert state.pending is not None


async def test_a_dropped_connection_is_made_again_without_doubled_lines(
    server: FakeApiServer, client: Client
) -> None:
    await client.until(lambda state: len(state.log.lines) == 5)
    server.drop_clients()
    lost = await client.until(lambda state: state.link.phase is LinkPhase.LOST)
    # An end is a reset where the server had not read all yet.
    assert lost.link.reason in {
        "the controller closed the connection",
        "connection lost: Connection reset by peer",
    }
    server.log = cluster_views.log(8)
    state = await client.until(lambda state: len(state.log.lines) == 8)
    assert state.link.phase is LinkPhase.LIVE
    assert [line.seq for line in state.log.lines] == list(range(1, 9))


async def test_a_reply_reaches_the_command_it_belongs_to(
    server: FakeApiServer, client: Client
) -> None:
    await client.until(lambda state: state.view is not None)
    server.answer = lambda command: Reply(
        request_id=command.request_id, is_ok=False, code="nothing", message=command.request_id
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(client.link.send(RequestPlan(request_id=name, actor="alex")))
            for name in ("a", "b", "c")
        ]
    assert [task.result().message for task in tasks] == ["a", "b", "c"]


async def test_a_late_reply_is_no_reply(server: FakeApiServer) -> None:
    server.answer = lambda _: None
    async with connected(Client(server.path, reply_timeout_s=0.5)) as client:
        await client.until(lambda state: state.view is not None)
        with pytest.raises(NoReplyError, match="no reply within"):
            await client.link.send(RequestPlan(request_id="a", actor="alex"))
    assert len(server.received) == 1


async def test_a_connection_that_goes_leaves_the_outcome_open(
    server: FakeApiServer, client: Client
) -> None:
    await client.until(lambda state: state.view is not None)

    def vanish(_: object) -> None:
        server.drop_clients()

    server.answer = vanish
    with pytest.raises(NoReplyError, match="the connection was lost"):
        await client.link.send(RequestPlan(request_id="a", actor="alex"))


async def test_without_a_connection_nothing_is_sent(tmp_path: Path) -> None:
    client = Client(tmp_path / "none.sock")
    with pytest.raises(NoReplyError, match="nothing was sent"):
        await client.link.send(RequestPlan(request_id="a", actor="alex"))


async def test_another_api_version_is_refused_with_both_numbers(tmp_path: Path) -> None:
    server = FakeApiServer(tmp_path / "api.sock", cluster_views.calm())
    server.version = 99
    client = Client(server.path)
    async with server.serving(), asyncio.TaskGroup() as group:
        task = group.create_task(client.link.run(client.inbox))
        state = await client.until(lambda state: state.link.phase is LinkPhase.INCOMPATIBLE)
        assert f"version 99, this console needs {API_VERSION}" in state.link.reason
        assert state.view is None
        task.cancel()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json\n", "the controller sent message"),
        (b'{"kind":"later"}\n', "the controller sent message"),
        (b'{"kind":"snapshot","view":{"cluster":1}}\n', "the controller sent snapshot.view"),
        (
            b'{"kind":"changes","fields":{"nodes":{"order":[7]}}}\n',
            "the controller sent changes that do not fit: nodes.7: there are 4 entries",
        ),
    ],
)
async def test_nonsense_ends_the_connection_with_a_reason(
    server: FakeApiServer, client: Client, line: bytes, reason: str
) -> None:
    await client.until(lambda state: state.view is not None)
    server.send_raw(line)
    state = await client.until(lambda state: state.link.phase is LinkPhase.LOST)
    assert reason in state.link.reason


async def test_losses_that_are_not_numbers_arrive(server: FakeApiServer, client: Client) -> None:
    await client.until(lambda state: state.view is not None)
    task = cluster_views.task("gpt-a", 3, loss=float("nan"), losses={3: float("inf")})
    server.publish(cluster_views.calm().model_copy(update={"tasks": [task]}))
    state = await client.until(lambda state: state.view is not None and len(state.view.tasks) == 1)
    assert state.view is not None
    assert state.view.tasks[0].losses == {3: float("inf")}


def _shows(view: ClusterView, state: State) -> bool:
    return state.view == view


async def test_a_real_server_sends_changes_and_whole_views_come_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_changes = 0

    def counted(view: ClusterView, fields: Mapping[str, JsonValue]) -> ClusterView:
        nonlocal num_changes
        num_changes += 1
        return applied(view, fields)

    monkeypatch.setattr("console.client.controller_link.applied", counted)
    scenes = [cluster_views.calm(), cluster_views.waiting(), cluster_views.healed()]
    showing = scenes[0]
    server = ApiServer("demo", lambda: showing, lambda _: None)
    async with (
        running_server(server, tmp_path / "api.sock"),
        connected(Client(tmp_path / "api.sock")) as client,
    ):
        for scene in [*scenes, *scenes]:
            showing = scene
            server.state_changed()
            state = await client.until(partial(_shows, scene))
            assert state.link.phase is LinkPhase.LIVE
    assert num_changes >= len(scenes)


async def test_changes_without_a_view_before_them_end_the_connection(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for message in (Greeting(cluster="demo"), Changes(fields={"now": 1.0})):
            writer.write(message.model_dump_json().encode() + b"\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(serve, tmp_path / "api.sock") as server:
        await server.start_serving()
        async with connected(Client(tmp_path / "api.sock")) as client:
            state = await client.until(lambda state: state.link.phase is LinkPhase.LOST)
    assert state.link.reason == "the controller sent changes of a view that it has not sent"


async def test_a_missing_socket_is_named(tmp_path: Path) -> None:
    client = Client(tmp_path / "none.sock")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(client.link.run(client.inbox))
        state = await client.until(lambda state: state.link.phase is LinkPhase.LOST)
        assert state.link.reason == f"no controller socket at {tmp_path / 'none.sock'}"
        assert state.link.retry_at is not None
        task.cancel()


def test_connection_errors_are_told_apart() -> None:
    path = Path("api.sock")
    assert "nobody" not in connect_failure(path, FileNotFoundError())
    assert connect_failure(path, ConnectionRefusedError()) == "no controller listens at api.sock"
    assert connect_failure(path, PermissionError()) == "api.sock belongs to another user"
    assert "too long" in connect_failure(path, OSError("AF_UNIX path too long"))
