"""Everything the core remembers: nodes, tasks, incidents, plans, drills and measurements.

Every record has one writing module in the core, which changes it one event at a time; everybody may
read it. Derived facts are properties, so that nothing has to be kept in step.
"""

from dataclasses import dataclass, field

from controller.core.rules.placement import Worker
from controller.core.state.drill_log import DrillLog
from controller.core.state.incident import IncidentLog
from controller.core.state.measurement import MeasurementLog
from controller.core.state.node import NodeState
from controller.core.state.plan import PlanLog
from controller.core.state.rank import RankState
from controller.core.state.task import TaskState
from nodeagent.protocol.ids import NodeId, TaskId


@dataclass(slots=True)
class BurstLog:
    """The newest losses and returns of nodes that wait for a plan. Written by ``nodes.bursts``."""

    incident: str | None = None
    lost_contact_at: float = 0.0
    """When contact with its first node was lost."""
    seen: list[str] = field(default_factory=list)
    """What was observed, a sentence per node."""
    gathers_until: float | None = None
    """Until when the plan waits for further losses at most; None while no plan waits."""
    returned: list[NodeId] = field(default_factory=list)
    """Nodes that have come, or come back, and are in no plan yet."""
    awaits_returns_until: float | None = None
    """The same for nodes that return."""
    changes_at: tuple[float, ...] = ()
    """When nodes were lost or returned lately, oldest first; a burst is one change."""
    newest_change_at: float | None = None
    """The same of a change that has no plan yet."""


@dataclass(slots=True)
class ClusterState:
    """The whole.

    Its own fields are written by ``rehearsal`` only, which adds nodes to a copy.
    """

    nodes: dict[NodeId, NodeState]
    tasks: dict[TaskId, TaskState]
    incidents: IncidentLog = field(default_factory=IncidentLog)
    plans: PlanLog = field(default_factory=PlanLog)
    drills: DrillLog = field(default_factory=DrillLog)
    measurements: MeasurementLog = field(default_factory=MeasurementLog)
    bursts: BurstLog = field(default_factory=BurstLog)

    def can_use(self, worker: Worker) -> bool:
        """Whether a rank may run on ``worker``."""
        node = self.nodes[worker.node]
        return node.is_in_service and worker.slot not in node.service.isolated_gpus

    def is_fit(self, rank: RankState) -> bool:
        """Whether a parked process can be a rank of another generation, where it is."""
        return rank.can_go_on and self.can_use(rank.worker)
