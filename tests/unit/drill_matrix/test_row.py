"""Rows of the matrix: agreement, and the words for each difference."""

import pytest

from controller.api.views import IncidentState, IncidentView
from controller.drill_matrix.row import (
    MatrixRow,
    Notice,
    RowTarget,
    observation_of_incidents,
    observation_without_incident,
)
from nodeagent.protocol.ids import NodeId, TaskId
from profiles.drills.drill_catalogue import DRILL_BY_KIND

TARGET = RowTarget(NodeId("n1"), TaskId("gpt-a"), 1)
KILL = DRILL_BY_KIND["kill-rank"]


def incident(**changes: object) -> IncidentView:
    facts: dict[str, object] = {
        "id": "I-1",
        "task": "gpt-a",
        "node": "n1",
        "rank": 1,
        "status": "exited_abnormally",
        "severity": "SEV2",
        "method": "process supervision",
        "action": "restart",
        "state": IncidentState.RESOLVED,
        "fault_at": 10.0,
        "detected_at": 10.5,
        "recovery_s": 1.25,
    }
    return IncidentView.model_validate({**facts, **changes})


def row(*incidents: IncidentView) -> MatrixRow:
    return MatrixRow(KILL, TARGET, observation_of_incidents(KILL, TARGET, incidents, 10.25))


def test_what_was_expected_agrees() -> None:
    found = row(incident())
    assert found.agrees
    assert (found.observed.detection_s, found.observed.recovery_s) == (0.25, 1.25)
    assert found.as_json()["disagreements"] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"status": "task_hang"}, "status: task_hang instead of exited_abnormally"),
        ({"severity": "SEV1"}, "severity: SEV1 instead of SEV2"),
        ({"method": "guessing"}, "method: guessing instead of process supervision"),
        ({"action": "reattempt"}, "action: reattempt instead of restart"),
        ({"state": IncidentState.HELD}, "ending: held instead of resolved"),
        ({"state": IncidentState.ACTING}, "ending: still acting instead of resolved"),
        ({"rank": 0}, "culprit: rank 0 of gpt-a on n1 instead of rank 1 of gpt-a on n1"),
        ({"rank": None}, "culprit: n1 instead of rank 1 of gpt-a on n1"),
    ],
)
def test_whatever_differs_is_said(changes: dict[str, object], words: str) -> None:
    found = row(incident(**changes))
    assert not found.agrees
    assert found.disagreements == (words,)


def test_what_the_kernel_says_is_to_be_among_the_evidence() -> None:
    drill = DRILL_BY_KIND["kernel-log:line=xid-31"]
    facts = {
        "status": "illegal_memory_access",
        "method": "exception propagation",
        "evidence": ["rank 1 raised RuntimeError", "n1, kernel log: NVRM: Xid 31"],
    }
    told = observation_of_incidents(drill, TARGET, [incident(**facts)], 10.0)
    assert MatrixRow(drill, TARGET, told).agrees
    deaf = incident(**{**facts, "evidence": ["rank 1 raised RuntimeError", "n2, kernel log: Xid"]})
    assert MatrixRow(
        drill, TARGET, observation_of_incidents(drill, TARGET, [deaf], 10.0)
    ).disagreements == ("evidence: none from the kernel log of n1",)


def test_a_kill_for_memory_is_to_be_named_in_the_reason() -> None:
    drill = DRILL_BY_KIND["memory-kill"]
    told = incident(reason="rank 1 was killed by the kernel for memory; a dead process")
    assert MatrixRow(drill, TARGET, observation_of_incidents(drill, TARGET, [told], 10.0)).agrees
    plain = incident(reason="rank 1 was ended by SIGKILL")
    assert MatrixRow(
        drill, TARGET, observation_of_incidents(drill, TARGET, [plain], 10.0)
    ).disagreements == (
        "reason: rank 1 was ended by SIGKILL does not say 'killed by the kernel for memory'",
    )


def test_two_incidents_for_one_fault_disagree_though_one_is_right() -> None:
    found = row(incident(rank=0), incident(id="I-2", status="exited_abnormally"))
    assert found.observed.is_culprit_right
    assert found.disagreements == ("2 incidents: I-1 exited_abnormally, I-2 exited_abnormally",)


def test_a_drill_that_nobody_saw_disagrees() -> None:
    observed = observation_without_incident(KILL, TARGET, [], stalled="gpt-a does not advance")
    found = MatrixRow(KILL, TARGET, observed).disagreements
    assert "status: none instead of exited_abnormally" in found
    assert "ending: gpt-a does not advance instead of resolved" in found


def test_a_node_at_fault_may_be_named_with_its_rank() -> None:
    drill = DRILL_BY_KIND["exception:status=ecc_error"]
    told = incident(
        status="ecc_error", severity="SEV1", method="exception propagation", action="reconfigure"
    )
    assert MatrixRow(drill, TARGET, observation_of_incidents(drill, TARGET, [told], 10.0)).agrees


def test_what_operators_are_told_counts_where_no_incident_is_expected() -> None:
    drill, node = DRILL_BY_KIND["kill-agent"], RowTarget(NodeId("n3"))
    told = Notice("unreachable", 0.5, None, "n3", None)
    assert MatrixRow(
        drill, node, observation_without_incident(drill, node, [told], stalled="")
    ).agrees
    elsewhere = Notice("unreachable", 0.5, None, "n4", None)
    observed = observation_without_incident(drill, node, [elsewhere], stalled="")
    assert MatrixRow(drill, node, observed).disagreements == ("culprit: n4 instead of n3",)


def test_a_straggler_is_named_by_task_and_rank() -> None:
    drill = DRILL_BY_KIND["slow-rank"]
    other = Notice("straggler", 1.0, "gpt-a", "n1", 0)
    told = Notice("straggler", 4.0, "gpt-a", "n1", 1)
    observed = observation_without_incident(drill, TARGET, [other, told], stalled="")
    assert MatrixRow(drill, TARGET, observed).agrees
    assert observed.detection_s == 4.0


def test_nothing_seen_is_right_where_nothing_is_expected_and_training_goes_on() -> None:
    drill = DRILL_BY_KIND["nan:times=1"]
    assert MatrixRow(
        drill, TARGET, observation_without_incident(drill, TARGET, [], stalled="")
    ).agrees
    stalled = observation_without_incident(drill, TARGET, [], stalled="gpt-a does not advance")
    assert not MatrixRow(drill, TARGET, stalled).agrees
    assert not MatrixRow(
        drill, TARGET, observation_of_incidents(drill, TARGET, [incident()], 10.0)
    ).agrees
