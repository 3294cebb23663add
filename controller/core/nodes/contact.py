"""Contact with nodes: gained, lost, judged, and given up.

The judgement itself is in ``controller.core.rules.node_loss``, its evidence comes from
``controller.core.nodes.node_evidence``; here the consequences are drawn: a lost node is isolated,
its tasks' survivors are parked, one SEV1 incident absorbs whatever had been noticed about it, and a
plan is proposed. If the evidence does not suffice, the operator is asked, until an answer comes or
the evidence changes.
"""

from typing import Final

from controller.core.events import (
    ContactLost,
    NodeAnswered,
    NodeAttached,
    NodeFellSilent,
    PeerProbed,
    RanksListed,
    RankVanished,
)
from controller.core.incidents.evidence_intake import take_evidence
from controller.core.incidents.isolation import (
    Outage,
    strand,
    withdraw,
)
from controller.core.instructions import ProbeNode
from controller.core.lifecycle.spares import lose_spare
from controller.core.lifecycle.start_stop import lose_rank
from controller.core.measuring.measured_ranks import compare_run
from controller.core.monitoring.stalls import note_contact
from controller.core.nodes.bursts import incident_of_loss, note_loss, note_return
from controller.core.nodes.inventory import compare_inventory
from controller.core.nodes.node_evidence import (
    chosen_of,
    gather,
    is_peer,
    keep_progress,
)
from controller.core.nodes.peer_reach import try_peers
from controller.core.rules.evidence import Evidence
from controller.core.rules.node_loss import judge
from controller.core.state.node import NodeState
from controller.core.state.phases import (
    NodeCondition,
    TaskPhase,
)
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from controller.core.state.upkeep import UpkeepState
from controller.core.timers import JoinOverdue, JudgeNode
from nodeagent.protocol.ids import NodeId

_SOON_S: Final = 0.1
"""A timer may fire so much early."""


def attach_node(turn: Turn, event: NodeAttached) -> None:
    """A session with the node's agent began: adopt expected ranks, end all others."""
    node = turn.state.nodes[event.node]
    if node.contact.condition is NodeCondition.REMOVED:
        return  # the session began before the link was ended
    before, old_agent = node.contact.condition, node.contact.agent_id
    if before is not NodeCondition.HEALTHY:
        node.contact.gain(turn.at)
    if old_agent != event.agent_id:
        node.findings.forget_those_of_agent()
    node.contact.attach(event.agent_id, event.agent_pid)
    node.inquiry.end()
    if before in {NodeCondition.EXPECTED, NodeCondition.LOST}:
        try_peers(turn, node)
    text = f"agent attached (pid {event.agent_pid})"
    if before is NodeCondition.UNREACHABLE:
        is_new_agent = old_agent != event.agent_id
        text = f"back in contact after {turn.at - node.contact.lost_contact_at:.1f} s"
        text += f"; a new agent (pid {event.agent_pid})" if is_new_agent else "; the same agent"
        text += f" holds {len(event.ranks)} living rank(s)"
    elif before is NodeCondition.LOST and old_agent is None:
        text = f"has come (agent pid {event.agent_pid})"
    elif before is NodeCondition.LOST:
        text = f"has returned with a new session; {len(event.ranks)} stale rank(s) are ended"
    turn.announce("good", "node_attached", event.node, text, agent_pid=event.agent_pid)
    compare_inventory(turn, event.node, event.ranks, is_attach=True)
    compare_run(turn, event.node, event.ranks, is_attach=True)
    note_contact(turn, event.node)
    if before is NodeCondition.LOST:
        note_return(turn, node, "has joined" if old_agent is None else "has returned")
    elif before is NodeCondition.EXPECTED and _is_spare(turn, event.node):
        note_return(turn, node, "has joined")


def _is_spare(turn: Turn, name: NodeId) -> bool:
    """Whether a node that has come for the first time brings what no task has counted on.

    While nodes are still awaited nothing is divided anew: it would have to be undone at once.
    """
    if not any(task.lifecycle.phase is TaskPhase.RUNNING for task in turn.state.tasks.values()):
        return False
    awaited = turn.state.index.of(NodeCondition.EXPECTED)
    targets = [
        task.assignment.target for task in turn.state.tasks.values() if task.assignment.target
    ]
    return not any(each.uses(name) or each.uses_any(awaited) for each in targets)


def take_listing(turn: Turn, event: RanksListed) -> None:
    """Take in what lives on a node in contact."""
    if turn.state.nodes[event.node].contact.condition is NodeCondition.REMOVED:
        return
    compare_inventory(turn, event.node, event.ranks, is_attach=False)
    compare_run(turn, event.node, event.ranks, is_attach=False)


