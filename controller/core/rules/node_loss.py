"""Whether an unreachable node is lost, or only out of contact: a pure judgement over evidence.

A lost connection says nothing about the training. The network between controller and node may be
broken, or the SSH server or the agent may have died, while the ranks continue. So a node out of
contact is *unreachable, presumed training*. It becomes *lost* only by evidence that depends on the
node itself. In order of weight:

1. *Its tasks advance.* An iteration that began after contact was lost needs every rank, so the node
   is alive, whatever other evidence says. One iteration may still be in flight when a node dies, so
   two are required. Only recent iterations count.
2. *Its SSH port answers a peer node.* The node is alive. Its ranks may be dead, but the agent will
   report that once it is reached. The node is given up only if it stays unreachable for long and
   the training suffers.
3. *No peer finds its SSH port any more.* If no peer gets an answer, though some have had one
   before, the node is gone: a power loss sends no reset. A refusal comes from a living kernel, and
   may mean a dead SSH server only. It counts at once if the training suffers too, and after a grace
   period if that is not known.
4. *The training suffers and no peer could look*: the node is lost.
5. *No evidence*: no node in contact sees the task, and no peer finds the node gone. After a grace
   period the operator is asked, or, if the policy allows it, the node is lost. If no other node is
   in contact, the controller itself is probably cut off, and there are no other workers. Then only
   an operator can declare a node lost.

*The training suffers* means that a peer in contact reports a failed collective, or that peers in
contact see the iterations stopped. Anything that no node in contact can see is no evidence.
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
    """Everything known about a node since contact with it was lost.

    Attributes:
        silent_s: Seconds since contact was lost.
        num_peers: Peers in contact, which can be asked; 0 if no peer can confirm anything.
        answers: The newest result of each peer's look at the node's SSH port. Silence and refusals
            only of peers that have had an answer from it before.
        has_open_probes: Whether some peers have not answered yet.
        advanced: Tasks with ranks on the node that advance, in words; None if none advances.
        suffering: How the training of such a task suffers, seen from peers in contact, in words.
        unseen: Tasks there that no node in contact can observe, in words; None if there are none.
        never_reached: Peers that find no SSH server, and never have: perhaps a firewall closes SSH
            between nodes. That says nothing.
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
    never_reached: tuple[NodeId, ...] = ()
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the node counts as lost, and the sentence that explains it.

    ``asks``: the evidence is not sufficient, and the operator has to decide.
    """

    is_lost: bool
    reason: str
    asks: bool = False


def judge(evidence: NodeEvidence, policy: Policy) -> Judgement:
    """Judge an unreachable node; see the module's text for the order of evidence."""
    if evidence.advanced:
        return _presumed_training(evidence.advanced)
    if evidence.num_peers == 0:
        return _judge_unseen(evidence, policy, "no other node is in contact to probe it")
    if "answered" in evidence.answers.values():
        return _judge_answering(evidence, policy)
    if evidence.has_open_probes:
        return _presumed_training("its peer nodes are being asked")
    return _judge_silent(evidence, policy)


def _judge_silent(evidence: NodeEvidence, policy: Policy) -> Judgement:
    if evidence.answers:
        return _judge_missing(evidence, policy)
    if evidence.suffering:
        return Judgement(is_lost=True, reason=f"out of contact, and {evidence.suffering}")
    reason = "its peer nodes could not probe it"
    if evidence.never_reached:
        reason = f"its SSH port has never answered {', '.join(evidence.never_reached)}"
    return _judge_unseen(evidence, policy, reason)


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
    """Judge a node without evidence against it, whose tasks may be invisible to all other nodes."""
    blind = evidence.suffering
    if evidence.unseen:
        blind = f"no node in contact has seen {evidence.unseen} for {evidence.silent_s:.0f} s"
    if blind is None or evidence.waited_s < policy.uncorroborated_limit_s:
        return _presumed_training(reason)
    needs_operator = evidence.num_peers == 0 or not policy.heals or policy.asks_before_loss
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
