"""What operators do with a node: whether it gets work, is being emptied, or is under repair."""

from dataclasses import dataclass, field
from enum import StrEnum

from controller.core.state.node_index import NodeIndex
from nodeagent.protocol.ids import NodeId


class UpkeepState(StrEnum):
    """What operators have ordered for a node."""

    NONE = ""
    CORDONED = "cordoned"
    """Nothing new is placed there; what is there stays."""
    DRAINING = "draining"
    """Its tasks are to be elsewhere."""
    DRAINED = "drained"
    """Nothing is there any more, and nothing comes."""
    REPAIR = "repair"
    """Somebody works on it: it may come and go."""
    RETURNING = "returning"
    """The repair is over: it goes into service once it is in contact and its checks pass."""


_UNNAMED = NodeId("")
"""Of a snapshot that knew no such orders, until the node joins its index."""
_OUT = frozenset(
    {UpkeepState.DRAINING, UpkeepState.DRAINED, UpkeepState.REPAIR, UpkeepState.RETURNING}
)
_WAITING = frozenset({UpkeepState.DRAINING, UpkeepState.RETURNING})


@dataclass(slots=True)
class NodeUpkeep:
    """The newest order of an operator for one node."""

    node: NodeId = _UNNAMED
    index: NodeIndex = field(default_factory=NodeIndex, repr=False)
    """The cluster's."""
    state: UpkeepState = UpkeepState.NONE
    actor: str = ""
    """Who has ordered it."""
    reason: str = ""
    since: float = 0.0
    """When, in seconds since the start of the run."""

    @property
    def is_out(self) -> bool:
        """Whether no task may have workers there."""
        return self.state in _OUT

    @property
    def takes_new(self) -> bool:
        """Whether something new may be placed there."""
        return self.state is UpkeepState.NONE

    def join(self, node: NodeId, index: NodeIndex) -> None:
        """The node of this name was read from a file: this index has what it is."""
        self.node, self.index = node, index

    def order(self, state: UpkeepState, actor: str, reason: str, at: float) -> None:
        """An operator orders this."""
        self.state, self.actor, self.reason, self.since = state, actor, reason, at
        self.index.note_upkeep(self.node, is_waiting=state in _WAITING)

    def note_drained(self) -> None:
        """Nothing is there any more."""
        self.state = UpkeepState.DRAINED
        self.index.note_upkeep(self.node, is_waiting=False)

    def end(self) -> None:
        """The node does its work again."""
        self.order(UpkeepState.NONE, "", "", 0.0)
