"""Everything the core remembers: nodes, tasks, incidents, plans, drills and measurements.

Every record has one writing module in the core, which changes it one event at a time; everybody may
read it. Derived facts are properties, so that nothing has to be kept in step.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.core.rules.placement import Worker
from controller.core.state.drill_log import DrillLog
from controller.core.state.incident import IncidentLog
from controller.core.state.measurement import MeasurementLog
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition
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
class WantedPlans:
    """Changes of nodes and tasks that have no plan yet. Written by ``membership.wanted_plans``."""

    seen: dict[str, str] = field(default_factory=dict)
    """What has changed, a sentence by node, task or ``policy``."""
    since: float = 0.0
    """When the newest of them was noted."""


@dataclass(slots=True)
class ClusterState:
    """The whole.

    Its own fields are written by ``lifecycle.cluster_members``.
    """

    nodes: dict[NodeId, NodeState]
    tasks: dict[TaskId, TaskState]
    incidents: IncidentLog = field(default_factory=IncidentLog)
    plans: PlanLog = field(default_factory=PlanLog)
    drills: DrillLog = field(default_factory=DrillLog)
    measurements: MeasurementLog = field(default_factory=MeasurementLog)
    bursts: BurstLog = field(default_factory=BurstLog)
    wanted_plans: WantedPlans = field(default_factory=WantedPlans)

    def can_use(self, worker: Worker) -> bool:
        """Whether a rank may run on ``worker``."""
        node = self.nodes[worker.node]
        is_in_service = node.contact.condition is NodeCondition.HEALTHY
        service = node.service
        return is_in_service and not service.isolated and worker.slot not in service.isolated_gpus

    def num_usable(self, workers: Iterable[Worker]) -> int:
        """Return on how many of the workers a rank may run."""
        # Written out, since it is asked of all workers of a task.
        nodes, healthy, num = self.nodes, NodeCondition.HEALTHY, 0
        for name, slot in workers:
            node = nodes[name]
            service = node.service
            if node.contact.condition is healthy and not service.isolated:
                num += slot not in service.isolated_gpus
        return num

    def is_fit(self, rank: RankState) -> bool:
        """Whether a parked process can be a rank of another generation, where it is."""
        return rank.can_go_on and self.can_use(rank.worker)
