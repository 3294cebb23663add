"""Which nodes are in which condition, kept up to date: no event has to look at all nodes for that.

Each node's records hold the cluster's index, and write into it what they become. Nodes of one
condition are in the order in which they came into it.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from controller.core.state.phases import NodeCondition
from nodeagent.protocol.ids import NodeId


def _no_nodes() -> dict[NodeCondition, dict[NodeId, None]]:
    return {condition: {} for condition in NodeCondition}


@dataclass(slots=True)
class NodeIndex:
    """The names of the cluster's nodes by what they are now."""

    names: list[NodeId] = field(default_factory=list)
    """All of them, in the cluster's order: neighbours in it share racks and switches."""
    by_condition: dict[NodeCondition, dict[NodeId, None]] = field(default_factory=_no_nodes)
    silent: dict[NodeId, None] = field(default_factory=dict)
    """Nodes in contact that have fallen silent."""
    leaving: dict[NodeId, None] = field(default_factory=dict)
    """Nodes that were removed, and still have processes of tasks."""
    upkeep: dict[NodeId, None] = field(default_factory=dict)
    """Nodes that are being drained, or are to return from a repair."""
    seldom_tried: dict[NodeId, None] = field(default_factory=dict)
    """Nodes whose SSH port few peers have looked at."""

    def add(self, node: NodeId, condition: NodeCondition) -> None:
        """A node is known from now on."""
        if any(node in nodes for nodes in self.by_condition.values()):
            for nodes in self.by_condition.values():
                nodes.pop(node, None)
        else:
            self.names.append(node)
        self.by_condition[condition][node] = None

    def move(self, node: NodeId, before: NodeCondition, after: NodeCondition) -> None:
        """A node is in another condition."""
        self.by_condition[before].pop(node, None)
        self.by_condition[after][node] = None

    def note_silence(self, node: NodeId, *, is_silent: bool) -> None:
        """A node in contact has fallen silent, or is silent no more."""
        self._note(self.silent, node, is_in=is_silent)

    def note_leaving(self, node: NodeId, *, is_leaving: bool) -> None:
        """A node is to leave the cluster, has left it, or stays."""
        self._note(self.leaving, node, is_in=is_leaving)

    def note_upkeep(self, node: NodeId, *, is_waiting: bool) -> None:
        """A node is being drained or is to return from a repair, or that is over."""
        self._note(self.upkeep, node, is_in=is_waiting)

    def note_tried(self, node: NodeId, *, is_seldom: bool) -> None:
        """Few peers have looked at a node's SSH port, or enough have."""
        self._note(self.seldom_tried, node, is_in=is_seldom)

    def _note(self, nodes: dict[NodeId, None], node: NodeId, *, is_in: bool) -> None:
        if is_in:
            nodes[node] = None
        else:
            nodes.pop(node, None)

    def of(self, condition: NodeCondition) -> Collection[NodeId]:
        """Return the nodes of one condition, the longest in it first."""
        return self.by_condition[condition].keys()

    def spread(
        self, most: int, is_fit: Callable[[NodeId], bool], first: int = 0
    ) -> tuple[NodeId, ...]:
        """Return some nodes far from each other in the cluster's order: fit ones, ``most`` at most.

        Args:
            most: How many are wanted. Fewer are returned only if fewer are fit.
            is_fit: Whether a node may be among them.
            first: Where in the cluster's order the search begins.
        """
        found: list[NodeId] = []
        for name in self._far_apart(most, first):
            if len(found) == most:
                break
            if is_fit(name):
                found.append(name)
        return tuple(found)

    def _far_apart(self, parts: int, first: int) -> Iterator[NodeId]:
        """Yield all names: the first one of each part of the order, then the second ones."""
        num = len(self.names)
        size = -(-num // max(1, parts))
        for offset in range(size):
            for place in range(offset, num, size):
                yield self.names[(first + place) % num]
