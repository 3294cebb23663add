"""A task under watch: what its generation was last seen to do. The one writer of ``Watch``.

Also the one writer of the inspection and of the pace in it.
"""

from controller.core.instructions import InspectRanks
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.state.watch import Inspection, Stage
from controller.core.timers import InspectionOverdue
from nodeagent.protocol.observations import IterationCommitted, RankInspected
from nodeagent.protocol.orders import InspectOrder

_GRACE_S = 0.3
"""For the way to the agents and back, beyond the time that they may take."""


def note_movement(turn: Turn, task: TaskState) -> None:
    """The generation progresses."""
    task.watch.moved_at = turn.at


def note_movement_unseen(turn: Turn, task: TaskState) -> None:
    """The generation may have progressed unseen: earlier observations do not count."""
    task.watch.moved_at, task.watch.inspection = turn.at, None


def forgive_absence(turn: Turn, task: TaskState) -> None:
    """No controller watched until now: that time counts against no rank."""
    note_movement_unseen(turn, task)
    if task.watch.done_at is not None:
        task.watch.done_at = turn.at


def expect_iteration_after(task: TaskState) -> int:
    """Keep after which iteration the next one is expected; return that."""
    watch = task.watch
    watch.iteration = max(task.newest_iteration, task.progress.state_iteration)
    return watch.iteration


def note_done_rank(turn: Turn, task: TaskState) -> None:
    """A rank has done all its work: the other ranks should end soon."""
    if task.watch.done_at is None:
        task.watch.done_at = turn.at


def time_commit(
    task: TaskState, commit: IterationCommitted, observed_at: float
) -> tuple[float, int]:
    """Note when an iteration was committed; return how long since the last, and for how many."""
    watch, num = task.watch, 1
    since, watch.committed_at = watch.committed_at, observed_at
    if task.spec.is_command:
        # Its lines are read in bunches, and one may stand for several iterations.
        num = max(1, commit.iteration - watch.iteration)
        duration_s = num * commit.duration_s
    else:
        duration_s = commit.duration_s if since is None else max(0.0, observed_at - since)
    return duration_s, num


def add_to_pace(turn: Turn, task: TaskState, duration_s: float, *, is_long: bool) -> None:
    """Take a committed iteration into the pace: the generation progresses."""
    task.watch.pace.add(duration_s, is_long=is_long)
    note_movement_unseen(turn, task)


def note_hang(task: TaskState) -> None:
    """The generation was called a hang: wait longer before the next such judgement."""
    task.watch.pace.note_hang()


def begin_inspection(
    turn: Turn, task: TaskState, stage: Stage = "iteration", *, is_last: bool = False
) -> None:
    """Ask the agents where the ranks stand; the answers are awaited for a limited time."""
    task.watch.inspection = Inspection(turn.at, stage, is_last)
    name, generation, policy = task.spec.task, task.generation, turn.policy
    order = InspectOrder(
        task=name,
        generation=generation,
        answer_limit_s=policy.answer_limit_s,
        limit_s=policy.inspection_limit_s,
    )
    turn.emit(InspectRanks(turn.cause, task.nodes, order))
    turn.set_timer(InspectionOverdue(name, generation), policy.inspection_limit_s + _GRACE_S)


def take_standing(task: TaskState, inspected: RankInspected) -> Inspection | None:
    """An agent reports where a rank stands; return the inspection, if one is still open."""
    inspection = task.watch.inspection
    if inspection is not None:
        inspection.standings[inspected.global_rank] = inspected.standing
    return inspection


def end_inspection(task: TaskState) -> None:
    """The answers are judged now."""
    task.watch.inspection = None


def leave_out_parked(task: TaskState, inspection: Inspection) -> list[int]:
    """Forget what was seen of parked ranks, and return them.

    A rank whose collective failed has parked: it waits for the verdict, and hinders no other rank.
    """
    parked = [number for number, rank in task.ranks.items() if rank.position is not None]
    for number in parked:
        inspection.standings.pop(number, None)
    return parked
