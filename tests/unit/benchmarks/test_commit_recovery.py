"""What the event log tells of the recovery from a kill."""

from typing import Any

import pytest
from killing.commit_recovery import RankKill, UnreadRecoveryError, recovery_from

FAULT = RankKill(at=10.0, global_rank=2, pid=7, generation=1)


def line(at: float, kind: str, **facts: float | str | None) -> dict[str, Any]:
    return {"at": at, "kind": kind, **facts}


def iteration(at: float, generation: int, duration_s: float | None = 0.1) -> dict[str, Any]:
    return line(at, "iteration", generation=generation, duration_s=duration_s)


def recovery_lines() -> list[dict[str, Any]]:
    return [
        line(10.03, "fault_seen"),
        line(10.07, "regroup", rung="reuse"),
        line(10.11, "rank_started", start_s=0.02),
        line(10.27, "resume", form_s=0.1, state_s=0.05, state_source="peer"),
        iteration(10.32, 2),
    ]


def test_the_phases_add_up_to_the_time_from_the_kill_to_the_next_iteration() -> None:
    recovery = recovery_from(FAULT, recovery_lines())

    assert recovery is not None
    assert recovery.total_s == pytest.approx(0.32)
    phases = ("notice", "park", "fork", "join", "first_iteration")
    assert sum(recovery.phases_s[phase] for phase in phases) == pytest.approx(0.32)
    assert recovery.phases_s["join"] == pytest.approx(0.18)


@pytest.mark.parametrize(
    "early",
    [iteration(10.01, 1), iteration(10.071, 2, duration_s=None)],
    ids=["reported late", "known by its vote"],
)
def test_an_iteration_that_was_over_before_the_kill_is_no_recovery(early: dict[str, Any]) -> None:
    lines = recovery_lines()

    assert recovery_from(FAULT, [early]) is None
    recovery = recovery_from(FAULT, [early, *lines])
    assert recovery is not None
    assert recovery.total_s == pytest.approx(0.32)


@pytest.mark.parametrize("kind", ["fault_seen", "regroup", "resume"])
def test_a_step_that_is_logged_after_the_commit_is_named(kind: str) -> None:
    lines = recovery_lines()
    late = [{**each, "at": 10.4} if each["kind"] == kind else each for each in lines]
    with pytest.raises(UnreadRecoveryError, match=f"no {kind} is logged"):
        recovery_from(FAULT, late)
