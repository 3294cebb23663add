"""Which action a fault gets, and what makes it a stronger one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.core.rules.actions import (
    Cure,
    FaultCase,
    Handling,
    Occurrence,
    StartCase,
    TaskCase,
    clears_suspects,
    decide,
)
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.rules.failed_start import FailedStart
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import Generation, NodeId, TaskId
from profiles.faults.status import Action
from profiles.faults.status_table import default_statuses

N1 = NodeId("n1")
GPU = Worker(N1, 0)
OTHER = Worker(N1, 1)
POLICY = Policy()
STATUSES = default_statuses()


def case(name: str, at: float = 1000.0) -> FaultCase:
    status = STATUSES[name]
    root = Evidence("exception", at, at, N1, TaskId("a"), 0, "rank 0 raised", named=status)
    return FaultCase(Diagnosis(status, root, root.summary), at, GPU, N1)


def seen(name: str, *ats: float, worker: Worker | None = GPU) -> list[Occurrence]:
    return [Occurrence(at, STATUSES[name], worker) for at in ats]


@pytest.mark.parametrize(
    ("status", "action"),
    [
        ("connection_refused_or_reset", "reattempt"),
        ("nccl_timeout", "reattempt"),
        ("exited_abnormally", "restart"),
        ("task_hang", "restart"),
        ("ecc_error", "isolate"),
        ("lost_connection", "reconfigure"),
    ],
)
def test_the_first_action_is_that_of_the_severity(status: str, action: Action) -> None:
    assert decide(case(status), POLICY).action == action


@pytest.mark.parametrize(
    ("status", "last", "then"),
    [
        ("nccl_timeout", "reattempt", "restart"),
        ("nccl_timeout", "restart", "reconfigure"),
        ("exited_abnormally", "reattempt", "restart"),
        ("exited_abnormally", "restart", "reconfigure"),
        ("exited_abnormally", "reconfigure", "restart"),
    ],
)
def test_what_did_not_help_is_followed_by_something_stronger(
    status: str, last: Action, then: Action
) -> None:
    handling = decide(replace(case(status), task=TaskCase(last=Cure(last, GPU))), POLICY)
    assert handling.action == then


def test_a_fault_at_another_place_is_not_a_cure_that_failed() -> None:
    another = replace(case("exited_abnormally"), task=TaskCase(last=Cure("restart", OTHER)))
    assert decide(another, POLICY).action == "restart"
    nobody = replace(case("exited_abnormally"), task=TaskCase(last=Cure("restart", None)))
    assert decide(nobody, POLICY).action == "reconfigure"


def test_the_second_network_fault_in_five_minutes_isolates() -> None:
    fault = case("other_network_error", at=1000.0)
    old = replace(fault, record=seen("link_flapping", 699.0))
    assert decide(old, POLICY).action == "reattempt"
    recent = replace(fault, record=seen("link_flapping", 701.0))
    assert decide(recent, POLICY).action == "reconfigure"
    assert "2 network faults on n1 within 300 s" in decide(recent, POLICY).why


def test_the_third_restart_in_an_hour_isolates_whatever_it_was() -> None:
    fault = case("exited_abnormally", at=5000.0)
    record = [
        *seen("other_software_error", 1401.0, worker=OTHER),
        *seen("task_hang", 4000.0),
    ]
    assert decide(replace(fault, record=record), POLICY).action == "reconfigure"
    assert decide(replace(fault, record=record, at=5002.0), POLICY).action == "restart"
    assert decide(replace(fault, record=record[1:]), POLICY).action == "restart"


def test_network_faults_and_restarts_are_not_added_up() -> None:
    record = seen("link_flapping", 990.0) + seen("task_hang", 995.0)
    assert decide(replace(case("exited_abnormally"), record=record), POLICY).action == ("restart")


def test_a_gpu_that_shows_two_cuda_errors_is_not_waited_for_a_third() -> None:
    fault = case("cuda_error")
    same = replace(fault, record=seen("illegal_memory_access", 900.0))
    assert decide(same, POLICY).action == "reconfigure"
    assert not decide(same, POLICY).is_gpu
    other = replace(fault, record=seen("illegal_memory_access", 900.0, worker=OTHER))
    assert decide(other, POLICY).action == "restart"


def test_a_gpu_is_isolated_alone_where_its_node_has_others_also_on_the_last_node() -> None:
    fault = replace(case("cuda_error"), record=seen("cuda_error", 900.0), is_last_node=True)
    assert decide(fault, POLICY).action == "restart"
    beside = decide(replace(fault, has_other_gpus=True), POLICY)
    assert (beside.action, beside.is_gpu) == ("reconfigure", True)
    broken = replace(case("ecc_error"), has_other_gpus=True)
    assert not decide(broken, POLICY).is_gpu


def test_a_gpu_is_isolated_alone_also_where_a_restart_has_just_brought_nothing() -> None:
    fault = replace(case("cuda_error"), record=seen("cuda_error", 990.0))
    again = replace(fault, task=TaskCase(last=Cure("restart", GPU)), has_other_gpus=True)
    assert decide(again, POLICY).is_gpu
    assert decide(replace(again, is_last_node=True), POLICY).is_gpu


def test_drills_do_not_speak_against_a_node_unless_policy_says_so() -> None:
    record = seen("exited_abnormally", 900.0, 950.0)
    drill = replace(case("exited_abnormally"), record=record, is_drill=True)
    assert decide(drill, POLICY).action == "restart"
    assert decide(drill, Policy(counts_drills=True)).action == "reconfigure"


def test_the_last_node_is_isolated_for_broken_hardware_alone() -> None:
    record = seen("exited_abnormally", 900.0, 950.0)
    last = replace(case("exited_abnormally"), record=record, is_last_node=True)
    assert decide(last, POLICY).action == "restart"
    assert "no other node is in service" in decide(last, POLICY).why
    broken = replace(case("ecc_error"), is_last_node=True)
    assert decide(broken, POLICY).action == "isolate"


def test_without_a_node_to_blame_nothing_is_isolated() -> None:
    fault = replace(
        case("nccl_timeout"), node=None, worker=None, task=TaskCase(last=Cure("restart", None))
    )
    assert decide(fault, POLICY).action == "restart"


def test_broken_hardware_is_isolated_whatever_was_done_before() -> None:
    for last in (Cure("reconfigure", None), Cure("restart", GPU)):
        fault = replace(case("ecc_error"), task=TaskCase(last=last))
        assert decide(fault, POLICY).action == "isolate"


N2 = NodeId("n2")
WORDS = "KeyError: 'data'"


def starts(*places: tuple[int, str]) -> tuple[FailedStart, ...]:
    return tuple(FailedStart(Generation(number), NodeId(node), WORDS) for number, node in places)


def failed_start(start: StartCase, record: Sequence[Occurrence] = ()) -> Handling:
    fault = case("exited_abnormally")
    root = replace(fault.diagnosis.root, own_words=WORDS)
    diagnosis = replace(fault.diagnosis, root=root)
    task = TaskCase(start=start)
    return decide(replace(fault, diagnosis=diagnosis, task=task, record=record), POLICY)


def test_a_program_that_fails_alike_on_two_nodes_is_held_and_no_node_is_blamed() -> None:
    held = failed_start(StartCase(starts((1, "n1"), (1, "n2")), has_trained=False))
    assert (held.action, held.blames_program, held.is_counted) == ("hold", True, False)
    assert "its start failed alike on n1, n2 and has never committed" in held.why
    assert held.note == f"rank 0 raised; {held.why}"
    again = failed_start(StartCase(starts((1, "n1"), (1, "n2")), has_trained=True))
    assert again.action == "restart", "what it needs may have been away for a moment"


def test_a_start_that_failed_is_tried_on_another_node_first() -> None:
    one = starts((1, "n1"))
    moved = failed_start(StartCase(one, has_trained=False, has_room=True, elsewhere=[N2]))
    assert (moved.action, moved.moves, moved.is_counted) == ("restart", True, False)
    assert moved.why == "a second node is tried first: it starts on n2"
    here = failed_start(StartCase(one, has_trained=False))
    assert (here.action, here.moves) == ("restart", False)
    twice = failed_start(StartCase(starts((1, "n1"), (2, "n1")), has_trained=False))
    assert twice.action == "hold"
    assert "2 times alike on n1, and no other node has free workers" in twice.why


def test_before_a_node_is_taken_out_a_second_one_is_tried() -> None:
    record = seen("exited_abnormally", 900.0, 950.0)
    start = StartCase(starts((3, "n1")), has_trained=True, has_room=True, elsewhere=[N2])
    tried = failed_start(start, record=record)
    assert (tried.action, tried.moves, tried.is_counted) == ("restart", True, True)
    assert tried.why.startswith("n1 stays a suspect, and a second node is tried first")
    full = failed_start(replace(start, has_room=False, elsewhere=()), record=record)
    assert full.action == "reconfigure"


def test_a_task_is_held_when_recoveries_bring_nothing() -> None:
    fault = case("exited_abnormally")
    last = TaskCase(num_recoveries=POLICY.max_recoveries)
    assert decide(replace(fault, task=last), POLICY).action == "restart"
    held = decide(replace(fault, task=replace(last, num_recoveries=99)), POLICY)
    assert (held.action, held.paper_action, held.why) == ("hold", "none", "")
    assert f"{POLICY.max_recoveries} recoveries brought no new iteration" in held.note
    over = decide(replace(fault, task=TaskCase(is_present=False, num_recoveries=99)), POLICY)
    assert over == Handling("restart", is_counted=False)


def test_hardware_of_a_second_node_is_doubted_unless_a_probe_has_found_it() -> None:
    fault = case("ecc_error")
    for changes, action in (
        ({}, "isolate"),
        ({"accused": (N1,)}, "isolate"),
        ({"accused": (N2,)}, "hold"),
        ({"accused": (N2,), "has_probe": True}, "isolate"),
        ({"accused": (N2,), "is_live": False}, "isolate"),
        ({"accused": (N2,), "is_doubted": True}, "none"),
    ):
        handling = decide(replace(fault, task=TaskCase(**changes)), POLICY)
        assert handling.action == action, changes
    held = decide(replace(fault, task=TaskCase(accused=(N2,))), POLICY)
    assert "its ranks name broken hardware on n2 and then on n1" in held.note


def test_a_reattempt_needs_processes_that_can_continue() -> None:
    fault = case("nccl_timeout")
    assert decide(replace(fault, task=TaskCase()), POLICY).action == "reattempt"
    broken = decide(replace(fault, task=TaskCase(needs_process=True)), POLICY)
    assert (broken.action, broken.replaces_rank) == ("restart", False)
    restarted = decide(replace(case("exited_abnormally"), task=TaskCase()), POLICY)
    assert (restarted.action, restarted.replaces_rank) == ("restart", True)


def test_a_fault_elsewhere_clears_what_was_suspected() -> None:
    diagnosis = case("exited_abnormally").diagnosis
    assert clears_suspects(diagnosis, GPU, [N2])
    assert not clears_suspects(diagnosis, GPU, [N2, GPU])
    assert not clears_suspects(diagnosis, GPU, [])
    assert not clears_suspects(case("ecc_error").diagnosis, GPU, [N2])
