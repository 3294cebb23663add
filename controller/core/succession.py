"""A controller takes over from a controller that ended, at any instant.

The journal has rebuilt the state. Sessions with the agents are lost, and so are instructions
without an outcome. So no node is in contact until its agent attaches again. Orders that may have
been lost are sent again then (``controller.core.lifecycle.start_stop``). No node is blamed for the
time without a
controller: it counts as out of contact from now on and is not judged for a while. Transitions under
way are not learned from. A generation that was forming continues to form, since its rendezvous is
kept beside the journal.
"""

from controller.core.events import ControllerStarted
from controller.core.measuring.sizes import end_of_controller
from controller.core.nodes.contact import await_node
from controller.core.state.turn import Turn


def take_over(turn: Turn, event: ControllerStarted) -> None:
    """Begin a controller's work, if another controller of the run was there before."""
    turn.state.automation.note_start(event.started_wall_s)
    if event.term == 1:
        return
    turn.state.drills.forget()
    end_of_controller(turn)
    for node in turn.state.nodes.values():
        await_node(turn, node)
    turn.announce(
        "warning", "takeover", "controller",
        f"has taken over (term {event.term}): agents are asked for their ranks",
        term=event.term,
    )  # fmt: skip
    for task in turn.state.tasks.values():
        task.spares.end_wait()  # whether it was begun is unknown
        task.transitions.learn_nothing_unless_done()
        if task.lifecycle.parking:
            task.lifecycle.parking.restart_clock(turn.at)
        task.stopping.restart_clock(turn.at)
        task.watch.forgive_absence(turn.at)
