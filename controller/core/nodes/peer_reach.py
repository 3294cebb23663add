"""Which nodes can see a node's SSH port at all.

Where a firewall closes SSH between nodes, or the server listens on another network, the port is
silent to all peers, or refuses them, while all is well. So what a peer misses counts only if it has
had an answer before. That is tried when a node joins: some
nodes in contact look at the newcomer, and the newcomer looks at nodes that few have looked at. Each
pair is tried once, for servers penalise an address that connects often and does not log in.
"""

from typing import Final

from controller.core.instructions import ProbeNode
from controller.core.nodes.node_evidence import is_peer
from controller.core.state.node import NodeState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId

_NUM_TRIED: Final = 4
"""Peers that look at each node. Some of them may be lost together with it."""


def try_peers(turn: Turn, node: NodeState) -> None:
    """The node has come: have it and others look at each other."""
    name, index = node.spec.node, turn.state.index
    few = [peer for peer in index.seldom_tried if is_peer(turn, node, peer)]
    # Where the search begins depends on the node: no peer is asked about all of them.
    first = sum(name.encode()) + len(index.names)
    peers = index.spread(_NUM_TRIED, lambda other: is_peer(turn, node, other), first)
    _try(turn, node, peers)
    for other in few[:_NUM_TRIED]:
        _try(turn, turn.state.nodes[other], (name,))


def _try(turn: Turn, node: NodeState, by: tuple[NodeId, ...]) -> None:
    new = tuple(peer for peer in by if peer not in node.reach.tried_by)
    is_seldom = len(node.reach.tried_by) + len(new) < _NUM_TRIED
    turn.state.index.note_tried(node.spec.node, is_seldom=is_seldom)
    if new:
        node.reach.note_tried(new)
        turn.emit(ProbeNode(turn.cause, node.spec.node, new))
