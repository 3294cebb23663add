"""What a machine is made of: nodes, tasks and policy, without anything that has happened to them.

With the journal it is all that a saved run consists of. ``present_spec`` is the same of a cluster
as it is now, from which a rehearsal can begin.
"""

from dataclasses import dataclass, replace
from typing import Final

from controller.core.machine import Machine
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState

_PRESENT: Final = {NodeCondition.HEALTHY, NodeCondition.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a machine is made of; equal ones make machines that behave alike.

    Attributes:
        nodes: The nodes.
        tasks: The tasks, each with its size at the start.
        policy: What operators decided in advance.
    """

    nodes: tuple[NodeSpec, ...]
    tasks: tuple[TaskSpec, ...]
    policy: Policy

    def machine(self) -> Machine:
        """Return a new machine.

        Raises:
            ValueError: The tasks do not fit the nodes.
        """
        return Machine(self.nodes, self.tasks, self.policy)


def present_spec(state: ClusterState, policy: Policy) -> ClusterSpec:
    """Return the usable nodes, and the tasks that have workers, each at its present size.

    A node out of contact is presumed to train. GPUs that are isolated alone are not counted, and
    tasks that are finished, held or stopped are left out.
    """
    sized = [(task, _present_size(task)) for task in state.tasks.values()]
    return ClusterSpec(
        nodes=tuple(
            replace(node.spec, num_workers=node.spec.num_workers - len(node.service.isolated_gpus))
            for node in state.nodes.values()
            if node.contact.condition in _PRESENT and not node.service.isolated
        ),
        tasks=tuple(replace(task.spec, workers=size) for task, size in sized if size),
        policy=policy,
    )


def _present_size(task: TaskState) -> int:
    """Return the workers that the task is to have now, or else those that it continues with."""
    if task.lifecycle.phase in {TaskPhase.FINISHED, TaskPhase.HELD, TaskPhase.STOPPED}:
        return 0
    place = task.assignment.target or task.assignment.interim or task.place
    return place.layout.num_workers if place else 0
