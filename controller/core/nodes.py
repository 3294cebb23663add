"""Contact with nodes: gained, lost, judged, and given up.

The judgement itself is in ``controller.core.health``; here its evidence is gathered from the
state, and its consequences are drawn: a lost node is isolated, its tasks' survivors are ended, one
SEV1 incident absorbs whatever had been noticed about it, and a plan is proposed.
"""

from controller.core.events import ContactLost, HeartbeatReceived, NodeAttached, PeerProbed
from controller.core.faults import SEV1, Diagnosis, Evidence
from controller.core.health import NodeEvidence, judge
from controller.core.incidents import name_fault, open_incident
from controller.core.instructions import ProbeNode
from controller.core.lifecycle import compare_inventory, lose_rank, stop
from controller.core.phases import IncidentState, NodeCondition, TaskPhase
from controller.core.planning import propose
from controller.core.state import Incident, NodeState, TaskState
from controller.core.timers import JudgeNode
from controller.core.turn import Turn
from nodeagent.protocol.ids import NodeId


def attach_node(turn: Turn, event: NodeAttached) -> None:
    """A session with the node's agent began: adopt what lives there, end what should not."""
    node = turn.state.nodes[event.node]
    before, old_agent = node.condition, node.agent_id
    if before is not NodeCondition.HEALTHY:
        node.become(NodeCondition.HEALTHY)
    node.agent_id, node.agent_pid, node.heard_at = event.agent_id, event.agent_pid, turn.at
    node.answers.clear()
    text = f"agent attached (pid {event.agent_pid})"
    if before is NodeCondition.UNREACHABLE:
        is_new_agent = old_agent != event.agent_id
        text = f"back in contact after {turn.at - node.lost_contact_at:.1f} s"
        text += f"; a new agent (pid {event.agent_pid})" if is_new_agent else "; the same agent"
        text += f" holds {len(event.ranks)} living rank(s)"
    elif before is NodeCondition.LOST:
        text = f"has returned with a new session; {len(event.ranks)} stale rank(s) are ended"
    turn.tell("good", "node_attached", event.node, text, agent_pid=event.agent_pid)
    compare_inventory(turn, event.node, event.ranks, is_attach=True)


def take_heartbeat(turn: Turn, event: HeartbeatReceived) -> None:
    """Take in what lives on a node, and how far it is."""
    node = turn.state.nodes[event.node]
    node.heard_at, node.rss_bytes = turn.at, event.rss_bytes
    compare_inventory(turn, event.node, event.ranks, is_attach=False)


def lose_contact(turn: Turn, event: ContactLost) -> None:
    """Contact ended: the node is unreachable, presumed training, and its peers are asked."""
    node = turn.state.nodes[event.node]
    if node.condition is not NodeCondition.HEALTHY:
        return
    node.become(NodeCondition.UNREACHABLE, f"presumed training: {event.reason}")
    node.lost_contact_at = event.last_heard_at
    node.answers.clear()
    node.iterations_at_loss = {
        task.spec.task: max(task.newest_iteration, task.iteration) for task in _tasks_on(turn, node)
    }
    turn.tell(
        "warning",
        "unreachable",
        event.node,
        f"unreachable, presumed training ({event.reason})",
        last_heard_at=event.last_heard_at,
    )
    judge_node(turn, node)


def take_probe(turn: Turn, event: PeerProbed) -> None:
    """A peer has looked at the node's SSH port."""
    node = turn.state.nodes[event.node]
    if node.condition is not NodeCondition.UNREACHABLE:
        return
    node.open_probes.discard(event.by)
    if event.outcome != "unknown":
        node.answers[event.by] = event.outcome == "answered"
    turn.tell(
        "trace", "probe", event.node, f"SSH port, seen from {event.by}: {event.outcome}",
        by=event.by, outcome=event.outcome,
    )  # fmt: skip
    _conclude(turn, node)


def judge_node(turn: Turn, node: NodeState) -> None:
    """Look at an unreachable node again, and ask its peers again while nothing is certain."""
    if node.condition is not NodeCondition.UNREACHABLE:
        return
    _conclude(turn, node)
    if node.condition is NodeCondition.UNREACHABLE:
        peers = _peers(turn, node)
        if peers:
            node.open_probes = set(peers)
            turn.emit(ProbeNode(turn.cause, node.spec.node, peers))
        turn.set_timer(JudgeNode(node.spec.node), turn.policy.judge_interval_s)


def _peers(turn: Turn, node: NodeState) -> tuple[NodeId, ...]:
    return tuple(
        other.spec.node
        for other in turn.state.nodes.values()
        if other is not node and other.condition is NodeCondition.HEALTHY
    )


