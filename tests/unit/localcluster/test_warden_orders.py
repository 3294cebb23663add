"""Orders and answers survive their line format; the socket tells an end from silence."""

import socket

import pytest

from controller.localcluster.warden_orders import (
    Action,
    Answer,
    CutMethod,
    LineSocket,
    ServerCommand,
    WardenOrder,
    decode_answer,
    decode_order,
    encode,
)

SERVER = ServerCommand(
    argv=["/usr/sbin/sshd", "-D"],
    env={"PATH": "/bin"},
    log_path="/tmp/log",
    cut_method=CutMethod.KILL_SESSIONS,
)


@pytest.mark.parametrize(
    "order", [WardenOrder(1, Action.START, "n1", SERVER), WardenOrder(2, Action.LOSE, "n2")]
)
def test_an_order_is_read_as_it_was_written(order: WardenOrder) -> None:
    line = encode(order)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode_order(line) == order


def test_an_answer_is_read_as_it_was_written() -> None:
    answer = Answer(3, host_pid=7, server_pid=8, error="no\nway")
    assert decode_answer(encode(answer)) == answer


def test_lines_arrive_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lines = LineSocket(ours)
        theirs.sendall(b"on")
        assert lines.receive() == []
        theirs.sendall(b"e\ntwo\nthr")
        assert lines.receive() == [b"one", b"two"]
        theirs.sendall(b"ee\n")
        assert lines.receive_line(1) == b"three"


def test_the_end_of_the_other_side_is_none_and_sending_says_so() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert LineSocket(ours).receive() is None
        assert LineSocket(ours).receive_line(1) is None
        assert not LineSocket(ours).send(b"anybody?\n")


def test_silence_ends_the_wait_for_a_line() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert LineSocket(ours).receive_line(0.01) is None