def fall_silent(turn: Turn, event: NodeFellSilent) -> None:
    """A node in contact says nothing: it may be lost, like others at the same time."""
    contact = turn.state.nodes[event.node].contact
    if contact.condition is NodeCondition.HEALTHY:
        contact.fall_silent(event.last_message_at)


def hear(turn: Turn, event: NodeAnswered) -> None:
    """A node has given a sign of life."""
    turn.state.nodes[event.node].contact.hear()
    for task in turn.state.tasks.values():
        task.lifecycle.note_answer(event.node)


def take_vanished(turn: Turn, event: RankVanished) -> None:
    """A process that its node has not listed for a while is gone, though no exit was reported.

    Agents report exits; this is for what they can't, for instance a machine that restarted.
    """
    task, number, node = turn.state.tasks.get(event.task), event.global_rank, event.node
    if task is None or task.generation != event.generation or not task.can_regroup:
        return
    rank = task.ranks.get(number) or task.spares.ranks.get(number)
    if rank is None or not rank.is_alive or rank.worker.node != node:
        return
    if number in task.spares.ranks:
        lose_spare(turn, task, number, f"{node} no longer lists it")
        return
    summary = f"rank {number} has vanished: {node} no longer lists it"
    evidence = Evidence("exit", turn.at, event.missing_since, node, event.task, number, summary)
    rank.note_broken()
    take_evidence(turn, task, evidence)
    lose_rank(turn, task, number)


def lose_contact(turn: Turn, event: ContactLost) -> None:
    """Contact ended: the node is unreachable, presumed training, and its peers are asked."""
    node = turn.state.nodes[event.node]
    if node.contact.condition is not NodeCondition.HEALTHY:
        return
    _lose_sight(turn, node, event.last_message_at, f"presumed training: {event.reason}")
    turn.announce(
        "warning",
        "unreachable",
        event.node,
        f"unreachable, presumed training ({event.reason})",
        last_message_at=event.last_message_at,
    )
    _ask_peers(turn, node)


def _lose_sight(turn: Turn, node: NodeState, since: float, note: str) -> None:
    keep_progress(turn, node, since)
    node.contact.lose(since, note)
    node.inquiry.forget_answers()


def await_first_contact(turn: Turn, node: NodeState) -> None:
    """The node was added: its time to come begins."""
    node.contact.await_first(turn.at)
    turn.set_timer(JoinOverdue(node.spec.node), turn.policy.join_limit_s)


def take_late_node(turn: Turn, node: NodeState) -> None:
    """The time of a node to come is over, unless policy has changed meanwhile."""
    if node.contact.condition is NodeCondition.EXPECTED:
        left_s = node.contact.awaited_since + turn.policy.join_limit_s - turn.at
        if left_s > _SOON_S:
            turn.set_timer(JoinOverdue(node.spec.node), left_s)
        else:
            _give_up(turn, node)


def lose_absent_nodes(turn: Turn) -> None:
    """Give up nodes that have never been in contact and had enough time to come."""
    # The first of them has been awaited for the longest time.
    while expected := turn.state.index.of(NodeCondition.EXPECTED):
        node = turn.state.nodes[next(iter(expected))]
        if turn.at - node.contact.awaited_since < turn.policy.join_limit_s:
            return
        _give_up(turn, node)


def _give_up(turn: Turn, node: NodeState) -> None:
    awaited_s = turn.at - node.contact.awaited_since
    node.contact.give_up_first()
    declare_lost(turn, node, f"it has not come within {awaited_s:.0f} s")


def end_contact(node: NodeState, note: str) -> None:
    """The node does not belong to the cluster any more."""
    node.contact.end(note)
    node.inquiry.end_question()


def begin_anew(node: NodeState) -> None:
    """A removed node belongs to the cluster again: nothing of before counts."""
    node.contact.begin_anew()
    node.findings.forget_those_of_agent()
    node.reach.forget()
    node.service.release_all()
    node.upkeep.end()


def await_node(turn: Turn, node: NodeState) -> None:
    """A new controller begins: give a node time to be reached before it is judged."""
    node.inquiry.forget_probes()
    if node.contact.condition is NodeCondition.HEALTHY:
        _lose_sight(turn, node, turn.at, "presumed training: no controller was running")
    if node.contact.condition is NodeCondition.UNREACHABLE:
        node.contact.restart_clock(turn.at)
        node.inquiry.begin_anew(turn.at + turn.policy.takeover_grace_s)
        turn.set_timer(JudgeNode(node.spec.node), turn.policy.judge_interval_s)


