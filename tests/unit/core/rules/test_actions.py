"""Which action a fault gets, and what makes it a stronger one."""

from dataclasses import replace

import pytest

from controller.core.rules.actions import Cure, FaultCase, Occurrence, choose
from controller.core.rules.diagnosis import Diagnosis
from controller.core.rules.evidence import Evidence
from controller.core.rules.placement import Worker
from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId, TaskId
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
        ("ecc_error", "reconfigure"),
        ("lost_connection", "reconfigure"),
    ],
)
def test_the_first_action_is_that_of_the_severity(status: str, action: Action) -> None:
    assert choose(case(status), POLICY).action == action


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
    handling = choose(replace(case(status), last=Cure(last, GPU)), POLICY)
    assert handling.action == then


def test_a_fault_at_another_place_is_not_a_cure_that_failed() -> None:
    another = replace(case("exited_abnormally"), last=Cure("restart", OTHER))
    assert choose(another, POLICY).action == "restart"
    nobody = replace(case("exited_abnormally"), last=Cure("restart", None))
    assert choose(nobody, POLICY).action == "reconfigure"


def test_the_second_network_fault_in_five_minutes_isolates() -> None:
    fault = case("other_network_error", at=1000.0)
    old = replace(fault, record=seen("link_flapping", 699.0))
    assert choose(old, POLICY).action == "reattempt"
    recent = replace(fault, record=seen("link_flapping", 701.0))
    assert choose(recent, POLICY).action == "reconfigure"
    assert "2 network faults on n1 within 300 s" in choose(recent, POLICY).why


def test_the_third_restart_in_an_hour_isolates_whatever_it_was() -> None:
    fault = case("exited_abnormally", at=5000.0)
    record = [
        *seen("other_software_error", 1401.0, worker=OTHER),
        *seen("task_hang", 4000.0),
    ]
    assert choose(replace(fault, record=record), POLICY).action == "reconfigure"
    assert choose(replace(fault, record=record, at=5002.0), POLICY).action == "restart"
    assert choose(replace(fault, record=record[1:]), POLICY).action == "restart"


def test_network_faults_and_restarts_are_not_added_up() -> None:
    record = seen("link_flapping", 990.0) + seen("task_hang", 995.0)
    assert choose(replace(case("exited_abnormally"), record=record), POLICY).action == ("restart")


def test_a_gpu_that_shows_two_cuda_errors_is_not_waited_for_a_third() -> None:
    fault = case("cuda_error")
    same = replace(fault, record=seen("illegal_memory_access", 900.0))
    assert choose(same, POLICY).action == "reconfigure"
    assert not choose(same, POLICY).is_gpu
    other = replace(fault, record=seen("illegal_memory_access", 900.0, worker=OTHER))
    assert choose(other, POLICY).action == "restart"


def test_a_gpu_is_isolated_alone_where_its_node_has_others_also_on_the_last_node() -> None:
    fault = replace(case("cuda_error"), record=seen("cuda_error", 900.0), is_last_node=True)
    assert choose(fault, POLICY).action == "restart"
    beside = choose(replace(fault, has_other_gpus=True), POLICY)
    assert (beside.action, beside.is_gpu) == ("reconfigure", True)
    broken = replace(case("ecc_error"), has_other_gpus=True)
    assert not choose(broken, POLICY).is_gpu


def test_a_gpu_is_isolated_alone_also_where_a_restart_has_just_brought_nothing() -> None:
    fault = replace(case("cuda_error"), record=seen("cuda_error", 990.0))
    again = replace(fault, last=Cure("restart", GPU), has_other_gpus=True)
    assert choose(again, POLICY).is_gpu
    assert choose(replace(again, is_last_node=True), POLICY).is_gpu


def test_drills_do_not_speak_against_a_node_unless_policy_says_so() -> None:
    record = seen("exited_abnormally", 900.0, 950.0)
    drill = replace(case("exited_abnormally"), record=record, is_drill=True)
    assert choose(drill, POLICY).action == "restart"
    assert choose(drill, Policy(counts_drills=True)).action == "reconfigure"


def test_the_last_node_is_isolated_for_broken_hardware_alone() -> None:
    record = seen("exited_abnormally", 900.0, 950.0)
    last = replace(case("exited_abnormally"), record=record, is_last_node=True)
    assert choose(last, POLICY).action == "restart"
    assert "no other node is in service" in choose(last, POLICY).why
    broken = replace(case("ecc_error"), is_last_node=True)
    assert choose(broken, POLICY).action == "reconfigure"


def test_without_a_node_to_blame_nothing_is_isolated() -> None:
    fault = replace(case("nccl_timeout"), node=None, worker=None, last=Cure("restart", None))
    assert choose(fault, POLICY).action == "restart"


def test_broken_hardware_is_isolated_whatever_was_done_before() -> None:
    for last in (Cure("reconfigure", None), Cure("restart", GPU)):
        assert choose(replace(case("ecc_error"), last=last), POLICY).action == "reconfigure"
