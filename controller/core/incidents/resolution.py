"""How training was taken up again after a fault, and when an incident is over.

An incident is resolved when every task that the fault hit commits iterations again, in a newer
generation and at its target. Continuing with less is no cure yet. An iteration that is back within
its band (``controller.core.rules.pace``) verifies the cure. A task that stays slower than before is
announced after ``Policy.verify_iterations``.
"""

from typing import Final

from controller.core.rules.policy import Policy
from controller.core.rules.regroup.next_generation import ResumeDecision
from controller.core.state.incident import Incident
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import StateSource


def note_resume(turn: Turn, task: TaskState, decision: ResumeDecision) -> None:
    """The parked generation is followed by another one: write into its incidents how."""
    for incident in turn.state.incidents.open():
        if incident.covers.get(task.spec.task) == task.generation:
            incident.recovery.note_resume(
                decision.reason,
                num_recomputed=decision.resume.num_recomputed,
                num_saved=decision.resume.num_saved,
            )


def note_source(turn: Turn, task: TaskState, source: StateSource, *, num_lost: int) -> None:
    """The new generation has its state; ``num_lost`` whole iterations are run again.

    After a fault in the middle of a recovery the newest incident counts what that one has lost.
    """
    ours = [
        incident
        for incident in turn.state.incidents.open()
        if incident.recovery.recovery_s is None
        and incident.covers.get(task.spec.task, task.generation) < task.generation
    ]
    for incident in ours:
        incident.recovery.note_source(source)
    if ours:
        ours[-1].recovery.count_recomputed(num_lost * task.spec.num_micro_batches)


def close_cured_incidents(turn: Turn) -> None:
    """Resolve every named fault whose tasks train again in a newer generation, or have ended."""
    for incident in turn.state.incidents.open():
        # One that a rehearsal asks about may be over without an answer: its task was stopped.
        is_asked = incident.awaits_consent and incident.covers
        if incident.state is IncidentState.DETECTED and not is_asked:
            continue
        if is_handed_over(incident):
            _close_with_its_task(turn, incident)
            continue
        _note_recovery(turn, incident)
        tasks = [turn.state.tasks[name] for name in incident.covers]
        if all(_is_cured(turn.policy, task, incident.covers[task.spec.task]) for task in tasks):
            cured = ", ".join(_words(turn.policy, task) for task in tasks)
            _resolve(turn, incident, cured or "no task is affected")
        elif any(task.lifecycle.phase is TaskPhase.HELD for task in tasks):
            incident.hold()


def end_handed_over(turn: Turn, task: TaskState, text: str) -> None:
    """Resolve what was handed over about the task while it trained on: it is over by itself."""
    for incident in turn.state.incidents.open():
        if incident.task == task.spec.task and is_handed_over(incident):
            _resolve(turn, incident, text)


def _close_with_its_task(turn: Turn, incident: Incident) -> None:
    task = turn.state.tasks[incident.task] if incident.task else None
    if task and task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.STOPPED}:
        _resolve(turn, incident, f"{task.spec.task} {_CURES[task.lifecycle.phase]}")


def is_handed_over(incident: Incident) -> bool:
    """Whether it was handed to an operator while its task trained on."""
    return incident.state is IncidentState.HELD and not incident.covers


def _is_cured(policy: Policy, task: TaskState, generation: Generation) -> bool:
    """Whether the task is where it is to be, and as fast; continuing with less is no cure yet."""
    if task.lifecycle.phase in {TaskPhase.STOPPED, TaskPhase.FINISHED}:
        return True
    pace = task.watch.pace
    is_verified = pace.is_in_band(policy) or pace.num_commits >= policy.verify_iterations
    is_verified |= _is_mute(task)
    return _trains_again(task, generation) and task.assignment.target is not None and is_verified


def _is_mute(task: TaskState) -> bool:
    """Whether the task is a command of which no iteration was ever seen."""
    return task.spec.is_command and task.progress.iteration == 0


def _words(policy: Policy, task: TaskState) -> str:
    pace = task.watch.pace
    is_slower = task.lifecycle.phase is TaskPhase.RUNNING and not pace.is_in_band(policy)
    if task.lifecycle.phase is TaskPhase.RUNNING and _is_mute(task):
        return f"the processes of {task.spec.task} live; when it trained again is not known"
    slower = f", but iterations take {pace.best_s:.2f} s" if is_slower and pace.best_s else ""
    return f"{task.spec.task} {_CURES[task.lifecycle.phase]}{slower}"


def _trains_again(task: TaskState, generation: Generation) -> bool:
    return task.lifecycle.phase is TaskPhase.RUNNING and task.generation > generation


def _note_recovery(turn: Turn, incident: Incident) -> None:
    if incident.recovery.recovery_s is None and incident.covers:
        covers = incident.covers.items()
        # When a command without iterations trains again is seen by nobody: no time is measured.
        if any(_is_mute(turn.state.tasks[name]) for name, _ in covers):
            incident.recovery.note_unseen()
            return
        if all(_trains_again(turn.state.tasks[name], generation) for name, generation in covers):
            incident.recovery.note_recovered(turn.at - incident.cause.fault_at)


def _resolve(turn: Turn, incident: Incident, text: str) -> None:
    turn.state.incidents.close(incident, turn.at)
    took_s = turn.at - incident.cause.fault_at
    is_mute = any(_is_mute(turn.state.tasks[name]) for name in incident.covers)
    turn.announce(
        "good",
        "resolved",
        incident.name,
        f"resolved: {text}" if is_mute else f"resolved {took_s:.1f} s after the fault: {text}",
        took_s=None if is_mute else took_s,
        resolved_at=turn.at,
        recovery_s=incident.recovery.recovery_s,
        recomputed_micro_batches=incident.recovery.recomputed_micro_batches,
        saved_micro_batches=incident.recovery.saved_micro_batches,
        state_source=incident.recovery.state_source,
        resume=incident.recovery.resume,
    )


_CURES: Final = {
    TaskPhase.RUNNING: "trains again",
    TaskPhase.STOPPED: "was stopped",
    TaskPhase.FINISHED: "has finished",
}
