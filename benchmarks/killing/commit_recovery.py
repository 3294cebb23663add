"""One recovery, from the event log of the controller."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

PHASES: Final = ("notice", "park", "fork", "join", "first_iteration")
"""What a recovery consists of, in its order."""

PARTS_OF_JOIN: Final = ("form", "state")
"""The longest of any rank. A survivor forms its groups before the replacement is there."""

Line = Mapping[str, Any]
"""A line of the event log; ``at`` counts seconds from the controller's start."""


@dataclass(frozen=True, slots=True)
class RankKill:
    """A kill.

    Attributes:
        at: When, on the controller's clock.
        global_rank: Which rank.
        pid: Its process.
        generation: The task's generation at the time.
    """

    at: float
    global_rank: int
    pid: int
    generation: int


@dataclass(frozen=True, slots=True)
class CommitRecovery:
    """What followed a kill.

    Attributes:
        fault: The kill.
        total_s: From the kill to the next committed iteration.
        phases_s: Where that went, by phase, and the parts of ``join``.
        rung: How the broken iteration was finished: ``commit``, ``reuse`` or ``re-run``.
        state_source: Where the replacement's state came from.
    """

    fault: RankKill
    total_s: float
    phases_s: Mapping[str, float]
    rung: str
    state_source: str

    def as_json(self) -> dict[str, Any]:
        """Return it as it is written to the results."""
        return {**asdict(self), "phases_s": {k: round(v, 4) for k, v in self.phases_s.items()}}


class UnreadRecoveryError(Exception):
    """The event log has the end of a recovery, and lacks a step of it before that."""


def is_run(line: Line) -> bool:
    """Return whether the line tells of an iteration that ranks ran to its end and reported.

    An iteration that is known by its vote alone was agreed on before the fault, and carries no
    duration.
    """
    return line["kind"] == "iteration" and line["duration_s"] is not None


def recovery_from(fault: RankKill, lines: Sequence[Line]) -> CommitRecovery | None:
    """Return the recovery, or None while there is none.

    Args:
        fault: The kill.
        lines: The event log from the kill on.

    Raises:
        UnreadRecoveryError: The log has no line of a step before the commit. The text names it.
    """
    commit = next(
        (line for line in lines if is_run(line) and line["generation"] > fault.generation), None
    )
    if commit is None:
        return None
    until = [line for line in lines if line["at"] <= commit["at"]]
    steps = {kind: _of_kind(until, kind) for kind in ("fault_seen", "regroup", "resume")}
    for kind, found in steps.items():
        if not found:
            raise UnreadRecoveryError(f"no {kind} is logged before the commit at {commit['at']} s")
    seen, regroup, resume = steps["fault_seen"][0], steps["regroup"][-1], steps["resume"][-1]
    forks = [line["start_s"] for line in _of_kind(until, "rank_started")]
    fork_s = max(forks, default=0.0)
    return CommitRecovery(
        fault=fault,
        total_s=commit["at"] - fault.at,
        phases_s={
            "notice": seen["at"] - fault.at,
            "park": regroup["at"] - seen["at"],
            "fork": fork_s,
            "join": resume["at"] - regroup["at"] - fork_s,
            "first_iteration": commit["at"] - resume["at"],
            "form": resume["form_s"],
            "state": resume["state_s"],
        },
        rung=regroup["rung"],
        state_source=str(resume["state_source"]),
    )


def _of_kind(lines: Sequence[Line], kind: str) -> list[Line]:
    return [line for line in lines if line["kind"] == kind]
