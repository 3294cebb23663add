"""One question to a controller from the command line, and whoever may be at the socket instead."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controller.api.client import NoControllerError, ask
from controller.api.server import ApiServer
from controller.api.wire import (
    API_VERSION,
    AskWhatIf,
    Command,
    DecideLoss,
    Greeting,
    Reply,
    UncordonNode,
)
from controller.cli import main
from tests.fakes import cluster_views
from tests.fakes.api_server import running_server


@contextlib.asynccontextmanager
async def controller(path: Path, reply: Reply, asked: list[Command]) -> AsyncIterator[None]:
    """Serve the real API; answer everything with ``reply``."""

    def take(command: Command) -> None:
        asked.append(command)
        server.answer(reply.model_copy(update={"request_id": command.request_id}))

    server = ApiServer("demo", cluster_views.calm, take)
    async with running_server(server, path):
        yield


@pytest.mark.parametrize(("is_ok", "code"), [(True, 0), (False, 1)])
async def test_uncordon_asks_and_prints_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_ok: bool, code: int
) -> None:
    path, asked = tmp_path / "api.sock", list[Command]()
    reply = Reply(request_id="", is_ok=is_ok, code="unfit", message="n1 stays isolated")
    words = ["uncordon", "n1", "--connect", str(path), "--force"]
    async with controller(path, reply, asked):
        assert await asyncio.to_thread(main, words) == code
        printed = capsys.readouterr()
        assert "n1 stays isolated" in (printed.out if is_ok else printed.err)
        assert await asyncio.to_thread(main, [*words, "--json"]) == code
        answer = json.loads(capsys.readouterr().out)
        assert answer == {"is_ok": is_ok, "code": "unfit", "message": "n1 stays isolated"}
    assert isinstance(asked[0], UncordonNode)
    assert (asked[0].node, asked[0].is_forced) == ("n1", True)


@pytest.mark.parametrize(("option", "is_lost"), [("--lost", True), ("--wait", False)])
async def test_verdict_on_a_node_out_of_contact_is_passed_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, option: str, is_lost: bool
) -> None:
    path, asked = tmp_path / "api.sock", list[Command]()
    reply = Reply(
        request_id="", is_ok=True, message="n1 counts as lost; a plan divides the remaining nodes"
    )
    words = ["unreachable", "n1", option, "--connect", str(path)]
    async with controller(path, reply, asked):
        assert await asyncio.to_thread(main, words) == 0
    assert capsys.readouterr().out == "n1 counts as lost; a plan divides the remaining nodes\n"
    assert isinstance(asked[0], DecideLoss)
    assert (asked[0].node, asked[0].is_lost) == ("n1", is_lost)


async def test_uncordon_names_one_gpu_of_a_node(tmp_path: Path) -> None:
    path, asked = tmp_path / "api.sock", list[Command]()
    reply = Reply(request_id="", is_ok=True, code="ok", message="GPU 3 of n1 is back in service")
    async with controller(path, reply, asked):
        assert await asyncio.to_thread(main, ["uncordon", "n1:3", "--connect", str(path)]) == 0
        assert await asyncio.to_thread(main, ["uncordon", "n1", "--connect", str(path)]) == 0
    asked_for = [(each.node, each.gpu) for each in asked if isinstance(each, UncordonNode)]
    assert asked_for == [("n1", 3), ("n1", None)]


@pytest.mark.parametrize("name", ["n1:", "n1:x", "n1:-1", ":1", "n1:1:2", "n1:99999", "n1:²"])
def test_a_gpu_that_is_no_number_asks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["uncordon", name, "--connect", str(tmp_path / "api.sock")]) == 2
    assert f"{name}: write NODE, or NODE:GPU" in capsys.readouterr().err


@contextlib.contextmanager
def speaker(path: Path, says: bytes) -> Iterator[None]:
    """Listen at ``path``, say something to whoever comes, and hang up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize(
    ("says", "error"),
    [
        (b"", "closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not a controller's socket"),
        (
            Greeting(version=API_VERSION + 1, cluster="x").model_dump_json().encode() + b"\n",
            "has API version",
        ),
    ],
)
def test_whoever_is_no_controller_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], says: bytes, error: str
) -> None:
    path = tmp_path / "api.sock"
    with speaker(path, says):
        assert main(["uncordon", "n1", "--connect", str(path)]) == 3
    printed = capsys.readouterr().err
    assert error in printed
    assert printed.count("\n") == 1


def test_a_socket_that_is_missing_or_dead_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "api.sock"
    assert main(["uncordon", "n1", "--connect", str(path)]) == 3
    assert "there is no controller's socket" in capsys.readouterr().err
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert main(["uncordon", "n1", "--connect", str(path)]) == 3
    assert "connection refused" in capsys.readouterr().err


def test_bytes_that_are_not_text_are_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "api.sock"))
        server.listen()
        question = AskWhatIf(request_id="r1", actor="op", lost=("\udcff",))
        with pytest.raises(NoControllerError, match="not UTF-8"):
            ask(tmp_path / "api.sock", question)
