"""Keeps the view of the cluster up to date: what an event can't have changed is not made again.

A snapshot goes to clients several times a second, and with a thousand nodes nearly all of it is
nodes. So the view of each node is kept until an event touches it, or the node has said something
new. Most events touch one node. Which ones is a short list; after any other event, and after any
instruction that is more than words, all nodes are looked at again.
"""

from collections.abc import Sequence
from typing import Final

from controller.api.projection import Frame, node_view, project
from controller.api.views import ClusterView, NodeView
from controller.core.events import (
    ClockMeasured,
    Event,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    Observed,
    PeerProbed,
    RanksListed,
    StragglerFound,
    StragglerOver,
    TaskAdvanced,
    WaitingChanged,
)
from controller.core.heartbeats.heartbeat_watch import Pulse
from controller.core.instructions import (
    Announce,
    AnswerRequest,
    InspectRanks,
    Instruction,
    ProbeNode,
    RecordIterations,
    SetTimer,
)
from controller.core.state.cluster import ClusterState
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.observations import (
    CheckpointSaved,
    IterationCommitted,
    RankHalted,
    RankJoined,
    RankStarted,
)

_WORDS: Final = (Announce, AnswerRequest, InspectRanks, ProbeNode, RecordIterations, SetTimer)
"""Instructions that come with no change of another node."""
_OF_OTHERS: Final = frozenset({"drained", "uncordon"})
"""Kinds of announcements about a node that need not be the event's own."""
_OF_ONE_RANK: Final = (CheckpointSaved, IterationCommitted, RankHalted, RankJoined, RankStarted)


class ViewKeeper:
    """The view of one state."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._nodes: dict[NodeId, tuple[Pulse | None, NodeView]] = {}

    def note(self, event: Event, instructions: Sequence[Instruction]) -> None:
        """An event was handled."""
        touched = touched_nodes(event, instructions)
        if touched is None:
            self._nodes.clear()
            return
        for node in touched:
            self._nodes.pop(node, None)

    def view(self, now: float, frame: Frame) -> ClusterView:
        """Return the view at ``now``."""
        return project(self._state, now, frame, self._node)

    def _node(self, name: NodeId, frame: Frame) -> NodeView:
        pulse = frame.pulses.get(name)
        known = self._nodes.get(name)
        if known is None or known[0] is not pulse:
            view = node_view(self._state.nodes[name], self._state, frame.pulses)
            known = self._nodes[name] = (pulse, view)
        return known[1]


def touched_nodes(event: Event, instructions: Sequence[Instruction]) -> tuple[NodeId, ...] | None:
    """Return the nodes whose views may have changed by an event; None for all."""
    if not all(isinstance(each, _WORDS) for each in instructions):
        return None
    if any(isinstance(each, Announce) and each.kind in _OF_OTHERS for each in instructions):
        return None
    match event.body:
        case StragglerFound() | StragglerOver() | WaitingChanged():
            return ()
        case (
            ClockMeasured(node=node)
            | NodeAnswered(node=node)
            | NodeAttached(node=node)
            | NodeFellSilent(node=node)
            | PeerProbed(node=node)
            | RanksListed(node=node)
            | TaskAdvanced(node=node)
        ):
            return (node,)
        case Observed(node=node, observation=observation) if isinstance(observation, _OF_ONE_RANK):
            return (node,)
        case _:
            return None
