"""Takes in changes of nodes, tasks and policy. Each is handled at any time, not only at the start.

Nothing that leaves is forgotten. A removed node or task stays in the state with a condition or a
phase of its own, so timers, incidents and plans that name it stay harmless. Whoever is added again
under the same name begins anew.
"""

from typing import assert_never

from controller.core.events import (
    MembershipChange,
    NodeAdded,
    NodeRemoved,
    PolicyChanged,
    TaskAdded,
    TaskChanged,
    TaskRemoved,
)
from controller.core.instructions import Level
from controller.core.membership.node_membership import add_node, remove_node
from controller.core.membership.task_arrivals import add_task, change_task, remove_task
from controller.core.state.turn import Turn


def take_change(turn: Turn, event: MembershipChange) -> None:
    """Take in a change. The machine has a changed policy already."""
    match event:
        case NodeAdded():
            add_node(turn, event.spec)
        case NodeRemoved():
            remove_node(turn, event.node)
        case TaskAdded():
            add_task(turn, event.spec)
        case TaskChanged():
            change_task(turn, event.spec)
        case TaskRemoved():
            remove_task(turn, event.task)
        case PolicyChanged():
            _note_policy(turn)
        case _:
            assert_never(event)


def _note_policy(turn: Turn) -> None:
    """A plan that waits may be granted by the new policy, or be another one under it."""
    level: Level = "info" if turn.state.nodes else "trace"  # every run begins with a policy
    turn.announce(level, "policy", "policy", "the policy has changed")
    if turn.state.plans.pending() is not None:
        turn.want_plan("policy", "the policy has changed")
