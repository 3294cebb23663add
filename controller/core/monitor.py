"""Online statistical monitoring: a task that stalls, gets slow, or trains nonsense.

Every committed iteration sets a timer for the next one (``controller.core.pace`` says how long). When
it fires the task stalls, and before anybody is woken the agents are asked where its ranks stand.
The answers name the culprits (``controller.core.hang``); they become evidence, and the recovery that
handles every other fault replaces them. While a node of the task is out of contact nothing is
concluded: its iterations may be going on unseen, and whether it is lost is judged elsewhere.

Slow is a warning: once when it begins, with the rank that the others wait for if there is one, and
once when it is over.

A loss or gradient norm that jumps is committed already, and the same on every rank: no process is at
fault, and another one would train on with it. So nothing is restarted. Operators get an incident,
which ends when the figures come down; to go back to a checkpoint is for them to decide.
"""

from collections.abc import Iterable
from statistics import median
from typing import Final

from controller.core.cures import hand_over
from controller.core.evidence import Evidence
from controller.core.hang import Hang, find_hang
from controller.core.incidents import take_evidence
from controller.core.instructions import InspectRanks
from controller.core.phases import NodeCondition, TaskPhase
from controller.core.resolution import end_handed_over
from controller.core.stragglers import find_stragglers, median_of_peers
from controller.core.tasks import NUM_BUSY, TaskState
from controller.core.timers import InspectionOverdue, IterationOverdue
from controller.core.turn import Turn
from controller.core.watch import Inspection
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import IterationCommitted, RankInspected
from nodeagent.protocol.standing import MAX_STACK_CHARS
from profiles.faults.status import Status

_INSPECTION_GRACE_S: Final = 0.3
"""For the way to the agents and back, beyond what they may take."""


# --- progress ------------------------------------------------------------------------------


def note_joined(turn: Turn, task: TaskState) -> None:
    """All ranks of a generation have their state: from now on it should go on."""
    task.watch.moved_at = turn.at
    _expect_iteration(turn, task)


def note_commit(
    turn: Turn, task: TaskState, commit: IterationCommitted, observed_at: float
) -> None:
    """Take in that the generation has committed an iteration, and expect the next one."""
    watch, spec = task.watch, task.spec
    since, watch.committed_at = watch.committed_at, observed_at
    if spec.is_command:
        # Its lines are read in bunches, and one may stand for several iterations.
        duration_s = commit.duration_s * max(1, commit.iteration - watch.iteration)
    else:
        duration_s = commit.duration_s if since is None else max(0.0, observed_at - since)
    watch.pace.add(duration_s, is_long=spec.is_long(commit.iteration))
    watch.moved_at, watch.inspection = turn.at, None
    _expect_iteration(turn, task)
    _note_lateness(turn, task)


def note_contact(turn: Turn, node: NodeId) -> None:
    """A node is back in contact; what its ranks have done meanwhile is still on its way."""
    for task in turn.state.tasks.values():
        if task.is_active and task.watch.committed_at is not None and node in task.nodes:
            task.watch.moved_at, task.watch.inspection = turn.at, None
            _expect_iteration(turn, task)


def _expect_iteration(turn: Turn, task: TaskState) -> None:
    """Set the timer for the running iteration, if there is one to come."""
    watch, spec = task.watch, task.spec
    is_last = spec.num_iterations is not None and task.iteration >= spec.num_iterations
    is_first_of_all = task.phase is TaskPhase.STARTING and watch.pace.average_s is None
    # How long a command loads before its first iteration is not known from those before.
    is_loading = spec.is_command and watch.committed_at is None
    if not task.is_active or is_last or is_first_of_all or is_loading:
        return
    watch.iteration = max(task.newest_iteration, task.state_iteration)
    turn.set_timer(IterationOverdue(spec.task, task.generation), _limit_s(turn, task))


def _limit_s(turn: Turn, task: TaskState) -> float:
    """Return how long the running iteration may take before its ranks are looked at."""
    is_long = task.spec.is_long(task.watch.iteration + 1)
    return max(task.spec.hang_limit_s, task.watch.pace.limit_s(turn.policy, is_long=is_long))


