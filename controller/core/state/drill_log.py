"""The core's memory of drills: faults that operators staged on purpose."""

from dataclasses import dataclass, field
from typing import Final

from nodeagent.protocol.ids import NodeId, TaskId

_MAX_DRILLS: Final = 50


@dataclass(slots=True)
class StagedDrill:
    """A drill that was ordered; ``task`` is None for a drill of a whole node."""

    at: float
    node: NodeId
    task: TaskId | None
    incident: str = ""
    """The incident that it explains: its fault has been seen, and a later fault is another one."""

    def explain(self, incident: str) -> None:
        """Keep the first incident that the drill explains."""
        self.incident = self.incident or incident


@dataclass(slots=True)
class DrillLog:
    """The newest drills, oldest first."""

    staged: list[StagedDrill] = field(default_factory=list)

    def note(self, drill: StagedDrill) -> None:
        """A drill was ordered."""
        self.staged = [*self.staged[-_MAX_DRILLS + 1 :], drill]

    def forget(self) -> None:
        """A new controller begins: the outcome of drills is unknown, so they explain no fault."""
        self.staged.clear()
