"""Root cause and symptoms."""

from dataclasses import replace

import pytest

from controller.core.rules.diagnosis import diagnose, diagnose_symptoms
from controller.core.rules.evidence import Evidence, evidence_of
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from nodeagent.protocol.observations import LaunchFailed, RankExited, RankRaised

TASK, GENERATION = TaskId("gpt-a"), Generation(1)


def exited(rank: int, at: float, *, signal: int | None = None, code: int | None = None) -> Evidence:
    observation = RankExited(
        task=TASK, generation=GENERATION, global_rank=rank, pid=7, exit_code=code, signal=signal
    )
    return evidence_of(observation, node=NodeId("n1"), at=at, observed_at=at)


def raised(
    rank: int,
    at: float,
    *,
    is_in_collective: bool,
    message: str = "Connection closed by peer\nsecond line",
) -> Evidence:
    observation = RankRaised(
        task=TASK,
        generation=GENERATION,
        global_rank=rank,
        exception_type="RuntimeError",
        message=message,
        traceback="",
        is_in_collective=is_in_collective,
        iteration=3,
    )
    return evidence_of(observation, node=NodeId("n2"), at=at, observed_at=at)


def test_a_killed_rank_outweighs_the_failed_collectives_that_came_first() -> None:
    evidence = [
        raised(0, 1.0, is_in_collective=True),
        raised(2, 1.1, is_in_collective=True),
        exited(1, 1.2, signal=9),
    ]
    diagnosis = diagnose(evidence)
    assert diagnosis is not None
    assert (diagnosis.status, diagnosis.severity) == ("exited_abnormally", "SEV2")
    assert diagnosis.root.global_rank == 1
    assert "SIGKILL" in diagnosis.reason
    assert "2 symptom(s)" in diagnosis.reason


def test_failed_collectives_alone_name_no_fault() -> None:
    assert diagnose([raised(0, 1.0, is_in_collective=True)]) is None


def test_failed_collectives_that_stay_alone_are_named_in_the_end() -> None:
    diagnosis = diagnose_symptoms([raised(0, 1.0, is_in_collective=True)])
    assert (diagnosis.status, diagnosis.severity) == ("connection_refused_or_reset", "SEV3")


NO_ROUTE = "[/gloo/socket.cc:142] rv != -1. connect: Network is unreachable"


def test_the_only_node_without_a_route_is_where_a_broken_connection_is() -> None:
    echo = raised(0, 1.0, is_in_collective=True)
    own = raised(1, 1.2, is_in_collective=True, message=NO_ROUTE)
    found = diagnose_symptoms([echo, own])
    assert (found.status, found.root.global_rank, found.is_local) == (
        "other_network_error",
        1,
        True,
    )
    assert not diagnose_symptoms([echo]).is_local


def test_several_nodes_without_a_route_show_no_place() -> None:
    one = raised(1, 1.0, is_in_collective=True, message=NO_ROUTE)
    assert not diagnose_symptoms([one, replace(one, node=NodeId("n5"))]).is_local


def test_an_exit_after_an_exception_of_the_same_rank_belongs_to_the_exception() -> None:
    own = raised(1, 1.1, is_in_collective=False, message="index 7 is out of range")
    diagnosis = diagnose([exited(1, 1.0, code=1), own])
    assert diagnosis is not None
    assert diagnosis.method == "exception propagation"
    assert diagnosis.status == "other_software_error"


def test_the_earliest_of_two_conclusive_traces_is_the_root() -> None:
    diagnosis = diagnose(
        [exited(3, 2.0, signal=6), raised(1, 1.0, is_in_collective=False, message="bad batch")]
    )
    assert diagnosis is not None
    assert diagnosis.root.global_rank == 1


def test_a_reset_connection_is_not_the_root_beside_a_death() -> None:
    diagnosis = diagnose([raised(0, 0.9, is_in_collective=False), exited(2, 1.0, signal=9)])
    assert diagnosis is not None
    assert (diagnosis.status, diagnosis.root.global_rank) == ("exited_abnormally", 2)


def test_a_rank_can_not_know_that_a_node_is_gone() -> None:
    words = "connectFullMesh failed with error: No route to host: Host is unreachable"
    assert raised(0, 1.0, is_in_collective=True, message=words).status == "other_network_error"


def test_an_unknown_signal_and_an_unknown_status_are_said_plainly() -> None:
    assert "signal 200" in exited(0, 1.0, signal=200).summary
    assert "unknown" in exited(0, 1.0).summary


def test_a_launch_that_failed_is_conclusive() -> None:
    observation = LaunchFailed(
        task=TASK, generation=GENERATION, global_rank=0, reason="no template"
    )
    evidence = evidence_of(observation, node=NodeId("n1"), at=1.0, observed_at=1.0)
    diagnosis = diagnose([evidence])
    assert diagnosis is not None
    assert diagnosis.status == "other_software_error"


def test_only_the_first_line_of_a_message_is_quoted() -> None:
    assert "second line" not in raised(0, 1.0, is_in_collective=True).summary


def test_the_place_in_a_librarys_source_is_left_out() -> None:
    observation = RankRaised(
        task=TASK,
        generation=GENERATION,
        global_rank=0,
        exception_type="RuntimeError",
        message="[/build/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1",
        traceback="",
        is_in_collective=True,
        iteration=1,
    )
    evidence = evidence_of(observation, node=NodeId("n1"), at=1.0, observed_at=1.0)
    assert evidence.summary == "rank 0 raised RuntimeError: Connection closed by peer [127.0.0.1]:1"


WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=812, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600047 milliseconds\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'"
)
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("words", "signal", "is_command", "status"),
    [
        (WATCHDOG, 6, False, "nccl_timeout"),
        (WATCHDOG, 6, True, "nccl_timeout"),
        (REFUSED, None, True, "connection_refused_or_reset"),
        (REFUSED, None, False, "exited_abnormally"),
        (REFUSED, 15, True, "exited_abnormally"),
        (REFUSED, 9, True, "exited_abnormally"),
    ],
)
def test_last_words_about_a_connection_explain_an_end_that_they_bring_about(
    words: str, signal: int | None, *, is_command: bool, status: str
) -> None:
    observation = RankExited(
        task=TASK, generation=GENERATION, global_rank=1, pid=7, signal=signal,
        exit_code=1 if signal is None else None, stderr_tail=words,
    )  # fmt: skip
    evidence = evidence_of(
        observation, node=NodeId("n1"), at=1.0, observed_at=1.0, is_command=is_command
    )
    diagnosis = diagnose([evidence])
    assert diagnosis is not None
    assert diagnosis.status == status
    assert diagnosis.is_local is (status == "exited_abnormally"), "a connection has two ends"
    other = exited(0, 1.1, code=1)
    both = diagnose([evidence, other])
    assert both is not None
    assert both.root is (evidence if status == "exited_abnormally" else other)
