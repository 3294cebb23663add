"""The evidence for and against a node that is out of contact, gathered from the whole state.

Its tasks may have advanced since, as their ranks elsewhere show, or they suffer: collectives fail,
or iterations stop. Peers in contact have looked at its SSH port, or are still to answer. What
follows from all this is decided in ``controller.core.rules.node_loss``.
"""

import math
from typing import Final

from controller.core.rules.node_loss import NodeEvidence
from controller.core.state.node import NodeState, SeenProgress
from controller.core.state.phases import NodeCondition, TaskPhase
from controller.core.state.task import TaskState
from controller.core.state.turn import Turn
from nodeagent.protocol.ids import NodeId

_NUM_ASKED: Final = 8
"""Enough to distinguish a lost node from one that some nodes can't reach.

More is only more to wait for.
"""


def gather(turn: Turn, node: NodeState) -> NodeEvidence:
    """Return what is known about a node that is out of contact."""
    in_contact = turn.state.index.of(NodeCondition.HEALTHY)
    advanced: list[str] = []
    suffering: list[str] = []
    unseen: list[str] = []
    for task in tasks_on(turn, node):
        if failure := _failed_collective(node, task, turn):
            suffering.append(failure)
        elif progress := _progress(turn, node, task):
            advanced.append(progress)
        elif stall := _stall(turn, node, task):
            suffering.append(stall)
        elif not _is_seen(turn, task):
            unseen.append(task.spec.task)
    found = {
        peer: outcome for peer, outcome in node.inquiry.answers.items() if is_peer(turn, node, peer)
    }
    counts = {
        peer: outcome
        for peer, outcome in found.items()
        if outcome == "answered" or peer in node.reach.reached_by
    }
    return NodeEvidence(
        silent_s=turn.at - node.contact.lost_contact_at,
        num_peers=len(in_contact) - (node.spec.node in in_contact),
        answers=counts,
        never_reached=tuple(sorted(found.keys() - counts.keys())),
        has_open_probes=any(is_peer(turn, node, peer) for peer in node.inquiry.open_probes),
        advanced=", ".join(advanced) or None,
        suffering=", ".join(suffering) or None,
        unseen=", ".join(unseen) or None,
        waited_s=turn.at - _waits_since(turn, node),
    )


def _waits_since(turn: Turn, node: NodeState) -> float:
    """Since when the node's silence says something: not while the controller sees nobody."""
    # The first peer has been in contact for the longest time.
    in_contact = (turn.state.nodes[name] for name in turn.state.index.of(NodeCondition.HEALTHY))
    first = next((peer for peer in in_contact if peer is not node), None)
    sees_since = first.contact.in_contact_since if first is not None else 0.0
    return max(node.contact.lost_contact_at, node.inquiry.waits_since, sees_since)


def is_peer(turn: Turn, node: NodeState, name: NodeId) -> bool:
    """Return whether another node is in contact, and so can look at this one."""
    other = turn.state.nodes[name]
    return other is not node and other.contact.condition is NodeCondition.HEALTHY


def chosen_of(turn: Turn, node: NodeState, asked_by: float) -> tuple[NodeId, ...]:
    """Return the peers that are asked: first those that have reached the node before.

    None that was asked after ``asked_by`` is among them.
    """
    last_asked, reached_by = node.inquiry.last_asked, node.reach.reached_by

    def may_be_asked(name: NodeId) -> bool:
        return is_peer(turn, node, name) and last_asked.get(name, -math.inf) <= asked_by

    known = [peer for peer in sorted(reached_by) if may_be_asked(peer)]
    step = max(1.0, len(known) / _NUM_ASKED)
    chosen = tuple(known[int(number * step)] for number in range(min(len(known), _NUM_ASKED)))
    others = turn.state.index.spread(
        _NUM_ASKED - len(chosen), lambda name: name not in reached_by and may_be_asked(name)
    )
    return chosen + others


def tasks_on(turn: Turn, node: NodeState) -> list[TaskState]:
    """Return the tasks with living ranks on the node, or that wait to start there."""
    return [
        task
        for task in turn.state.tasks.values()
        if task.runs_on(node.spec.node)
        or (
            task.lifecycle.phase is TaskPhase.WAITING
            and task.assignment.target
            and task.assignment.target.uses(node.spec.node)
        )
    ]


def _patience_s(turn: Turn, task: TaskState) -> float:
    """How long a task may go without a sign of progress."""
    mean_s = task.progress.mean_iteration_s or 0.0
    return max(turn.policy.stall_floor_s, turn.policy.stall_factor * mean_s)


def _progress(turn: Turn, node: NodeState, task: TaskState) -> str | None:
    """Whether the task has advanced by two iterations since contact was lost, and lately."""
    newest, name = task.newest_iteration, task.spec.task
    first = SeenProgress(newest, node.contact.lost_contact_at)
    last = node.sightings.by_task.get(name, first)
    if newest >= last.iteration + 2:
        last = SeenProgress(newest, task.progress.advanced_at)
    node.sightings.note(name, last)
    is_recent = turn.at - last.seen_at <= _patience_s(turn, task)
    if last.seen_at > node.contact.lost_contact_at and is_recent:
        return f"{name} has reached iteration {last.iteration} since"
    return None


def keep_progress(turn: Turn, node: NodeState, since: float) -> None:
    """The node is lost from sight since then: keep how far its tasks are."""
    node.sightings.keep(
        {
            task.spec.task: SeenProgress(task.newest_iteration, since)
            for task in tasks_on(turn, node)
        }
    )


def _stall(turn: Turn, node: NodeState, task: TaskState) -> str | None:
    """Return whether a rank in contact shows that the task makes no progress."""
    name, last = task.spec.task, node.sightings.by_task.get(task.spec.task)
    since = max(node.contact.lost_contact_at, last.seen_at if last else 0.0)
    if turn.at - since <= _patience_s(turn, task):
        return None
    if task.lifecycle.phase in {TaskPhase.WAITING, TaskPhase.PARKING}:
        return f"{name} waits for it"
    if task.lifecycle.phase is TaskPhase.RUNNING and _is_seen(turn, task):
        return f"{name} has not advanced for {turn.at - since:.0f} s"
    return None


def _is_seen(turn: Turn, task: TaskState) -> bool:
    """Whether a rank in contact shows if the task progresses.

    Of a command, one rank prints iterations, or none does: silence of the other ranks says nothing.
    """
    return any(
        turn.state.nodes[rank.worker.node].contact.condition is NodeCondition.HEALTHY
        and (rank.iteration or not task.spec.is_command)
        for rank in task.living_ranks.values()
    )


def _failed_collective(node: NodeState, task: TaskState, turn: Turn) -> str | None:
    """Whether a rank elsewhere, of this generation, has lost a peer since the last progress."""
    last = node.sightings.by_task.get(task.spec.task)
    # An incident of the present generation is open: it is cured by a newer one.
    for incident in turn.state.incidents.open():
        if incident.covers.get(task.spec.task) != task.generation:
            continue
        for item in incident.evidence:
            is_of_a_peer = item.task == task.spec.task and item.node != node.spec.node
            is_newer = last is None or item.at >= last.seen_at
            if item.kind == "collective" and is_of_a_peer and is_newer:
                return f"the collectives of {task.spec.task} failed"
    return None
