"""A controller takes over from one that ended, at whatever instant that was.

The journal has rebuilt the state; what lived beside it is gone: sessions with the agents, and every
instruction whose outcome had not come back. So no node is in contact
until its agent attaches again, which is also when orders that may have been lost are given again
(``controller.core.lifecycle.start_stop``). Nobody is blamed for the time in which no controller listened: a node
counts as out of contact from now on and is not judged for a while, and transitions under way teach
nothing. A generation that was forming goes on to form: what its ranks have told each other is kept beside
the journal.
"""

from controller.core.events import ControllerStarted
from controller.core.lifecycle.spares import end_spare_preparation
from controller.core.state.cluster import NodeState
from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn
from controller.core.timers import JudgeNode


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
        end_spare_preparation(task)  # whether it was begun is unknown
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
