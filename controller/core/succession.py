"""A controller takes over from one that ended, at whatever instant that was.

The journal has rebuilt the state; what lived beside it is gone: sessions with the agents, the
rendezvous tables, and every instruction whose outcome had not come back. So no node is in contact
until its agent attaches again, which is also when orders that may have been lost are given again
(``controller.core.lifecycle``). A node counts as out of contact from now on: the silence before was
the controller's own. A generation that was forming met in a table that no longer exists: it is
parked, and the next one begun in its place.
"""

from controller.core.events import ControllerStarted
from controller.core.parking import halt
from controller.core.phases import NodeCondition, TaskPhase
from controller.core.timers import JudgeNode
from controller.core.turn import Turn


def take_over(turn: Turn, event: ControllerStarted) -> None:
    """Begin a controller's work, where it is not the run's first one with what the last one left."""
    if event.term == 1:
        return
    for name, node in turn.state.nodes.items():
        node.answers.clear()
        node.open_probes.clear()
        if node.condition is NodeCondition.HEALTHY:
            node.become(NodeCondition.UNREACHABLE, "presumed training: the controller was away")
            node.lost_contact_at = turn.at
            node.judged_from = turn.at + turn.policy.takeover_grace_s
        if node.condition is NodeCondition.UNREACHABLE:
            turn.set_timer(JudgeNode(name), turn.policy.judge_interval_s)
    turn.tell(
        "warning", "takeover", "controller",
        f"has taken over (term {event.term}): the nodes are asked what lives there",
        term=event.term,
    )  # fmt: skip
    for task in turn.state.tasks.values():
        task.has_lost_rendezvous = task.phase is TaskPhase.STARTING and not task.spec.is_command


def form_anew(turn: Turn) -> None:
    """Park the generations that can't form any more, once all their ranks have been told of them."""
    for task in turn.state.tasks.values():
        if not task.has_lost_rendezvous or task.phase is not TaskPhase.STARTING:
            continue
        in_contact = all(
            turn.state.nodes[name].condition is NodeCondition.HEALTHY for name in task.nodes
        )
        if in_contact and all(rank.is_seen for rank in task.living_ranks.values()):
            halt(turn, task, note="forms anew: its rendezvous ended with the controller")
