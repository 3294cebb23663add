"""Tasks that are handed to the operator because no action would help, and their further tries.

With auto-heal the controller tries a held task again by itself, after a growing pause and a few
times only: a full file system, or a service that was down, may be back.
"""

from typing import Final

from controller.core.incidents.isolation import exonerate
from controller.core.incidents.naming import name_fault
from controller.core.lifecycle.start_stop import stop
from controller.core.rules.actions import Handling
from controller.core.rules.diagnosis import Diagnosis
from controller.core.state.incident import Incident
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import PlanRequest, Turn
from controller.core.timers import HeldRetryDue

_PAUSE_GROWTH: Final = 5.0


def hold_task(
    turn: Turn, task: TaskState, incident: Incident, diagnosis: Diagnosis, handling: Handling
) -> None:
    """Stop the task, and hand its incident to the operator."""
    name_fault(turn, incident, diagnosis, handling)
    incident.hand_to_operator()
    task.assignment.follow(None)
    note = handling.note
    pause_s = _pause_before_try(turn, task, diagnosis)
    if pause_s is not None:
        number = task.faults.num_tries + 1
        note += f"; it is tried again in {pause_s:g} s, {number} of {turn.policy.held_retries}"
        turn.set_timer(HeldRetryDue(task.spec.task, task.generation), pause_s)
    stop(turn, task, is_graceful=False, intent="hold", note=note)
    turn.announce("error", "held", task.spec.task, note)
    exonerate(turn, task, task.faults.suspects)


def _pause_before_try(turn: Turn, task: TaskState, diagnosis: Diagnosis | None) -> float | None:
    """Return in how many seconds a held task is tried again; None if only an operator may.

    Refused settings stay refused, and a loss that is not finite again comes from data or program.
    """
    policy, num_tries = turn.policy, task.faults.num_tries
    is_final = diagnosis is not None and (diagnosis.is_refusal or diagnosis.root.kind == "numbers")
    if is_final or not policy.heals or num_tries >= policy.held_retries:
        return None
    return policy.held_pause_s * float(_PAUSE_GROWTH**num_tries)


def try_again(turn: Turn, task: TaskState) -> None:
    """A held task has waited long enough: plan with it.

    Without room for it, it is stopped, and is planned again after the same time.
    """
    if task.lifecycle.phase not in {TaskPhase.HELD, TaskPhase.STOPPED}:
        return
    pause_s = _pause_before_try(turn, task, None)
    if pause_s is None:
        return
    turn.set_timer(HeldRetryDue(task.spec.task, task.generation), pause_s)
    number, name = task.faults.num_tries + 1, task.spec.task
    seen = f"{name} was held: it is tried again, {number} of {turn.policy.held_retries}"
    turn.ask_for_plan(PlanRequest(trigger=name, seen=seen, tries=name))
