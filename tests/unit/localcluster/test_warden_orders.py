"""Orders and answers are read as they were written; the socket tells an end from silence."""

import socket

import pytest

from controller.localcluster.warden_orders import (
    Answer,
    CutMethod,
    MessageSocket,
    ServerCommand,
    WardenAction,
    WardenOrder,
)

SERVER = ServerCommand(
    argv=["/usr/sbin/sshd", "-D"],
    env={"PATH": "/bin"},
    log_path="/tmp/log",
    cut_method=CutMethod.KILL_SESSIONS,
)


def answers(connection: socket.socket) -> MessageSocket[Answer]:
    return MessageSocket(connection, Answer)


@pytest.mark.parametrize(
    "order",
    [
        WardenOrder(number=1, action=WardenAction.START, node="n1", server=SERVER),
        WardenOrder(number=2, action=WardenAction.LOSE, node="n2"),
    ],
)
def test_an_order_is_read_as_it_was_written(order: WardenOrder) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert answers(theirs).send(order)
        assert MessageSocket(ours, WardenOrder).receive() == [order]


def test_an_answer_is_read_as_it_was_written() -> None:
    answer = Answer(number=3, host_pid=7, server_pid=8, error="no\nway")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert MessageSocket(theirs, WardenOrder).send(answer)
        assert answers(ours).receive_one(1) == answer


def test_messages_arrive_whole_however_they_are_cut() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        received = answers(ours)
        theirs.sendall(b'{"num')
        assert received.receive() == []
        theirs.sendall(b'ber": 1}\n{"number": 2}\n{"number"')
        assert received.receive() == [Answer(number=1), Answer(number=2)]
        theirs.sendall(b": 3}\n")
        assert received.receive_one(1) == Answer(number=3)


def test_the_end_of_the_other_side_is_none_and_sending_says_so() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        assert answers(ours).receive() is None
        assert answers(ours).receive_one(1) is None
        assert not answers(ours).send(WardenOrder(number=1, action=WardenAction.CUT, node="n1"))


def test_silence_ends_the_wait_for_a_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert answers(ours).receive_one(0.01) is None
