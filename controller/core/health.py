"""Is a node that can't be reached lost, or only out of sight? A pure judgement over evidence.

Losing the connection says nothing about the training: the network between controller and node may
be broken, the SSH server or the agent may have died, while the ranks go on. So a node out of
contact is *unreachable, presumed training*, and becomes *lost* only when something that depends on
the node itself says so. In order of weight:

1. *Its tasks advance.* An iteration that began after contact was lost needs every rank, so the
   node is alive, whatever else is said. One iteration may still be in flight when a node dies,
   hence two.
2. *Its SSH port answers a peer node.* The node is alive; the ranks may not be, but then the agent,
   once reached, says so. Only if it stays out of reach for long while its collectives failed, the
   node is given up.
3. *None of its peers finds its SSH port.* Gone; also for a power loss, which sends no reset.
4. *Collectives of its tasks failed or their iterations stopped*, and no peer can tell: gone.

With no evidence at all (nobody to ask) the node stays unreachable, and the operator decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core.policy import Policy
from nodeagent.protocol.ids import NodeId


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What is known about a node since contact with it was lost.

    Attributes:
        silent_s: Seconds since contact was lost.
        answers: Per peer that could try: whether the node's SSH port answered.
        num_peers: Peers in contact that can be asked; 0 means nobody can corroborate.
        has_open_probes: Whether some of them have not answered yet.
        advanced: Tasks with ranks on the node that advanced by two iterations, in words.
        has_failed_collective: Whether a rank elsewhere, of a task on the node, reported one.
        stalled: Tasks with ranks on the node whose iterations have stopped, in words.
    """

    silent_s: float
    answers: Mapping[NodeId, bool]
    num_peers: int
    has_open_probes: bool
    advanced: str | None
    has_failed_collective: bool
    stalled: str | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the node counts as lost, and the sentence that explains it."""

    is_lost: bool
    reason: str


def judge(evidence: NodeEvidence, policy: Policy) -> Judgement:
    """Judge an unreachable node; see the module's text for the order of evidence."""
    training = _training_evidence(evidence)
    if evidence.advanced:
        return _presumed_training(evidence.advanced)
    if any(evidence.answers.values()) or (evidence.answers and not evidence.has_open_probes):
        return _judge_by_probes(evidence, training, policy)
    if evidence.num_peers:
        return _presumed_training("asking its peer nodes")
    if training:
        return Judgement(is_lost=True, reason=f"out of contact and {training}")
    return _presumed_training("no other node can look at it")


def _judge_by_probes(evidence: NodeEvidence, training: str | None, policy: Policy) -> Judgement:
    answering = sorted(peer for peer, answered in evidence.answers.items() if answered)
    if not answering:
        peers = ", ".join(sorted(evidence.answers))
        because = f"; {training}" if training else ""
        return Judgement(is_lost=True, reason=f"its SSH port does not answer {peers}{because}")
    if training and evidence.silent_s >= policy.unreachable_limit_s:
        return Judgement(
            is_lost=True,
            reason=f"its SSH port answers {answering[0]}, but no agent was reached for"
            f" {evidence.silent_s:.0f} s and {training}",
        )
    return _presumed_training(f"its SSH port answers {answering[0]}")


def _presumed_training(reason: str) -> Judgement:
    return Judgement(is_lost=False, reason=f"presumed training: {reason}")


def _training_evidence(evidence: NodeEvidence) -> str | None:
    if evidence.has_failed_collective:
        return "its peers' collectives failed"
    return evidence.stalled
