"""Having the ranks of a task looked at, and what was seen turned into evidence of a hang.

Looking wakes nobody and changes nothing. Who is to blame is judged in
``controller.core.rules.hang``.
"""

from collections.abc import Iterable
from typing import Final

from controller.core.incidents.evidence_intake import take_evidence
from controller.core.instructions import InspectRanks
from controller.core.rules.collectives import record_of
from controller.core.rules.evidence import Evidence
from controller.core.rules.hang import Hang
from controller.core.state.phases import NodeCondition
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.state.watch import Inspection, Stage
from controller.core.timers import InspectionOverdue
from nodeagent.protocol.orders import InspectOrder
from nodeagent.protocol.standing import MAX_STACK_CHARS, Standing
from profiles.faults.status_table import named

_GRACE_S: Final = 0.3
"""For the way to the agents and back, beyond the time that they may take."""


def is_in_sight(turn: Turn, task: TaskState) -> bool:
    """Return whether every node of the task is in contact."""
    nodes = (turn.state.nodes[name] for name in task.nodes)
    return all(node.contact.condition is NodeCondition.HEALTHY for node in nodes)


def begin_inspection(
    turn: Turn, task: TaskState, stage: Stage = "iteration", *, is_last: bool = False
) -> None:
    """Ask the agents where the ranks stand; the answers are awaited for a limited time."""
    task.watch.begin_inspection(Inspection(turn.at, stage, is_last))
    name, generation, policy = task.spec.task, task.generation, turn.policy
    order = InspectOrder(
        task=name,
        generation=generation,
        answer_limit_s=policy.answer_limit_s,
        limit_s=policy.inspection_limit_s,
    )
    turn.emit(InspectRanks(turn.cause, task.nodes, order))
    turn.set_timer(InspectionOverdue(name, generation), policy.inspection_limit_s + _GRACE_S)


def is_complete(task: TaskState, inspection: Inspection) -> bool:
    """Return whether all ranks that are not parked have been seen."""
    awaited = {n for n, rank in task.living_ranks.items() if rank.position is None}
    return inspection.standings.keys() >= awaited


def blame(turn: Turn, task: TaskState, inspection: Inspection, hang: Hang, what: str) -> None:
    """Record that ranks hang, or that all wait without end; ``what`` names the missing event."""
    for number in hang.reasons:
        task.ranks[number].note_broken()
    announce_stall(turn, task, inspection, hang, what)
    for evidence in hang_evidence(turn, task, inspection, hang, what):
        take_evidence(turn, task, evidence)


def announce_stall(
    turn: Turn, task: TaskState, inspection: Inspection, hang: Hang, what: str
) -> None:
    """Announce that a task stands still, and which ranks it waits for."""
    stalled_s = turn.at - task.watch.moved_at
    turn.announce(
        "warning", "stall", task.spec.task,
        f"{what} for {stalled_s:.2f} s: {hang.summary}",
        stalled_s=stalled_s, culprits=", ".join(map(str, sorted(hang.reasons))),
        looked_s=turn.at - inspection.since,
    )  # fmt: skip


def _detail(standing: Standing) -> str:
    """Return the stacks of a rank, after what its flight recorder says."""
    if not standing.collectives:
        return standing.stack
    return f"newest collectives:\n{record_of(standing)}\n{standing.stack}"[:MAX_STACK_CHARS]


def _culprit_detail(standing: Standing | None, inspection: Inspection, hang: Hang) -> str:
    """Return the stacks of a culprit, and those of a rank that waits for it."""
    own = _detail(standing) if standing else ""
    waiting = sorted(n for n in inspection.standings if n not in hang.reasons)
    beside = next((n for n in waiting if inspection.standings[n].stack), None)
    parts = [own] if own else []
    if beside is not None:
        parts.append(f"rank {beside} waits meanwhile:\n{_detail(inspection.standings[beside])}")
    return "\n\n".join(parts)[:MAX_STACK_CHARS]


def hang_evidence(
    turn: Turn, task: TaskState, inspection: Inspection, hang: Hang, what: str
) -> Iterable[Evidence]:
    """Yield one piece of evidence per culprit; where there is none, one against the network."""
    name = task.spec.task
    for number, reason in sorted(hang.reasons.items()):
        standing = inspection.standings.get(number)
        # Outside of iterations a rank begins nothing that it would count.
        idle_s = standing.idle_s if standing and inspection.stage == "iteration" else None
        yield Evidence(
            kind="hang",
            at=turn.at,
            observed_at=task.watch.moved_at if idle_s is None else max(0.0, turn.at - idle_s),
            node=task.ranks[number].worker.node,
            task=name,
            global_rank=number,
            summary=f"rank {number} hangs: {reason}; {hang.summary}",
            detail=_culprit_detail(standing, inspection, hang),
        )
    if not hang.reasons:
        is_known = bool(inspection.standings)
        summary = f"{what}: {hang.summary}"
        if is_known:
            summary = (
                f"{what}, a collective does not end: {hang.summary}, and no rank is missing there"
            )
        timed_out = named("nccl_timeout") if is_known else None
        stacks = [f"rank {n}:\n{_detail(one)}" for n, one in sorted(inspection.standings.items())]
        yield Evidence(
            kind="hang",
            at=turn.at,
            observed_at=task.watch.moved_at,
            node=None,
            task=name,
            global_rank=None,
            summary=summary,
            named=timed_out,
            detail="\n".join(stacks)[:MAX_STACK_CHARS],
        )
