"""Nodes that join and leave the cluster.

A node that is to leave gets no more work: a plan moves its tasks away. It has left once no process
of a task, and no measurement, is there.
"""

from controller.core.instructions import ConnectNode, DisconnectNode, Level
from controller.core.membership.task_arrivals import has_nothing_started, place_first
from controller.core.nodes.contact import await_first_contact, begin_anew, end_contact
from controller.core.specs import NodeSpec
from controller.core.state.cluster import ClusterState
from controller.core.state.phases import NodeCondition
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId


def add_node(turn: Turn, spec: NodeSpec) -> None:
    """A node joins, comes back after it was removed, or is reached in another way."""
    node = turn.state.nodes.get(spec.node)
    if node is None:
        node = turn.state.put_node(spec)
        await_first_contact(turn, node)
        text = f"belongs to the cluster from now on, with {spec.num_workers} workers"
    elif node.contact.condition is NodeCondition.REMOVED:
        begin_anew(node)
        await_first_contact(turn, node)
        text = f"belongs to the cluster again, with {spec.num_workers} workers"
    elif node.membership.is_leaving:
        text = "stays in the cluster"
    else:
        text = f"is reached at {spec.address} from now on"
    node.change_spec(spec)
    node.membership.end_leaving()
    level: Level = "trace" if has_nothing_started(turn.state) else "info"
    turn.announce(level, "node_added", spec.node, text, workers=spec.num_workers)
    turn.emit(ConnectNode(turn.cause, spec.node, spec.access))
    if has_nothing_started(turn.state):
        place_first(turn)


def remove_node(turn: Turn, name: NodeId) -> None:
    """A node is to leave. A plan moves the tasks that it has."""
    node = turn.state.nodes.get(name)
    if node is None or node.contact.condition is NodeCondition.REMOVED:
        return
    node.membership.begin_leaving()
    if tasks := tasks_on(turn.state, name):
        text = f"is to leave the cluster once {', '.join(tasks)} is elsewhere"
        turn.announce("info", "node_leaving", name, text)
        turn.want_plan(name, f"{name} is to leave the cluster")
    if has_nothing_started(turn.state):
        place_first(turn)


def let_nodes_leave(turn: Turn) -> None:
    """Let nodes leave on which nothing runs any more, and nothing is to run."""
    for name in list(turn.state.index.leaving):
        node = turn.state.nodes[name]
        if not tasks_on(turn.state, name):
            node.membership.end_leaving()
            end_contact(node, "it was removed from the cluster")
            turn.announce("info", "node_left", node.spec.node, "has left the cluster")
            turn.emit(DisconnectNode(turn.cause, node.spec.node))


def tasks_on(state: ClusterState, name: NodeId) -> list[str]:
    """Return what has a process on a node, or is to have one."""
    found = [
        str(task.spec.task)
        for task in state.tasks.values()
        if any(worker.node == name for worker in task.occupied_workers)
        or any(
            place is not None and place.uses(name)
            for place in (task.assignment.target, task.assignment.interim, task.spares.target)
        )
    ]
    current = state.measurements.current
    if current is not None and current.run is not None and name in current.run.nodes:
        found.append(str(current.run.task))
    return found