# --- a task that stalls --------------------------------------------------------------------


def take_timer(turn: Turn, task: TaskState, timer: IterationOverdue | InspectionOverdue) -> None:
    """An iteration, or the looks at the ranks, should have come by now."""
    if timer.generation != task.generation or not task.is_active:
        return
    inspection = task.watch.inspection
    if isinstance(timer, IterationOverdue):
        if inspection is None and not any(rank.done for rank in task.ranks.values()):
            _take_overdue(turn, task, timer)
    elif inspection is not None:
        _conclude(turn, task, inspection)  # from what was seen


def _take_overdue(turn: Turn, task: TaskState, timer: IterationOverdue) -> None:
    """Have the ranks looked at, unless nobody can say that they stall."""
    watch = task.watch
    if not _is_in_sight(turn, task):
        turn.set_timer(timer, turn.policy.judge_interval_s)
    elif task.newest_iteration > watch.iteration:
        watch.moved_at = turn.at  # seen in heartbeats alone: the report is on its way
        _expect_iteration(turn, task)
    else:
        watch.inspection = Inspection(turn.at)
        policy = turn.policy
        turn.emit(
            InspectRanks(
                turn.cause,
                timer.task,
                timer.generation,
                task.nodes,
                answer_limit_s=policy.answer_limit_s,
                limit_s=policy.inspection_limit_s,
            )
        )
        limit_s = policy.inspection_limit_s + _INSPECTION_GRACE_S
        turn.set_timer(InspectionOverdue(timer.task, timer.generation), limit_s)


def _is_in_sight(turn: Turn, task: TaskState) -> bool:
    nodes = (turn.state.nodes[name] for name in task.nodes)
    return all(node.condition is NodeCondition.HEALTHY for node in nodes)


def take_look(turn: Turn, task: TaskState, inspected: RankInspected) -> None:
    """An agent tells where a rank stands; conclude once all have been seen."""
    inspection = task.watch.inspection
    if inspection is None or not task.is_active:
        return
    inspection.standings[inspected.global_rank] = inspected.standing
    if inspection.standings.keys() >= task.living_ranks.keys():
        _conclude(turn, task, inspection)


def _conclude(turn: Turn, task: TaskState, inspection: Inspection) -> None:
    task.watch.inspection = None
    hang = _judge(turn, task, inspection)
    if hang is None:
        turn.set_timer(
            IterationOverdue(task.spec.task, task.generation), task.watch.pace.average_s or 1.0
        )
        return
    for number in hang.reasons:
        task.ranks[number].is_broken = True
    stalled_s = turn.at - task.watch.moved_at
    turn.tell(
        "warning", "stall", task.spec.task,
        f"no iteration for {stalled_s:.2f} s: {hang.summary}",
        stalled_s=stalled_s, culprits=", ".join(map(str, sorted(hang.reasons))),
        looked_s=turn.at - inspection.since,
    )  # fmt: skip
    for evidence in _evidence(turn, task, inspection, hang):
        take_evidence(turn, task, evidence)


def _judge(turn: Turn, task: TaskState, inspection: Inspection) -> Hang | None:
    assert task.layout is not None
    pace = task.watch.pace
    limit_s = _limit_s(turn, task)
    is_over = turn.at - task.watch.moved_at >= turn.policy.slow_factor * limit_s
    patience_s = 0.0 if is_over else pace.average_s or limit_s
    hang = find_hang(
        inspection.standings,
        task.layout,
        patience_s=patience_s,
        is_complete=inspection.standings.keys() >= task.living_ranks.keys(),
    )
    if hang is None and task.spec.is_command and is_over:
        return Hang({}, "its program does not say where it stands")
    return hang


