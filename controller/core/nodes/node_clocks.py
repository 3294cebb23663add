"""How far a node's wall clock is off the controller's, from its heartbeats.

Reports carry the node's wall clock, and logs of several nodes are read side by side: a clock that
is off turns cause and effect around. A heartbeat says when it was sent by the node's clock; the
controller notes when it arrived by its own. The difference is the heartbeat's *age*: its travel
time, less what the node's clock is ahead. Travel takes no negative time, so a node is ahead by at
least what its ages are below zero; and since not every heartbeat is held up, it is behind by about
the smallest age of several in a row. So the smallest of the newest ages is the offset, wrong by no
more than the fastest of these travels took.

A node can't know that its clock is wrong, so this is no probe of the agent's. Nothing is decided by
it: it is announced, and it is a finding of the node until it is over.
"""

from collections.abc import Sequence
from typing import Final

from controller.core.events import ClockMeasured
from controller.core.incidents.node_findings import announce_finding
from controller.core.rules.policy import Policy
from controller.core.state.node import NodeState
from controller.core.state.turn import Turn
from nodeagent.protocol.findings import NodeFinding
from profiles.faults.status_table import named

NUM_AGES: Final = 10
"""Five seconds of heartbeats: longer than an unnoticed delay of link or controller."""
_CALM_SHARE: Final = 0.5
"""A clock is right again below this share of the limit, so no fault is announced twice."""
_KEY: Final = ("clock_off", "")


def clock_offset_s(ages_s: Sequence[float]) -> float | None:
    """Return how many seconds a node's clock is ahead, or behind if negative.

    None if not known yet.

    Args:
        ages_s: Of the newest heartbeats: arrival by the controller's clock less departure by the
            node's.
    """
    return -min(ages_s) if len(ages_s) >= NUM_AGES else None


def is_clock_news(node: NodeState, offset_s: float, policy: Policy) -> bool:
    """Return whether a clock has begun to be off, has moved since, or is right again."""
    known, limit_s = node.findings.present.get(_KEY), policy.clock_limit_s
    if known is None:
        return abs(offset_s) > limit_s
    has_moved = known.value is None or abs(offset_s - known.value) > _CALM_SHARE * limit_s
    return has_moved or abs(offset_s) <= _CALM_SHARE * limit_s


def take_clock(turn: Turn, event: ClockMeasured) -> None:
    """Announce once that a clock is off, or right again."""
    node, offset_s, limit_s = (
        turn.state.nodes[event.node],
        event.offset_s,
        turn.policy.clock_limit_s,
    )
    known = node.findings.present.get(_KEY)
    if abs(offset_s) > limit_s or (known and abs(offset_s) > _CALM_SHARE * limit_s):
        finding = _finding(offset_s, limit_s)
        if not node.findings.keep(finding, turn.at):
            announce_finding(turn, node, finding, named("none"))
    elif known:
        over = _finding(offset_s, limit_s).model_copy(update={"is_over": True})
        node.findings.keep(over, turn.at)
        announce_finding(turn, node, over, named("none"))


def _finding(offset_s: float, limit_s: float) -> NodeFinding:
    way = "ahead of" if offset_s > 0 else "behind"
    return NodeFinding(
        probe="clock",
        sign="clock_off",
        text=f"the clock is {abs(offset_s):.1f} s {way} the controller's (limit {limit_s:g} s)",
        value=round(offset_s, 3),
        limit=limit_s,
    )
