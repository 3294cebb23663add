"""A task that is slow: iterations that take too long, and ranks that are slower than their peers.

Both are warnings: one when it begins and one when it is over, never one per iteration. Noise is no
alarm. A rank has to be slower in ``straggler_beats`` more heartbeats than it was not.
"""

from typing import Final

from controller.core.instructions import Level
from controller.core.rules.stragglers import Computing, is_straggler, median_of
from controller.core.state.phases import TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId

_MUCH_WAITING: Final = 0.05
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
    longest_s = max((rank.waited_s for rank in task.living_ranks.values()), default=0.0)
    if longest_s >= _MUCH_WAITING * average_s:
        # No rank is slow then: the cores of a node have other work.
        text += _waiting(longest_s)
    turn.announce("warning", "late", task.spec.task, text, now_s=late_s, average_s=average_s)


def note_stragglers(turn: Turn, node: NodeId) -> None:
    """Compare the ranks of a node, whose heartbeat has come, with their peers."""
    for task in turn.state.tasks.values():
        average_s = task.watch.pace.average_s
        if (
            task.lifecycle.phase is TaskPhase.RUNNING
            and average_s is not None
            and task.runs_on(node)
        ):
            _compare(turn, task, node, average_s)


def _compare(turn: Turn, task: TaskState, node: NodeId, average_s: float) -> None:
    layout = task.layout
    assert layout is not None, "a task that runs has a layout"
    known = {
        number: Computing(rank.busy_s, rank.busy_spread_s, rank.waited_s)
        for number, rank in task.living_ranks.items()
        if rank.busy_s > 0
    }
    for number, own in known.items():
        rank = task.ranks[number]
        if rank.worker.node != node:
            continue
        stage = layout.pp_rank(number)
        peers = [one for n, one in known.items() if n != number and layout.pp_rank(n) == stage]
        is_slow = is_straggler(own, peers, average_s, turn.policy)
        most = turn.policy.straggler_beats
        num_slow = rank.count_slow_beat(is_slow=is_slow, most=most)
        if num_slow == most and number not in task.watch.slowness.stragglers:
            task.watch.slowness.note_straggler(number)
            _announce(turn, task, number, own, median_of(peers))
        elif num_slow == 0 and number in task.watch.slowness.stragglers:
            task.watch.slowness.end_straggler(number)
            text = f"rank {number} is as fast as its peers again"
            turn.announce("info", "straggler_over", task.spec.task, text, rank=number)


def _announce(turn: Turn, task: TaskState, number: int, own: Computing, peers_s: float) -> None:
    node, busy_s = task.ranks[number].worker.node, own.median_s
    turn.announce(
        "warning", "straggler", task.spec.task,
        f"rank {number} on {node} takes {busy_s:.3f} s for its micro-batches, its peers"
        f" {peers_s:.3f} s{_waiting(own.waited_s)}",
        rank=number, node=node, busy_s=busy_s, peers_s=peers_s, waited_s=own.waited_s,
    )  # fmt: skip