def _evidence(
    turn: Turn, task: TaskState, inspection: Inspection, hang: Hang
) -> Iterable[Evidence]:
    name = task.spec.task
    for number, reason in sorted(hang.reasons.items()):
        standing = inspection.standings[number]
        idle_s = standing.idle_s
        yield Evidence(
            kind="hang",
            at=turn.at,
            observed_at=task.watch.moved_at if idle_s is None else max(0.0, turn.at - idle_s),
            node=task.ranks[number].worker.node,
            task=name,
            global_rank=number,
            summary=f"rank {number} hangs: {reason}; {hang.summary}",
            detail=standing.stack,
        )
    if not hang.reasons:
        is_known = bool(inspection.standings)
        summary = f"no iteration: {hang.summary}"
        if is_known:
            summary = f"a collective does not end: {hang.summary}, and no rank is missing there"
        named = Status.NCCL_TIMEOUT if is_known else None
        stacks = [f"rank {n}:\n{one.stack}" for n, one in sorted(inspection.standings.items())]
        yield Evidence(
            kind="hang",
            at=turn.at,
            observed_at=task.watch.moved_at,
            node=None,
            task=name,
            global_rank=None,
            summary=summary,
            named=named,
            detail="\n".join(stacks)[:MAX_STACK_CHARS],
        )


# --- a task that is slow -------------------------------------------------------------------


def _note_lateness(turn: Turn, task: TaskState) -> None:
    """Tell operators when iterations begin to be late, and when that is over."""
    watch, average_s = task.watch, task.watch.pace.average_s
    late_s = watch.pace.late_s(turn.policy)
    if average_s is None or (late_s is not None) == watch.is_late:
        return
    watch.is_late = late_s is not None
    if late_s is None:
        text = f"iterations take {average_s:.2f} s again"
        turn.tell("info", "late_over", task.spec.task, text, average_s=average_s)
        return
    names = ", ".join(f"rank {number}" for number in watch.stragglers)
    text = f"iterations take {late_s:.2f} s, {late_s / average_s:.2f} x their average"
    turn.tell(
        "warning", "late", task.spec.task, text + (f"; the others wait for {names}" if names else ""),
        now_s=late_s, average_s=average_s,
    )  # fmt: skip


def note_stragglers(turn: Turn) -> None:
    """Tell operators which ranks have become slower than their peers, and which no longer are."""
    for task in turn.state.tasks.values():
        average_s = task.watch.pace.average_s
        if task.phase is not TaskPhase.RUNNING or task.layout is None or average_s is None:
            continue
        busy_s = {
            number: median(rank.busy_s)
            for number, rank in task.living_ranks.items()
            if len(rank.busy_s) == NUM_BUSY
        }
        now = find_stragglers(busy_s, task.layout, average_s, turn.policy)
        known, task.watch.stragglers = task.watch.stragglers, now
        for number in now:
            if number not in known:
                _tell_straggler(turn, task, number, busy_s)
        for number in known:
            if number not in now:
                text = f"rank {number} is as fast as its peers again"
                turn.tell("info", "straggler_over", task.spec.task, text, rank=number)


def _tell_straggler(turn: Turn, task: TaskState, number: int, busy_s: dict[int, float]) -> None:
    assert task.layout is not None
    node = task.ranks[number].worker.node
    peers_s = median_of_peers(number, busy_s, task.layout)
    assert peers_s is not None, "a straggler has peers"
    turn.tell(
        "warning", "straggler", task.spec.task,
        f"rank {number} on {node} takes {busy_s[number]:.3f} s for its micro-batches, its peers"
        f" {peers_s:.3f} s",
        rank=number, node=node, busy_s=busy_s[number], peers_s=peers_s,
    )  # fmt: skip


# --- a task that trains nonsense -----------------------------------------------------------


def note_numbers(
    turn: Turn, task: TaskState, commit: IterationCommitted, observed_at: float
) -> None:
    """Compare loss and gradient norm of a new iteration with their levels."""
    change = task.watch.levels.take(commit.loss, commit.grad_norm, turn.policy)
    if change == "ends":
        end_handed_over(turn, task, "loss and gradient norm are back at their levels")
    elif change == "begins":
        figures = task.watch.levels.describe(commit.loss, commit.grad_norm)
        summary = f"iteration {commit.iteration} and those before it spike: {figures}"
        hand_over(
            turn,
            task,
            Evidence(
                kind="numbers",
                at=turn.at,
                observed_at=observed_at,
                node=None,
                task=task.spec.task,
                global_rank=None,
                summary=summary,
            ),
        )