def take_probe(turn: Turn, event: PeerProbed) -> None:
    """A peer has looked at the node's SSH port."""
    node = turn.state.nodes[event.node]
    node.reach.note_answer(event.by, event.outcome)
    if node.contact.condition is not NodeCondition.UNREACHABLE:
        return
    node.inquiry.take(event.by, event.outcome)
    turn.announce(
        "trace", "probe", event.node, f"SSH port, seen from {event.by}: {event.outcome}",
        by=event.by, outcome=event.outcome,
    )  # fmt: skip
    _conclude(turn, node)


def judge_node(turn: Turn, node: NodeState) -> None:
    """Judge an unreachable node by what its peers have found, and ask them again."""
    if node.contact.condition is NodeCondition.UNREACHABLE:
        _conclude(turn, node)
    if node.contact.condition is NodeCondition.UNREACHABLE:
        _ask_peers(turn, node)


def judge_nodes_of(turn: Turn, task: TaskState) -> None:
    """The task has reported something: it may decide about a node that is out of contact."""
    for name in task.nodes:
        node = turn.state.nodes[name]
        if node.contact.condition is NodeCondition.UNREACHABLE:
            _conclude(turn, node)


def _ask_peers(turn: Turn, node: NodeState) -> None:
    _ask(turn, node)
    turn.set_timer(JudgeNode(node.spec.node), turn.policy.judge_interval_s)


def _ask_others(turn: Turn, node: NodeState) -> None:
    """Ask further peers, since no peer that was asked could probe and is still in contact."""
    inquiry = node.inquiry
    if not any(is_peer(turn, node, name) for name in (*inquiry.answers, *inquiry.open_probes)):
        _ask(turn, node)


def _ask(turn: Turn, node: NodeState) -> None:
    """Have some peers look at the node's SSH port: those that were not asked lately."""
    chosen = chosen_of(turn, node, turn.at - turn.policy.probe_interval_s)
    if chosen:
        node.inquiry.ask(chosen, turn.at)
        turn.emit(ProbeNode(turn.cause, node.spec.node, chosen))


def _conclude(turn: Turn, node: NodeState) -> None:
    if turn.at < node.inquiry.judged_from:
        return
    _ask_others(turn, node)
    evidence = gather(turn, node)
    judgement = judge(evidence, turn.policy)
    if judgement.is_lost:
        declare_lost(turn, node, judgement.reason)
    elif judgement.asks:
        node.contact.explain(judgement.reason)
        _ask_operator(turn, node)
    elif node.inquiry.asked_at is None or not (evidence.unseen or evidence.suffering):
        node.contact.explain(judgement.reason)
        if node.inquiry.asked_at is not None:
            node.inquiry.end_question()
            text = f"no decision needed any more: {judgement.reason}"
            turn.announce("info", "question_over", node.spec.node, text)


def _ask_operator(turn: Turn, node: NodeState) -> None:
    """Ask, once, whether the node is lost; what nobody answers stays as it is."""
    if node.inquiry.asked_at is not None:
        return
    node.inquiry.ask_operator(turn.at)
    name = node.spec.node
    turn.announce(
        "warning", "question", name,
        f"{node.contact.note}: decide by `unicron unreachable {name} --lost`, or `--wait`",
        silent_s=turn.at - node.contact.lost_contact_at,
    )  # fmt: skip


def wait_for(turn: Turn, node: NodeState, actor: str) -> None:
    """An operator says that the node is not lost, or not yet: ask again after the same time."""
    node.inquiry.wait(turn.at)
    node.contact.explain(f"presumed training: {actor} waits for it")
    turn.announce("info", "question_over", node.spec.node, f"{actor} waits for it")


def declare_lost(turn: Turn, node: NodeState, reason: str) -> None:
    """Draw the consequences of the loss of a node that is out of contact.

    Args:
        turn: The event.
        node: Unreachable until now.
        reason: How that is known, in words for operators.
    """
    node.contact.declare_lost(reason)
    node.inquiry.end_question()
    name = node.spec.node
    outage = Outage(node)
    victims = withdraw(turn, outage)
    if node.upkeep.state is UpkeepState.REPAIR and not victims:
        turn.announce("info", "away", name, f"is away for its repair: {reason}")
        return
    incident = incident_of_loss(turn, node, victims, reason)
    for task in victims:
        strand(turn, task, outage, incident.name)
    incident.decide_again()
    note_loss(turn, node, incident, f"{name} is lost: {reason}")
