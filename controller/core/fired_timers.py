"""What follows from a timer that has run out.

Timers are never cancelled. A timer of an older generation, or of an incident that is over, has lost
its meaning.
"""

from typing import assert_never

from controller.core.incidents.cures import settle, take_hangs
from controller.core.incidents.holding import try_again
from controller.core.lifecycle.command_tasks import take_life
from controller.core.lifecycle.parking import halt, wake_replica_peers
from controller.core.lifecycle.start_stop import stop
from controller.core.measuring.measured_ranks import take_overdue_run
from controller.core.monitoring.stalls import take_timer
from controller.core.monitoring.start_and_end import take_inspection_due, take_late_start
from controller.core.nodes.contact import judge_node, take_late_node
from controller.core.planning.plans import take_due_plan
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.timers import (
    BurstOver,
    CapacityOverdue,
    CommandLives,
    HaltOverdue,
    HeldRetryDue,
    InspectionDue,
    InspectionOverdue,
    IterationOverdue,
    JoinOverdue,
    JudgeNode,
    MeasurementOverdue,
    PlanDue,
    ReplicaPeersOverdue,
    SettleIncident,
    SparesOverdue,
    StartOverdue,
    StopOverdue,
    TaskTimer,
    Timer,
)


def fire(turn: Turn, timer: Timer) -> None:
    """Handle a timer that has run out."""
    match timer:
        case SettleIncident():
            incident = turn.state.incidents.find(timer.incident)
            if incident:
                settle(turn, incident)
        case JudgeNode():
            judge_node(turn, turn.state.nodes[timer.node])
        case JoinOverdue():
            take_late_node(turn, turn.state.nodes[timer.node])
        case BurstOver():
            pass  # the sweeps ``gather losses`` and ``gather returns`` look at the time
        case MeasurementOverdue():
            take_overdue_run(turn, timer)
        case PlanDue():
            take_due_plan(turn, timer.plan, timer.revision)
        case _:
            task = turn.state.tasks[timer.task]
            if task.generation == timer.generation:
                _fire_of_task(turn, task, timer)


def _fire_of_task(turn: Turn, task: TaskState, timer: TaskTimer) -> None:
    """A timer of the task's present generation has run out."""
    match timer:
        case StartOverdue():
            take_late_start(turn, task)
        case InspectionDue():
            take_inspection_due(turn, task)
        case CommandLives():
            take_life(turn, task)
        case StopOverdue():
            if task.lifecycle.phase is TaskPhase.STOPPING:
                note = "did not stop at an iteration boundary in time: its ranks are killed"
                turn.announce("warning", "stop", task.spec.task, note)
                stop(turn, task, is_graceful=False, intent=task.stopping.intent, note=note)
        case HaltOverdue():
            _hasten(turn, task)
        case ReplicaPeersOverdue():
            wake_replica_peers(turn, task)
        case SparesOverdue():
            task.spares.end_wait()
        case HeldRetryDue():
            try_again(turn, task)
        case IterationOverdue() | InspectionOverdue():
            take_timer(turn, task, timer)
        case CapacityOverdue():
            if task.lifecycle.parking:
                task.lifecycle.parking.lose_patience()
        case _:
            assert_never(timer)


def _hasten(turn: Turn, task: TaskState) -> None:
    """Some ranks have not parked in time: halt at once; after a second limit they hang."""
    if task.lifecycle.parking is None:
        return
    # The boundary may never come: a rank of the generation may be lost without a trace yet.
    if task.lifecycle.parking.at_boundary:
        halt(turn, task)
    else:
        take_hangs(turn, task)
