"""Connections between nodes before any rank: what is wrong is said as it is."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from nodeagent import neighbours


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answer one connection on the loopback interface; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            stream, _ = listener.accept()
            with stream:
                answer(stream)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_the_node_that_was_meant_answers() -> None:
    with server(lambda stream: stream.sendall(b"n2\n".ljust(256 * 1024))) as port:
        assert neighbours.connect_all([["n2", "127.0.0.1", port]]) == {"n2": ""}


def test_another_program_at_that_port_is_named() -> None:
    with server(lambda stream: stream.sendall(b"n3\n")) as port:
        assert neighbours.connect("n2", "127.0.0.1", port) == "something else answers there: 'n3'"


def test_a_connection_that_stands_still_after_small_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(neighbours, "_LIMIT_S", 0.2)
    is_over = threading.Event()

    def stall(stream: socket.socket) -> None:
        stream.sendall(b"n2\n")
        is_over.wait()

    with server(stall) as port:
        try:
            found = neighbours.connect("n2", "127.0.0.1", port)
        finally:
            is_over.set()
    assert found == "a connection opens and stops after 3 bytes: is the MTU the same?"


def test_a_port_that_nobody_listens_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert neighbours.connect("n2", "127.0.0.1", port) == "Connection refused"


def test_an_address_that_is_not_here_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    neighbours.meet({"name": "n1", "host": "192.0.2.1", "interface": "", "peers": []})
    assert "it can't listen at 192.0.2.1: " in capsys.readouterr().out
    neighbours.meet({"name": "n1", "host": "127.0.0.1", "interface": "ib7", "peers": []})
    assert "this node has no interface ib7" in capsys.readouterr().out
