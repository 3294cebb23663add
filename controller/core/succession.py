"""A controller takes over from one that ended, at whatever instant that was.

The journal has rebuilt the state; what lived beside it is gone: sessions with the agents, the
rendezvous tables, and every instruction whose outcome had not come back. So no node is in contact
until its agent attaches again, which is also when orders that may have been lost are given again
(``controller.core.lifecycle``). Nobody is blamed for the time in which no controller listened: a node
counts as out of contact from now on and is not judged for a while, and transitions under way teach
nothing. A generation that was forming met in a table that no longer exists: unless all its ranks have
joined by now, it is parked, and the next one begun in its place.
"""

from controller.core.events import ControllerStarted
from controller.core.parking import halt
from controller.core.phases import NodeCondition, TaskPhase
from controller.core.preparation import end_preparation
from controller.core.state import NodeState
from controller.core.tasks import TaskState
from controller.core.timers import JudgeNode
from controller.core.turn import Turn


def take_over(turn: Turn, event: ControllerStarted) -> None:
    """Begin a controller's work, where it is not the run's first one with what the last one left."""
    if event.term == 1:
        return
    turn.state.drills.clear()  # whether they were carried out is unknown: they excuse no fault
    measurement = turn.state.measurement
    if measurement and not measurement.ended:
        measurement.ended = "the controller was replaced"  # whoever asked is not told any more
    for node in turn.state.nodes.values():
        _await_node(turn, node)
    turn.tell(
        "warning", "takeover", "controller",
        f"has taken over (term {event.term}): the nodes are asked what lives there",
        term=event.term,
    )  # fmt: skip
    for task in turn.state.tasks.values():
        has_joined = all(rank.joined for rank in task.ranks.values())
        task.has_lost_rendezvous = (
            task.phase is TaskPhase.STARTING and not has_joined and not task.spec.is_command
        )
        end_preparation(task)  # whether it was begun is unknown
        if task.transition:
            task.transition.teaches = task.transition.is_done
        if task.parking:
            task.parking.since, task.parking.parked_at = turn.at, None
        task.stopping_since = turn.at
        task.watch.go_on(turn.at)


def _await_node(turn: Turn, node: NodeState) -> None:
    """Give a node that was in contact, or whose fate was open, time to be reached."""
    node.answers.clear()
    node.open_probes.clear()
    if node.condition is NodeCondition.HEALTHY:
        node.become(NodeCondition.UNREACHABLE, "presumed training: the controller was away")
    if node.condition is NodeCondition.UNREACHABLE:
        node.lost_contact_at = turn.at
        node.judged_from = turn.at + turn.policy.takeover_grace_s
        turn.set_timer(JudgeNode(node.spec.node), turn.policy.judge_interval_s)


def form_anew(turn: Turn) -> None:
    """Park the generations that can't form any more, once all their ranks have been told of them.

    What their agents have kept for the new controller comes first: it may say that all have joined.
    """
    for task in turn.state.tasks.values():
        if not task.has_lost_rendezvous:
            continue
        ranks = task.living_ranks.values()
        if task.phase is not TaskPhase.STARTING or all(rank.joined for rank in ranks):
            task.has_lost_rendezvous = False
        elif all(rank.is_seen for rank in ranks) and _have_reported(turn, task):
            halt(turn, task, note="forms anew: its rendezvous ended with the controller")


def _have_reported(turn: Turn, task: TaskState) -> bool:
    """Return whether all nodes of the task are in contact, and have been for a moment."""
    nodes = [turn.state.nodes[name] for name in task.nodes]
    return all(
        node.condition is NodeCondition.HEALTHY
        and turn.at - node.in_contact_since >= turn.policy.settle_s
        for node in nodes
    )
