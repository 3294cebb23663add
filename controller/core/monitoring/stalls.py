"""Online statistical monitoring: a task that stalls, and the ranks that it waits for.

Every committed iteration sets a timer for the next one (``controller.core.rules.pace``). When it
fires, the task stalls. Before any rank is halted, agents inspect the ranks. The inspections name
the culprits (``controller.core.rules.hang``). They become evidence, and the usual recovery replaces
these ranks. While a node of the task is out of contact nothing is concluded: its iterations may
continue unseen.

Not here: hangs before the first and after the last iteration (``start_and_end``), slow tasks
(``slowness``), and diverging tasks (``divergence``), all in ``controller.core.monitoring``.
"""

from controller.core.incidents.cures import name_symptoms
from controller.core.monitoring.inspections import begin_inspection, blame, is_complete, is_in_sight
from controller.core.monitoring.refinement import refine
from controller.core.monitoring.slowness import note_lateness
from controller.core.monitoring.start_and_end import conclude_edge, expect_end
from controller.core.rules.hang import Hang, find_hang
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.state.watch import Inspection
from controller.core.timers import InspectionOverdue, IterationOverdue
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import IterationCommitted, RankInspected

# --- progress ------------------------------------------------------------------------------


def note_joined(turn: Turn, task: TaskState) -> None:
    """All ranks of a generation have their state: from now on it should progress."""
    task.watch.note_movement(turn.at)
    _expect_iteration(turn, task)


def note_commit(
    turn: Turn, task: TaskState, commit: IterationCommitted, observed_at: float
) -> None:
    """Take in that the generation has committed an iteration, and expect the next one."""
    duration_s, num = task.watch.time_commit(commit, observed_at, is_command=task.spec.is_command)
    refine(turn, task, commit.iteration, duration_s / num, num)
    task.watch.add_to_pace(turn.at, duration_s, is_long=task.spec.is_long(commit.iteration))
    _expect_iteration(turn, task)
    note_lateness(turn, task)


def note_contact(turn: Turn, node: NodeId) -> None:
    """A node is back in contact; what its ranks have done meanwhile is still on its way."""
    for task in turn.state.tasks.values():
        if task.is_active and task.watch.committed_at is not None and task.runs_on(node):
            task.watch.note_movement_unseen(turn.at)
            _expect_iteration(turn, task)


def _expect_iteration(turn: Turn, task: TaskState) -> None:
    """Set the timer for the running iteration, if there is one to come."""
    watch, spec = task.watch, task.spec
    is_last = task.has_all_iterations
    is_first_of_all = task.lifecycle.phase is TaskPhase.STARTING and task.progress.iteration == 0
    # How long a command loads before its first iteration is not known from those before.
    is_loading = spec.is_command and watch.committed_at is None
    if task.is_active and is_last:
        expect_end(turn, task)
    if not task.is_active or is_last or is_first_of_all or is_loading:
        return
    watch.expect_iteration_after(max(task.newest_iteration, task.progress.state_iteration))
    turn.set_timer(IterationOverdue(spec.task, task.generation), _limit_s(turn, task))


def _limit_s(turn: Turn, task: TaskState) -> float:
    """Return how long the running iteration may take before its ranks are looked at."""
    is_long = task.spec.is_long(task.watch.iteration + 1)
    return max(task.spec.hang_limit_s, task.watch.pace.limit_s(turn.policy, is_long=is_long))


# --- a task that stalls --------------------------------------------------------------------


def take_timer(turn: Turn, task: TaskState, timer: IterationOverdue | InspectionOverdue) -> None:
    """The iteration, or the inspection, is overdue."""
    inspection = task.watch.inspection
    if isinstance(timer, IterationOverdue):
        is_done = task.has_all_iterations or any(rank.done for rank in task.ranks.values())
        if task.is_active and inspection is None and not is_done:
            _take_overdue(turn, task, timer)
    elif inspection is not None:
        _conclude(turn, task, inspection)  # from what was seen


def _take_overdue(turn: Turn, task: TaskState, timer: IterationOverdue) -> None:
    """Have the ranks looked at, unless nobody can say that they stall."""
    watch = task.watch
    if not is_in_sight(turn, task):
        turn.set_timer(timer, turn.policy.judge_interval_s)
    elif task.newest_iteration > watch.iteration:
        task.watch.note_movement(turn.at)  # seen in heartbeats alone: the report is on its way
        _expect_iteration(turn, task)
    else:
        begin_inspection(turn, task)


def take_look(turn: Turn, task: TaskState, inspected: RankInspected) -> None:
    """An agent reports where a rank stands; conclude once all reports are there."""
    inspection = task.watch.inspection
    if inspection is None:
        return
    inspection.note_standing(inspected.global_rank, inspected.standing)
    if is_complete(task, inspection):
        _conclude(turn, task, inspection)


def _conclude(turn: Turn, task: TaskState, inspection: Inspection) -> None:
    task.watch.end_inspection()
    if inspection.stage != "iteration":
        conclude_edge(turn, task, inspection)
        return
    if not task.is_active:
        return
    parked = task.parked_ranks
    inspection.leave_out(parked)
    hang = _judge(turn, task, inspection)
    if parked and not (hang and hang.reasons) and name_symptoms(turn, task):
        return
    if hang is None:
        turn.set_timer(
            IterationOverdue(task.spec.task, task.generation), task.watch.pace.average_s or 1.0
        )
        return
    task.watch.pace.note_hang()
    blame(turn, task, inspection, hang, "no iteration")


def _judge(turn: Turn, task: TaskState, inspection: Inspection) -> Hang | None:
    assert task.layout is not None
    pace = task.watch.pace
    limit_s = _limit_s(turn, task)
    is_over = turn.at - task.watch.moved_at >= turn.policy.slow_factor * limit_s
    patience_s = (pace.is_known and pace.average_s) or limit_s
    if pace.is_known and is_over:
        patience_s = 0.0
    hang = find_hang(
        inspection.standings,
        task.layout,
        patience_s=patience_s,
        is_complete=is_complete(task, inspection),
    )
    is_opaque = not any(rank.is_attached for rank in task.living_ranks.values())
    if hang is None and task.spec.is_command and (is_over or is_opaque):
        return Hang({}, "its program does not report its position")
    return hang
