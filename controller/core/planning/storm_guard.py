"""Stops automation in a storm: too many plans an hour, or too much of the fleet lost at once.

Then something is wrong that the controller does not understand: a switch, a shared disk, a bad
image. Moving tasks around does not help, and costs more with each plan. So from then on each plan
waits for an operator, until one lets it continue.
"""

from typing import Final

from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn

_WINDOW_S: Final = 3600.0


def note_applied(turn: Turn) -> None:
    """Policy applies a plan."""
    turn.state.automation.note_applied(turn.at, turn.at - _WINDOW_S)


def stop_in_storm(turn: Turn) -> bool:
    """Stop automation if there is a storm; return whether it is stopped."""
    automation = turn.state.automation
    if automation.stopped:
        return True
    reason = _storm(turn)
    if not reason:
        return False
    automation.stop(reason, turn.at)
    turn.announce(
        "error", "storm", "unicron",
        f"automation is stopped: {reason}; plans wait for an approval until `unicron resume`",
    )  # fmt: skip
    return True


def _storm(turn: Turn) -> str:
    """Return why automation has to stop; empty if it has not."""
    policy, automation = turn.policy, turn.state.automation
    since = max(turn.at - _WINDOW_S, automation.resumed_at)
    num_applied = sum(at >= since for at in automation.applied_at)
    if policy.storm_plans and num_applied >= policy.storm_plans:
        return f"{num_applied} plans were applied within an hour, storm_plans allows no more"
    if not policy.storm_lost_share:
        return ""
    nodes = turn.state.nodes
    lost = [
        nodes[name]
        for name in turn.state.index.of(NodeCondition.LOST)
        if nodes[name].contact.lost_contact_at >= since and nodes[name].upkeep.takes_new
    ]
    num_lost = sum(node.spec.num_workers for node in lost)
    num_all = sum(
        node.spec.num_workers
        for node in nodes.values()
        if node.contact.condition is not NodeCondition.REMOVED
    )
    if num_lost <= policy.storm_lost_share * num_all:
        return ""
    return (
        f"{len(lost)} nodes with {num_lost} of {num_all} workers were lost within an hour, more than"
        f" storm_lost_share = {policy.storm_lost_share:g}"
    )
