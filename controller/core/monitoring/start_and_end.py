"""Hangs outside of iterations: while a generation forms, and while it ends.

Before its first iteration a rank is started, forms groups with its peers, and gets its state. After
the last iteration it saves a checkpoint, waits until that is complete, and leaves. Meanwhile
nothing is committed that could be overdue. So the ranks are inspected every
``Policy.look_interval_s``. A frozen rank is named at once: it can't reach the next step. All other
limits follow from earlier durations:

- Forming: ``stall_factor`` x the time that such transitions of the task took to start, form and get
  the state, and at least ``recovering_limit_s``. A rank that makes its peers wait for
  ``slow_factor`` x that hangs. A new process has ``start_limit_s``, since it may load everything
  first. So has every rank of a task without such a transition.
- The last save: ``slow_factor`` x the limit of a saving iteration, and at least ``start_limit_s``.
  After that a rank that makes its peers wait hangs.
- A command that never prints an iteration has no limit. It is looked at for as long as it runs, and
  only a frozen rank is named.
- Leaving: a rank that lives ``stop_limit_s`` after another rank has left hangs.

A culprit is replaced, as in a hang. If other ranks are done, the remaining rank is ended instead,
and its task is finished: no rank leaves before everything is saved.
"""

from typing import Final

from controller.core.incidents.evidence_intake import incident_of, take_evidence
from controller.core.incidents.incident_log import open_incident
from controller.core.incidents.naming import name_fault
from controller.core.instructions import StopRanks
from controller.core.lifecycle.parking import checkpoint_limit_s
from controller.core.monitoring.inspections import (
    announce_stall,
    begin_inspection,
    blame,
    hang_evidence,
    is_complete,
    is_in_sight,
)
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import diagnose
from controller.core.rules.evidence import Evidence
from controller.core.rules.hang import Hang, find_absent
from controller.core.rules.transitions import Step
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.state.watch import Inspection, Stage
from controller.core.timers import InspectionDue
from nodeagent.protocol.orders import StopOrder

_FORMING: tuple[Step, ...] = ("start", "form", "state")
_MISSING: Final[dict[Stage, str]] = {
    "forming": "the generation has not formed",
    "silent": "its program prints no iteration",
    "ending": "the generation has not ended",
}
"""What does not happen at each stage, for an incident's text."""


def expect_end(turn: Turn, task: TaskState) -> None:
    """The last iteration is committed: the ranks save what there is and leave."""
    turn.set_timer(InspectionDue(task.spec.task, task.generation), turn.policy.look_interval_s)


def take_inspection_due(turn: Turn, task: TaskState) -> None:
    """Have the ranks looked at if they still form, or end; and again until they do not."""
    stage = _stage(task)
    if stage is None:
        return
    turn.set_timer(InspectionDue(task.spec.task, task.generation), turn.policy.look_interval_s)
    if task.watch.inspection is None and is_in_sight(turn, task):
        begin_inspection(turn, task, stage)


def take_late_start(turn: Turn, task: TaskState) -> None:
    """A generation has not come to its first iteration in time: see who is missing."""
    if task.lifecycle.phase is not TaskPhase.STARTING:
        return
    if _stage(task) == "forming" and not task.spec.is_command and is_in_sight(turn, task):
        begin_inspection(turn, task, "forming", is_last=True)
    else:
        _give_start_up(turn, task)


def conclude_edge(turn: Turn, task: TaskState, inspection: Inspection) -> None:
    """All answers are there, or the time for them is over."""
    if _stage(task) != inspection.stage:
        return  # it has progressed meanwhile
    inspection.leave_out(task.parked_ranks)
    is_forming = inspection.stage == "forming"
    is_over = inspection.is_last or _is_over(turn, task, inspection.stage)
    are_others_done = task.is_active and task.watch.done_at is not None
    hang = find_absent(
        inspection.standings,
        arrived=_arrived(task, inspection.stage),
        missing=[n for n, rank in task.living_ranks.items() if is_forming and not rank.is_seen],
        is_over=is_over and (inspection.is_last or not _is_process_on_its_way(task, inspection)),
        # Whoever is left over is ended, wherever it stands.
        is_complete=are_others_done or is_complete(task, inspection),
    )
    if hang is None:
        if inspection.is_last:
            _give_start_up(turn, task)
        return
    if is_over:
        task.watch.pace.note_hang()
    if are_others_done:
        _end_left_over(turn, task, inspection, hang)
    else:
        what = _lateness(turn, task) if inspection.is_last else _MISSING[inspection.stage]
        blame(turn, task, inspection, hang, what)


