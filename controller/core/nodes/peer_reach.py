"""Which nodes can see a node's SSH port at all.

Where a firewall closes SSH between nodes, or the server listens on another network, the port is
silent to all peers, or refuses them, while all is well. So what a peer misses counts only if it has
had an answer before. That is tried when a node joins: some
nodes in contact look at the newcomer, and the newcomer looks at nodes that few have looked at. Each
pair is tried once, for servers penalise an address that connects often and does not log in.
"""

from typing import Final

from controller.core.instructions import ProbeNode
from controller.core.nodes.node_evidence import peers_of
from controller.core.state.node import NodeState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId

_NUM_TRIED: Final = 4
"""Peers that look at each node. Some of them may be lost together with it."""


def try_peers(turn: Turn, node: NodeState) -> None:
    """The node has come: have it and others look at each other."""
    name, peers = node.spec.node, peers_of(turn, node)
    _try(turn, node, _spread(turn, name, peers))
    few = [
        turn.state.nodes[peer]
        for peer in peers
        if len(turn.state.nodes[peer].reach.tried_by) < _NUM_TRIED
    ]
    for other in few[:_NUM_TRIED]:
        _try(turn, other, (name,))


def _spread(turn: Turn, name: NodeId, peers: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    """Return some peers, far from each other. Which ones depends on the node: none has all."""
    if len(peers) <= _NUM_TRIED:
        return peers
    first = sum(name.encode()) + len(turn.state.nodes)
    step = len(peers) // _NUM_TRIED
    return tuple(peers[(first + number * step) % len(peers)] for number in range(_NUM_TRIED))


def _try(turn: Turn, node: NodeState, by: tuple[NodeId, ...]) -> None:
    new = tuple(peer for peer in by if peer not in node.reach.tried_by)
    if new:
        node.reach.note_tried(new)
        turn.emit(ProbeNode(turn.cause, node.spec.node, new))
