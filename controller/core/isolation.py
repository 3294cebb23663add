"""A node that takes no more part: what is taken from its tasks when it is lost, or isolated.

Lost and isolated nodes differ in one thing: on a lost node the ranks are gone, on an isolated one
they live and are ended. Either way the tasks that had a part there have no target until a plan gives
them one, and go on meanwhile with the whole replicas that they have elsewhere.
"""

from controller.core.lifecycle import lose_rank, stop
from controller.core.parking import halt
from controller.core.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.state import Incident, NodeState
from controller.core.tasks import TaskState
from controller.core.turn import PlanRequest, Turn
from nodeagent.protocol.ids import NodeId


def withdraw(turn: Turn, node: NodeState) -> list[TaskState]:
    """Take the node from every target; return the tasks that had a part there."""
    name = node.spec.node
    is_lost = node.condition is NodeCondition.LOST
    for task in turn.state.tasks.values():
        if is_lost:
            task.leaving = {
                key: worker for key, worker in task.leaving.items() if worker.node != name
            }
        if task.interim and task.interim.uses(name):
            task.interim = None
        for spare in task.preparation.ranks.values() if task.preparation else ():
            if spare.worker.node == name:
                spare.is_alive &= not is_lost
                spare.is_broken = True
        is_elsewhere = task.can_regroup and task.place and not task.place.uses(name)
        if is_elsewhere and task.target and task.target.uses(name):
            task.target = task.place
    return [task for task in turn.state.tasks.values() if _has_a_part_in(task, name)]


def _has_a_part_in(task: TaskState, name: NodeId) -> bool:
    if task.phase is TaskPhase.FINISHED:
        return False
    is_there = name in task.nodes or (task.can_regroup and task.place and task.place.uses(name))
    return bool(is_there or (task.target and task.target.uses(name)))


def strand(turn: Turn, task: TaskState, node: NodeState, incident: Incident) -> None:
    """A task that lost workers has no target until a plan gives it one; its survivors park."""
    task.target = None
    is_lost = node.condition is NodeCondition.LOST
    for number, rank in task.living_ranks.items():
        if rank.worker.node == node.spec.node:
            rank.is_broken = True
            if is_lost:
                lose_rank(turn, task, number)
    note = f"lost workers on {node.spec.node} ({incident.name})"
    if task.can_regroup:
        halt(turn, task, note=note)
        return
    is_decided = task.phase in {TaskPhase.STOPPING, TaskPhase.HELD}
    stop(turn, task, is_graceful=False, intent=task.intent if is_decided else "run", note=note)


def _absorb(turn: Turn, incident: Incident, victims: list[TaskState]) -> None:
    """What was noticed about the tasks of the node, and not named yet, is a part of its incident."""
    for other in list(turn.state.incidents):
        is_undecided = other.state is IncidentState.DETECTED and other is not incident
        if is_undecided and any(task.spec.task in other.covers for task in victims):
            incident.evidence += other.evidence
            incident.task = incident.task or other.task
            turn.state.incidents.remove(other)


def isolate(turn: Turn, node: NodeState, incident: Incident, reason: str) -> None:
    """Take a node that is in contact out of service, and ask for a plan.

    Args:
        turn: The event.
        node: The node.
        incident: Of SEV1; it covers all tasks of the node from now on.
        reason: Why, in words for operators.
    """
    node.isolated = f"isolated by {incident.name}: {reason}"
    turn.tell(
        "error", "isolated", node.spec.node, f"isolated: {reason}; unicron uncordon brings it back",
        incident=incident.name,
    )  # fmt: skip
    victims = withdraw(turn, node)
    _absorb(turn, incident, victims)
    incident.covers |= {task.spec.task: task.generation for task in victims}
    for task in victims:
        strand(turn, task, node, incident)
    turn.plan_requests.append(
        PlanRequest(
            trigger=incident.name,
            seen=f"{node.spec.node} is isolated: {reason}",
            incidents=frozenset({incident.name}),
        )
    )