def _stage(task: TaskState) -> Stage | None:
    """Return what the generation is in, where no iteration is to come, or none is known to last."""
    if task.lifecycle.phase is TaskPhase.STOPPING and task.stopping.is_graceful:
        return "ending"
    has_joined = all(rank.joined for rank in task.ranks.values())
    is_first_of_all = task.progress.iteration == 0
    if task.lifecycle.phase is TaskPhase.STARTING and (is_first_of_all or not has_joined):
        return "forming"
    if task.spec.is_command and task.is_active and is_first_of_all:
        return "silent"
    return "ending" if task.is_active and task.has_all_iterations else None


def _arrived(task: TaskState, stage: Stage) -> list[int]:
    """Return the ranks that the others are waited for by; none once all have come to train."""
    if stage == "ending":
        return [number for number, rank in task.ranks.items() if rank.done]
    joined = [number for number, rank in task.ranks.items() if rank.joined]
    return joined if len(joined) < len(task.ranks) else []


def _is_process_on_its_way(task: TaskState, inspection: Inspection) -> bool:
    """Whether a new process of a generation that forms has not come to wait for the others yet."""
    if inspection.stage != "forming":
        return False
    seen = inspection.standings
    waiting = {number for number, standing in seen.items() if standing.where == "collective"}
    return any(
        rank.continues is None and not rank.joined and number not in waiting
        for number, rank in task.living_ranks.items()
    )


def _is_over(turn: Turn, task: TaskState, stage: Stage) -> bool:
    """Whether a generation takes longer to form, or to end, than it should."""
    policy, watch = turn.policy, task.watch
    if stage == "ending" and watch.done_at is not None:
        return turn.at - watch.done_at >= (task.spec.stop_limit_s or policy.stop_limit_s)
    if stage == "ending":
        save_s = policy.slow_factor * watch.pace.limit_s(policy, is_long=True)
        start_s = task.spec.start_limit_s or policy.start_limit_s
        limit_s = max(start_s, save_s, checkpoint_limit_s(policy, task))
        return task.is_active and turn.at - watch.moved_at >= limit_s
    if stage == "silent" or task.transitions.current is None or task.spec.is_command:
        return False
    learned_s = task.transitions.experience.learned_s(task.transitions.current.kind, _FORMING)
    if learned_s is None:
        return False
    limit_s = max(policy.recovering_limit_s, policy.stall_factor * learned_s)
    return turn.at - watch.moved_at >= watch.pace.backoff * policy.slow_factor * limit_s


def _give_start_up(turn: Turn, task: TaskState) -> None:
    """Nobody in particular is seen to keep the generation from its first iteration."""
    name, text = task.spec.task, _lateness(turn, task)
    take_evidence(turn, task, Evidence("overdue", turn.at, turn.at, None, name, None, text))


def _lateness(turn: Turn, task: TaskState) -> str:
    limit_s = task.spec.start_limit_s or turn.policy.start_limit_s
    return f"no iteration was committed within {limit_s:.0f} s"


def _end_left_over(turn: Turn, task: TaskState, inspection: Inspection, hang: Hang) -> None:
    """End ranks that others have left behind; nothing of theirs is missing."""
    left = hang.reasons or dict.fromkeys(task.living_ranks, "has not exited although it is done")
    hang = Hang(left, hang.summary)
    announce_stall(turn, task, inspection, hang, "the generation has not ended")
    for evidence in hang_evidence(turn, task, inspection, hang, "the generation has not ended"):
        incident = incident_of(turn, task, task.generation)
        if incident is None:
            incident = open_incident(turn, task, evidence)
        elif incident.state is not IncidentState.DETECTED:
            continue
        diagnosis = diagnose([evidence])
        assert diagnosis is not None, "a hang is conclusive"
        why = "its peers are done, so it is ended"
        name_fault(turn, incident, diagnosis, Handling("none", why))
        incident.act(turn.at)
    for number in hang.reasons:
        rank = task.ranks[number]
        rank.note_left_over()
        node, only = rank.worker.node, (number,)
        kill = StopOrder(
            task=task.spec.task, generation=task.generation, is_graceful=False, only=only
        )
        turn.emit(StopRanks(turn.cause, (node,), kill))
