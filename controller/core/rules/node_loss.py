"""Is a node that can't be reached lost, or only out of sight? A pure judgement over evidence.

Losing the connection says nothing about the training: the network between controller and node may
be broken, the SSH server or the agent may have died, while the ranks go on. So a node out of
contact is *unreachable, presumed training*, and becomes *lost* only when something that depends on
the node itself says so. In order of weight:

1. *Its tasks advance.* An iteration that began after contact was lost needs every rank, so the
   node is alive, whatever else is said. One iteration may still be in flight when a node dies,
   hence two; and only what was seen lately counts.
2. *Its SSH port answers a peer node.* The node is alive; the ranks may not be, but then the agent,
   once reached, says so. Only if it stays out of reach for long and the training suffers, the node
   is given up.
3. *No peer finds its SSH port.* Where all of them hear nothing, the node is gone: a power loss
   sends no reset. A refusal comes from a living kernel, and may mean a dead SSH server alone: it
   counts at once if the training suffers too, and after a grace if nothing can tell.
4. *The training suffers and no peer could look*: gone.
5. *Nobody can tell*: a task lives where nobody in contact sees it, and no peer finds the node gone.
   After a grace the operator is asked, or, where policy grants it, the node is lost. While no other
   node is in contact it is more likely the controller that is cut off, and there is nowhere else to
   go: then only an operator can say that a node is lost.

*The training suffers* means that a peer in contact reports a failed collective, or that peers in
contact see the iterations stopped. What nobody in contact can see is no evidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from controller.core.rules.policy import Policy
from nodeagent.protocol.ids import NodeId

ProbeOutcome = Literal["answered", "refused", "silent"]
"""What a peer found at a node's SSH port."""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """What is known about a node since contact with it was lost.

    Attributes:
        silent_s: Seconds since contact was lost.
        num_peers: Peers in contact, which can be asked; 0 means that nobody can corroborate.
        answers: What these peers found at the node's SSH port, the newest of each.
        has_open_probes: Whether some of them have not answered yet.
        advanced: Tasks with ranks on the node that advance, in words; None if none does.
        suffering: How the training of such a task suffers, as peers in contact see it, in words.
        unseen: Tasks there that nobody in contact can see advance or suffer, in words; None if
            there are none.
        waited_s: Seconds since contact was lost while some other node was in contact, or since an
            operator chose to wait.
    """

    silent_s: float
    num_peers: int
    answers: Mapping[NodeId, ProbeOutcome]
    has_open_probes: bool
    advanced: str | None
    suffering: str | None
    unseen: str | None = None
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the node counts as lost, and the sentence that explains it.

    With ``asks`` nobody can tell, and the operator is to say.
    """

    is_lost: bool
    reason: str
    asks: bool = False


def judge(evidence: NodeEvidence, policy: Policy) -> Judgement:
    """Judge an unreachable node; see the module's text for the order of evidence."""
    if evidence.advanced:
        return _presumed_training(evidence.advanced)
    if evidence.num_peers == 0:
        return _judge_unseen(evidence, policy, "no other node is in contact to look at it")
    if "answered" in evidence.answers.values():
        return _judge_answering(evidence, policy)
    if evidence.has_open_probes:
        return _presumed_training("asking its peer nodes")
    return _judge_silent(evidence, policy)


def _judge_silent(evidence: NodeEvidence, policy: Policy) -> Judgement:
    if evidence.answers:
        return _judge_missing(evidence, policy)
    if evidence.suffering:
        return Judgement(is_lost=True, reason=f"out of contact, and {evidence.suffering}")
    return _judge_unseen(evidence, policy, "its peer nodes could not look at it")


def _judge_answering(evidence: NodeEvidence, policy: Policy) -> Judgement:
    peer = min(peer for peer, outcome in evidence.answers.items() if outcome == "answered")
    if evidence.suffering and evidence.silent_s >= policy.unreachable_limit_s:
        return Judgement(
            is_lost=True,
            reason=f"its SSH port answers {peer}, but no agent was reached for"
            f" {evidence.silent_s:.0f} s, and {evidence.suffering}",
        )
    if evidence.suffering:
        return _presumed_training(f"its SSH port answers {peer}")
    return _judge_unseen(evidence, policy, f"its SSH port answers {peer}")


def _judge_unseen(evidence: NodeEvidence, policy: Policy, reason: str) -> Judgement:
    """Judge a node that nothing speaks against; whether its tasks train, nobody may see."""
    blind = evidence.suffering
    if evidence.unseen:
        blind = f"nobody has seen {evidence.unseen} for {evidence.silent_s:.0f} s"
    if blind is None or evidence.waited_s < policy.uncorroborated_limit_s:
        return _presumed_training(reason)
    needs_operator = evidence.num_peers == 0 or not policy.is_auto_heal or policy.asks_before_loss
    if needs_operator:
        return Judgement(is_lost=False, reason=f"lost? {reason}, and {blind}", asks=True)
    return Judgement(is_lost=True, reason=f"{reason}, but {blind}")


def _judge_missing(evidence: NodeEvidence, policy: Policy) -> Judgement:
    peers = ", ".join(sorted(evidence.answers))
    if "refused" not in evidence.answers.values():
        return Judgement(is_lost=True, reason=f"its SSH port is silent to {peers}")
    if evidence.suffering:
        return Judgement(
            is_lost=True, reason=f"its SSH port refuses {peers}, and {evidence.suffering}"
        )
    if evidence.silent_s >= policy.refusal_grace_s:
        return Judgement(
            is_lost=True, reason=f"its SSH port has refused {peers} for {evidence.silent_s:.0f} s"
        )
    return _presumed_training(f"its SSH port refuses {peers}, its ranks may live")


def _presumed_training(reason: str) -> Judgement:
    return Judgement(is_lost=False, reason=f"presumed training: {reason}")
