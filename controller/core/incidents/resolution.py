"""How training was taken up again after a fault, and when an incident is over.

An incident is resolved when every task that the fault hit commits iterations again, in a newer
generation and where it is to be; going on with less is no cure yet. That the cure holds is verified by
an iteration that is back within its band (``controller.core.rules.pace``); a task that stays slower than before is
called so after ``Policy.verify_iterations``.
"""

from typing import Final

from controller.core.rules.policy import Policy
from controller.core.rules.regroup.next_generation import ResumeDecision
from controller.core.state.cluster import Incident
from controller.core.state.phases import IncidentState, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import StateSource


def note_resume(turn: Turn, task: TaskState, decision: ResumeDecision) -> None:
    """The parked generation is followed by another one: write into its incidents how."""
    for incident in turn.state.incidents:
        if incident.is_open and incident.covers.get(task.spec.task) == task.generation:
            incident.resume = decision.reason
            incident.recomputed_micro_batches += decision.resume.num_recomputed
            incident.saved_micro_batches += decision.resume.num_saved


def note_source(turn: Turn, task: TaskState, source: StateSource, *, num_lost: int) -> None:
    """The new generation has its state; ``num_lost`` whole iterations are run again.

    After a fault in the middle of a recovery the newest incident counts what that one has lost.
    """
    ours = [
        incident
        for incident in turn.state.incidents
        if incident.is_open
        and incident.recovery_s is None
        and incident.covers.get(task.spec.task, task.generation) < task.generation
    ]
    for incident in ours:
        incident.state_source = source
    if ours:
        ours[-1].recomputed_micro_batches += num_lost * task.spec.num_micro_batches


def close_cured_incidents(turn: Turn) -> None:
    """Resolve every named fault whose tasks train again in a newer generation, or have ended."""
    for incident in turn.state.open_incidents():
        if incident.state is IncidentState.DETECTED:
            continue
        if is_handed_over(incident):
            _close_with_its_task(turn, incident)
            continue
        _note_recovery(turn, incident)
        tasks = [turn.state.tasks[name] for name in incident.covers]
        if all(_is_cured(turn.policy, task, incident.covers[task.spec.task]) for task in tasks):
            cured = ", ".join(_words(turn.policy, task) for task in tasks)
            _resolve(turn, incident, cured or "no task is affected")
        elif any(task.phase is TaskPhase.HELD for task in tasks):
            hold(incident)


def end_handed_over(turn: Turn, task: TaskState, text: str) -> None:
    """Resolve what was handed over about the task while it trained on: it is over by itself."""
    for incident in turn.state.incidents:
        if incident.task == task.spec.task and is_handed_over(incident):
            _resolve(turn, incident, text)


def _close_with_its_task(turn: Turn, incident: Incident) -> None:
    task = turn.state.tasks[incident.task] if incident.task else None
    if task and task.phase in {TaskPhase.FINISHED, TaskPhase.STOPPED}:
        _resolve(turn, incident, f"{task.spec.task} {_CURES[task.phase]}")


def is_handed_over(incident: Incident) -> bool:
    """Whether an operator was told of it while its task trained on."""
    return incident.state is IncidentState.HELD and not incident.covers


def _is_cured(policy: Policy, task: TaskState, generation: Generation) -> bool:
    """Whether the task is where it is to be, and as fast; going on with less is no cure yet."""
    if task.phase in {TaskPhase.STOPPED, TaskPhase.FINISHED}:
        return True
    pace = task.watch.pace
    is_mute = task.spec.is_command and task.iteration == 0
    is_verified = pace.is_in_band(policy) or pace.num_commits >= policy.verify_iterations
    is_verified |= is_mute
    return _trains_again(task, generation) and task.target is not None and is_verified


def _words(policy: Policy, task: TaskState) -> str:
    pace = task.watch.pace
    is_slower = task.phase is TaskPhase.RUNNING and not pace.is_in_band(policy)
    slower = f", but iterations take {pace.best_s:.2f} s" if is_slower and pace.best_s else ""
    return f"{task.spec.task} {_CURES[task.phase]}{slower}"


def _trains_again(task: TaskState, generation: Generation) -> bool:
    return task.phase is TaskPhase.RUNNING and task.generation > generation


def _note_recovery(turn: Turn, incident: Incident) -> None:
    if incident.recovery_s is None and incident.covers:
        covers = incident.covers.items()
        if all(_trains_again(turn.state.tasks[name], generation) for name, generation in covers):
            incident.recovery_s = turn.at - incident.fault_at


def hold(incident: Incident) -> None:
    """Hand a named fault to the operator."""
    if incident.state in {IncidentState.DECIDED, IncidentState.ACTING}:
        incident.become(IncidentState.HELD)


def _resolve(turn: Turn, incident: Incident, text: str) -> None:
    incident.become(IncidentState.RESOLVED)
    incident.resolved_at = turn.at
    took_s = turn.at - incident.fault_at
    turn.tell(
        "good",
        "resolved",
        incident.name,
        f"resolved {took_s:.1f} s after the fault: {text}",
        took_s=took_s,
        resolved_at=turn.at,
        recovery_s=incident.recovery_s,
        recomputed_micro_batches=incident.recomputed_micro_batches,
        saved_micro_batches=incident.saved_micro_batches,
        state_source=incident.state_source,
        resume=incident.resume,
    )


_CURES: Final = {
    TaskPhase.RUNNING: "trains again",
    TaskPhase.STOPPED: "was stopped by a plan",
    TaskPhase.FINISHED: "has finished",
}
