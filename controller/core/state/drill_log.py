"""The core's memory of drills: faults that operators staged on purpose."""

from dataclasses import dataclass, field

from nodeagent.protocol.ids import NodeId, TaskId


@dataclass(slots=True)
class StagedDrill:
    """A drill that was ordered; ``task`` is None for a drill of a whole node.

    Written by ``incidents.naming``.
    """

    at: float
    node: NodeId
    task: TaskId | None
    incident: str = ""
    """The incident that it explains: its fault has been seen, and a later fault is another one."""


@dataclass(slots=True)
class DrillLog:
    """The newest drills, oldest first. Written by ``requests.drill_requests``."""

    staged: list[StagedDrill] = field(default_factory=list)
