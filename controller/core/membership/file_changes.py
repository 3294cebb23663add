"""What differs between a state and what operators want, as the events that make them equal."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controller.core.events import (
    MembershipChange,
    NodeAdded,
    NodeRemoved,
    PolicyChanged,
    TaskAdded,
    TaskChanged,
    TaskRemoved,
)
from controller.core.rules.policy import Policy
from controller.core.specs import NodeSpec, TaskSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.node import NodeState
from controller.core.state.phases import NodeCondition
from nodeagent.protocol.ids import NodeId, TaskId


class ImpossibleChangeError(Exception):
    """Operators want a change that can't be made of a running cluster. The text is one line."""


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """What operators want.

    Attributes:
        nodes: The nodes, by name.
        tasks: The tasks, by name.
        policy: The policy.
    """

    nodes: Mapping[NodeId, NodeSpec]
    tasks: Mapping[TaskId, TaskSpec]
    policy: Policy


def changes(
    wanted: WantedCluster, state: ClusterState, policy: Policy
) -> Iterator[MembershipChange]:
    """Yield the events after which ``state`` and ``policy`` are as ``wanted``.

    Capacity comes before tasks that need it, and goes after tasks that leave it.

    Raises:
        ImpossibleChangeError: A node has fewer workers than before.
    """
    if wanted.policy != policy:
        yield PolicyChanged(wanted.policy)
    for node in wanted.nodes.values():
        if _differs(state.nodes.get(node.node), node):
            yield NodeAdded(node)
    present = {name: task for name, task in state.tasks.items() if not task.membership.is_removed}
    specs = {name: task.of_file() for name, task in present.items()}
    # A command and a loop have nothing in common but the name.
    others = {
        name
        for name, spec in specs.items()
        if name in wanted.tasks and wanted.tasks[name].is_command != spec.is_command
    }
    for name in specs:
        is_submitted = present[name].orders.submitted is not None
        if name in others or (name not in wanted.tasks and not is_submitted):
            yield TaskRemoved(name)
    for name, task in wanted.tasks.items():
        is_submitted = name in specs and present[name].orders.submitted is not None
        if name in specs and name not in others and (is_submitted or task != specs[name]):
            yield TaskChanged(task)
    for node_name, known in state.nodes.items():
        is_there = known.contact.condition is not NodeCondition.REMOVED
        if node_name not in wanted.nodes and is_there and not known.membership.is_leaving:
            yield NodeRemoved(node_name)
    for name, task in wanted.tasks.items():
        if name not in specs or name in others:
            yield TaskAdded(task)


def _differs(known: NodeState | None, wanted: NodeSpec) -> bool:
    if known is None or known.contact.condition is NodeCondition.REMOVED:
        return True
    if wanted.num_workers < known.spec.num_workers:
        raise ImpossibleChangeError(
            f"{wanted.node} has {known.spec.num_workers} workers and can't have {wanted.num_workers} while"
            " it is in the cluster: remove it from the file, run the controller, then add it again"
        )
    return known.membership.is_leaving or known.spec != wanted