def _tasks_on(turn: Turn, node: NodeState) -> list[TaskState]:
    return [task for task in turn.state.tasks.values() if node.spec.node in task.nodes]


def _conclude(turn: Turn, node: NodeState) -> None:
    judgement = judge(_gather(turn, node), turn.policy)
    node.note = judgement.reason
    if judgement.is_lost:
        _declare_lost(turn, node, judgement.reason)


def _gather(turn: Turn, node: NodeState) -> NodeEvidence:
    silent_s = turn.at - node.lost_contact_at
    peers = _peers(turn, node)
    advanced, stalled, has_failed_collective = None, None, False
    for task in _tasks_on(turn, node):
        name = task.spec.task
        newest = max(task.newest_iteration, task.iteration)
        if newest >= node.iterations_at_loss.get(name, newest) + 2:
            advanced = f"{name} has reached iteration {newest} since"
            continue
        patience_s = max(
            turn.policy.stall_floor_s, turn.policy.stall_factor * (task.mean_iteration_s or 0.0)
        )
        if task.phase is TaskPhase.RUNNING and silent_s > patience_s:
            stalled = f"{name} has not advanced for {silent_s:.0f} s"
        has_failed_collective = has_failed_collective or _has_failed_collective(turn, node, task)
    return NodeEvidence(
        silent_s=silent_s,
        answers=node.answers,
        num_peers=len(peers),
        has_open_probes=not node.open_probes.isdisjoint(peers),
        advanced=advanced,
        has_failed_collective=has_failed_collective,
        stalled=stalled,
    )


def _has_failed_collective(turn: Turn, node: NodeState, task: TaskState) -> bool:
    """Whether a rank elsewhere, of this generation, has lost a peer; a cause of its own aside."""
    return any(
        item.kind == "collective" and item.node != node.spec.node and item.task == task.spec.task
        for incident in turn.state.incidents
        if incident.covers.get(task.spec.task) == task.generation
        for item in incident.evidence
    )


def _declare_lost(turn: Turn, node: NodeState, reason: str) -> None:
    node.become(NodeCondition.LOST, reason)
    name = node.spec.node
    victims = [
        task
        for task in turn.state.tasks.values()
        if name in task.nodes
        or (task.target and any(worker.node == name for worker in task.target.placement))
    ]
    victims = [task for task in victims if task.phase is not TaskPhase.FINISHED]
    incident = _incident_of_node(turn, node, victims, reason)
    for task in victims:
        _end_survivors(turn, task, node, incident)
    incident.become(IncidentState.DECIDED)
    propose(
        turn, trigger=incident.name, seen=f"{name} is lost: {reason}", incidents={incident.name}
    )


def _end_survivors(turn: Turn, task: TaskState, node: NodeState, incident: Incident) -> None:
    """A task that lost workers has no target until a plan gives it one."""
    task.target = None
    for number, rank in task.living_ranks.items():
        if rank.worker.node == node.spec.node:
            lose_rank(turn, task, number)
    is_decided = task.phase in {TaskPhase.STOPPING, TaskPhase.HELD}
    stop(
        turn,
        task,
        is_graceful=False,
        intent=task.intent if is_decided else "run",
        note=f"lost workers on {node.spec.node} ({incident.name})",
    )


def _incident_of_node(
    turn: Turn, node: NodeState, victims: list[TaskState], reason: str
) -> Incident:
    """Return the one incident of the lost node; what was undecided about its tasks becomes it."""
    name = node.spec.node
    root = Evidence(
        kind="contact",
        at=turn.at,
        observed_at=node.lost_contact_at,
        node=name,
        task=None,
        global_rank=None,
        summary=f"node {name} was last heard of at {node.lost_contact_at:.1f} s",
    )
    undecided = [
        incident
        for incident in turn.state.incidents
        if incident.state is IncidentState.DETECTED
        and any(task.spec.task in incident.covers for task in victims)
    ]
    first = victims[0] if victims else None
    incident = undecided[0] if undecided else open_incident(turn, first, root)
    for other in undecided[1:]:
        incident.evidence += other.evidence
        turn.state.incidents.remove(other)
    incident.task = first.spec.task if first else None
    incident.covers = {task.spec.task: task.generation for task in victims}
    if undecided:
        incident.evidence.append(root)
    diagnosis = Diagnosis(
        status="lost_connection",
        severity=SEV1,
        method="node health monitoring",
        root=root,
        reason=f"{name}: {reason}",
    )
    name_fault(turn, incident, diagnosis, "reconfigure")
    return incident
