"""What pictures need of every node, made again only for nodes that have changed.

From one view to the next most nodes stay the same object: the controller sends what has changed.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from controller.api.views import NodeView

ValueT = TypeVar("ValueT")


class KeptByNode(Generic[ValueT]):
    """A function of a node's view, and its results for the nodes that were asked for last.

    Args:
        make: Returns the result for a node. It must depend on the node alone.
    """

    def __init__(self, make: Callable[[NodeView], ValueT]) -> None:
        self._make = make
        self._kept: dict[int, tuple[NodeView, ValueT]] = {}

    def of(self, nodes: Sequence[NodeView]) -> list[ValueT]:
        """Return the results for these nodes, in their order."""
        kept: dict[int, tuple[NodeView, ValueT]] = {}
        for node in nodes:
            known = kept.get(id(node)) or self._kept.get(id(node))
            # The node is kept, so no other object can have its id.
            kept[id(node)] = known if known is not None else (node, self._make(node))
        self._kept = kept
        return [kept[id(node)][1] for node in nodes]
