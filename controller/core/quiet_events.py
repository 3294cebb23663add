"""Events after which the sweeps have nothing to do: reports that others of their kind follow.

A generation of a thousand ranks starts, joins and parks with a thousand reports each, and only the
last one decides anything. The sweeps look at all tasks and ranks, so the time of a transition would
grow with the square of its size. ``Machine`` leaves them out after a quiet event, if the previous
pass was at the same time and had nothing to do. Nothing depends on the time alone then.

In checked machines the sweeps run all the same, and must emit nothing.
"""

from controller.core.events import Event, Observed
from controller.core.lifecycle.parking import awaits_ranks
from controller.core.lifecycle.spares import awaits_spares
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.observations import RankHalted, RankJoined, RankStarted


def is_quiet(turn: Turn, event: Event) -> bool:
    """Return whether an event that was taken in changed nothing that a sweep looks at."""
    body = event.body
    if not isinstance(body, Observed) or turn.plan_requests:
        return False
    report = body.observation
    if not isinstance(report, RankStarted | RankJoined | RankHalted):
        return False
    task = turn.state.tasks.get(report.task)
    if task is None or report.generation != task.generation:
        return False
    if isinstance(report, RankStarted):
        # A process that was seen is waited for. Nobody acts because it is waited for.
        return True
    # The first report of a setting that does not recover in process changes what is possible.
    if report.unsupported:
        return False
    if isinstance(report, RankJoined):
        return any(rank.joined is None for rank in reversed(task.ranks.values()))
    return _is_one_of_many(turn, task, report)


def _is_one_of_many(turn: Turn, task: TaskState, halted: RankHalted) -> bool:
    """Return whether the task waits for more ranks, or spares, after this one has parked."""
    if halted.global_rank in task.ranks:
        return task.lifecycle.parking is not None and awaits_ranks(turn, task)
    # A parked task without a target may continue with the spares that wait already.
    return task.lifecycle.parking is None and awaits_spares(task)
