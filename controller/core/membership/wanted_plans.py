"""Plans for changes of nodes and tasks.

A new controller takes changes of its file in before any agent has attached, and no plan moves what
is out of contact. So plans wait for a moment until all nodes are back, and until each new node has
come or is lost: without it, a new task would take workers from others, and soon give them back. A
plan for a node that is to leave waits until that node is in contact, or lost. One plan is made for
all changes together.
"""

from controller.core.state.phases import NodeCondition
from controller.core.state.turn import PlanRequest, Turn
from nodeagent.protocol.ids import NodeId


def ask_for_wanted_plans(turn: Turn) -> None:
    """Ask for the plan of all changes that no node out of contact holds up."""
    wanted = turn.state.wanted_plans
    if not wanted.seen:
        return
    away = turn.state.index.of(NodeCondition.UNREACHABLE)
    waited_s = turn.at - wanted.since
    if away and waited_s < turn.policy.takeover_grace_s:
        return
    if turn.state.index.of(NodeCondition.EXPECTED):
        return
    due = {name: seen for name, seen in wanted.seen.items() if NodeId(name) not in away}
    if due:
        wanted.drop(due)
        trigger, text = next(iter(due)), "; ".join(due.values())
        turn.ask_for_plan(PlanRequest(trigger, text))
