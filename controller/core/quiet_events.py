"""Events after which the sweeps have nothing to do: reports that others of their kind follow.

A generation of a thousand ranks starts, joins and parks with a thousand reports each, and only the
last one decides anything. The sweeps look at all tasks and ranks, so the time of a transition would
grow with the square of its size. ``Machine`` leaves them out after a quiet event, if the previous
pass was at the same time and had nothing to do. Nothing depends on the time alone then.

In checked machines the sweeps run all the same, and must emit nothing.
"""

from typing import Final

from controller.core.events import Event, EventBody, Observed, PeerProbed, StopCarriedOut
from controller.core.lifecycle.parking import awaits_ranks
from controller.core.lifecycle.spares import awaits_spares
from controller.core.state.phases import InvariantViolationError, NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.sweeps import num_settled, run_sweeps
from nodeagent.protocol.observations import (
    RankDone,
    RankExited,
    RankHalted,
    RankJoined,
    RankStarted,
)

_ONE_OF_MANY: Final = (RankJoined, RankHalted, RankStarted, RankDone, RankExited)


class SweepPass:
    """Runs the sweeps after an event, if they may have something to do."""

    def __init__(self, num_settled: int = 0, settled_at: float | None = None) -> None:
        self.num_settled = num_settled
        """Tasks that have finished. A quiet event finishes none."""
        self.settled_at = settled_at
        """When the sweeps last had nothing to do; None if they had."""

    def run(self, turn: Turn, event: Event, *, is_checked: bool) -> None:
        """Run the sweeps, unless the event is quiet.

        Raises:
            InvariantViolationError: A checked sweep emits what it may not emit.
        """
        is_over = self.settled_at == event.at and is_quiet(turn, event)
        if is_over and not is_checked:
            return
        num_before = len(turn.instructions)
        run_sweeps(turn, is_checked=is_checked)
        emitted = turn.instructions[num_before:]
        if is_over and emitted:
            raise InvariantViolationError(f"a sweep after a quiet event emitted {emitted[0]}")
        self.settled_at = None if emitted else event.at
        self.num_settled = num_settled(turn)


def is_quiet(turn: Turn, event: Event) -> bool:
    """Return whether an event that was taken in changed nothing that a sweep looks at."""
    body = event.body
    if turn.plan_requests:
        return False
    if not isinstance(body, Observed):
        return _is_quiet_answer(turn, body)
    if turn.is_repetition:
        return True
    report = body.observation
    if not isinstance(report, _ONE_OF_MANY):
        return False
    task = turn.state.tasks.get(report.task)
    if task is None or report.generation != task.generation:
        return False
    match report:
        case RankJoined(unsupported=()):
            is_one_of_many = task.awaits_states
        case RankHalted(unsupported=()):
            is_one_of_many = _is_one_of_many(turn, task, report)
        case RankStarted():
            # A process that was seen is waited for. Nobody acts because it is waited for.
            is_one_of_many = True
        case RankDone() | RankExited():
            is_one_of_many = report.global_rank in task.ranks and _ends_with_others(
                turn, task, report
            )
        case _:
            # The first report of a setting that does not recover in process changes what can be.
            is_one_of_many = False
    return is_one_of_many


def _is_quiet_answer(turn: Turn, body: EventBody) -> bool:
    """Return whether an answer about a node is kept only, for a judgement that is still open."""
    if isinstance(body, PeerProbed):
        return turn.state.nodes[body.node].contact.condition is not NodeCondition.LOST
    # Only inventories look at the nodes that have carried a stop out.
    return isinstance(body, StopCarriedOut) and body.task in turn.state.tasks


def _is_one_of_many(turn: Turn, task: TaskState, halted: RankHalted) -> bool:
    """Return whether the task waits for more ranks, or spares, after this one has parked."""
    if halted.global_rank in task.ranks:
        return task.lifecycle.parking is not None and awaits_ranks(turn, task)
    # A parked task without a target may continue with the spares that wait already.
    return task.lifecycle.parking is None and awaits_spares(task)


def _ends_with_others(turn: Turn, task: TaskState, ended: RankDone | RankExited) -> bool:
    """Return whether a stopping task has living ranks that still block what this one blocked."""
    is_expected = isinstance(ended, RankDone) or ended.is_expected
    measurement = turn.state.measurements.current
    if (
        task.lifecycle.phase is not TaskPhase.STOPPING
        or not is_expected
        or (measurement is not None and not measurement.is_over)
    ):
        return False
    living = (rank.worker for rank in reversed(task.ranks.values()) if rank.is_alive)
    last = next(living, None)
    worker = task.ranks[ended.global_rank].worker
    wanting = (
        other.assignment.target.ranks
        for other in turn.state.tasks.values()
        if other is not task and other.assignment.target is not None
    )
    # Ranks end roughly in their order, so it is enough to look at the last living rank.
    return last is not None and all(worker not in wanted or last in wanted for wanted in wanting)
