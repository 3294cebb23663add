"""A task that is slow: iterations that take too long, and ranks that are slower than their peers.

Each is announced when it begins and when it is over, and not in between. Which ranks
are slower is seen in their heartbeats: ``controller.core.heartbeats.heartbeat_watch``.
"""

from typing import Final

from controller.core.events import StragglerFound, StragglerOver, WaitingChanged
from controller.core.instructions import Level
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import Generation, TaskId

MUCH_WAITING: Final = 0.05
"""Share of an iteration from which waiting for a core is worth a word."""
_LEAST_SHOWN_S: Final = 0.05


def _waiting(waited_s: float) -> str:
    return f"; waited {waited_s:.1f} s for a core" if waited_s >= _LEAST_SHOWN_S else ""


def note_lateness(turn: Turn, task: TaskState) -> None:
    """Announce when iterations begin to be late, and when that is over."""
    watch, average_s = task.watch, task.watch.pace.average_s
    late_s = watch.pace.late_s(turn.policy)
    if average_s is None or (late_s is not None) == watch.slowness.is_late:
        return
    usual_s = watch.slowness.note_late(None if late_s is None else average_s)
    if late_s is None:
        assert usual_s is not None, "it was late"
        now_s = watch.pace.newest_s(turn.policy) or average_s
        is_over = now_s <= turn.policy.late_factor * usual_s
        text = f"iterations take {now_s:.2f} s again"
        if not is_over:
            ratio = now_s / usual_s
            text = f"late iterations are the usual ones now: {now_s:.2f} s, {ratio:.2f} x before"
        level: Level = "info" if is_over else "warning"
        turn.announce(level, "late_over", task.spec.task, text, average_s=average_s)
        return
    text = f"iterations take {late_s:.2f} s, {late_s / average_s:.2f} x their average"
    if watch.slowness.stragglers:
        names = ", ".join(f"rank {number}" for number in sorted(watch.slowness.stragglers))
        text += f"; their peers wait for {names}"
    if watch.slowness.waited_s >= MUCH_WAITING * average_s:
        # No rank is slow then: the cores of a node have other work.
        text += _waiting(watch.slowness.waited_s)
    turn.announce("warning", "late", task.spec.task, text, now_s=late_s, average_s=average_s)


def take_straggler(turn: Turn, event: StragglerFound) -> None:
    """A rank is slower than its peers."""
    task = _trains(turn, event.task, event.generation)
    number = event.global_rank
    if task is None or number not in task.ranks or number in task.watch.slowness.stragglers:
        return
    task.watch.slowness.note_straggler(number)
    node = task.ranks[number].worker.node
    turn.announce(
        "warning", "straggler", event.task,
        f"rank {number} on {node} takes {event.busy_s:.3f} s for its micro-batches, its peers"
        f" {event.peers_s:.3f} s{_waiting(event.waited_s)}",
        rank=number, node=node, busy_s=event.busy_s, peers_s=event.peers_s,
        waited_s=event.waited_s,
    )  # fmt: skip


def take_straggler_over(turn: Turn, event: StragglerOver) -> None:
    """A rank is as fast as its peers again."""
    task, number = _trains(turn, event.task, event.generation), event.global_rank
    if task is None or number not in task.watch.slowness.stragglers:
        return
    task.watch.slowness.end_straggler(number)
    text = f"rank {number} is as fast as its peers again"
    turn.announce("info", "straggler_over", event.task, text, rank=number)


def take_waiting(turn: Turn, event: WaitingChanged) -> None:
    """Ranks wait for a core for longer, or less long, than they did."""
    task = _trains(turn, event.task, event.generation)
    if task is not None:
        task.watch.slowness.note_waiting(event.waited_s)


def _trains(turn: Turn, name: TaskId, generation: Generation) -> TaskState | None:
    """Return a task whose present generation is this one and trains."""
    task = turn.state.tasks.get(name)
    if task is None or task.generation != generation:
        return None
    return task if task.lifecycle.phase is TaskPhase.RUNNING else None
