"""What a rank has done of the iteration that runs, so that nothing has to be done twice.

The ledger is written by the training thread as it goes and outlives generations: a rank that is
parked states it as its ``Position``, and a generation that finishes the iteration goes on from it.
Every mark is set after the thing that it stands for is complete, so whatever interrupts the rank
leaves marks that are true. What a mark stands for lies elsewhere: sums in Megatron's gradient
buffers, reduced buckets in ``reduction``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

from nodeagent.protocol.regroup import HeldCopy, Phase, Position, VoteResult


@dataclass(slots=True)
class Ledger:
    """The marks of one rank.

    Attributes:
        committed: Newest iteration whose update the parameters and the optimizer hold.
        has_state: Whether they hold exactly that.
        phase: Phase of the iteration after it.
        loss_by_micro_batch: Micro-batches that the sums hold, each whole, with the sum of their
            losses and their number of tokens; zeros where this rank computes no loss.
        is_torn: Whether the sums hold a part of a micro-batch.
        reduced: Names of the buckets whose sum over all replicas this rank holds.
        is_spoilt: Whether this rank or others may hold a bucket as reduced whose sum is wrong.
        vote: The newest vote.
    """

    committed: int = 0
    has_state: bool = False
    phase: Phase = "idle"
    loss_by_micro_batch: dict[int, tuple[SupportsFloat, SupportsFloat]] = field(
        default_factory=dict
    )
    is_torn: bool = False
    reduced: set[str] = field(default_factory=set)
    is_spoilt: bool = False
    vote: VoteResult | None = None

    @property
    def iteration(self) -> int:
        """The iteration that runs, or begins next."""
        return self.committed + 1

    def begin(self) -> None:
        """The iteration is begun afresh: nothing of it is done."""
        self.phase = "accumulate"
        self.forget_sums()
        self._forget_reduced()

    def _forget_reduced(self) -> None:
        self.reduced.clear()
        self.is_spoilt = False

    def forget_sums(self) -> None:
        """The sums were set to zero."""
        self.loss_by_micro_batch.clear()
        self.is_torn = False

    def count(self, micro_batch: int, loss: SupportsFloat, num_tokens: SupportsFloat) -> None:
        """The sums hold ``micro_batch``, whole. Tensors are taken as they are, and read late."""
        self.loss_by_micro_batch[micro_batch] = (loss, num_tokens)
        self.is_torn = False

    def tear(self) -> None:
        """From now on the sums may hold a part of a micro-batch; ``count`` ends that."""
        self.is_torn = True

    def commit(self, vote: VoteResult) -> None:
        """The update of ``vote.iteration`` is applied."""
        self.committed = vote.iteration
        self.vote = vote
        self.phase = "idle"
        self.forget_sums()
        self._forget_reduced()

    def adopt(self, committed: int) -> None:
        """Parameters and optimizer were replaced by those after iteration ``committed``."""
        self.committed = committed
        self.has_state = True
        self.vote = None
        self.phase = "idle"
        self.forget_sums()
        self._forget_reduced()

    def loss_sums(self) -> tuple[float, float]:
        """Return the sum of losses and of tokens over the counted micro-batches."""
        losses = [self.loss_by_micro_batch[index] for index in sorted(self.loss_by_micro_batch)]
        return sum(float(loss) for loss, _ in losses), sum(float(num) for _, num in losses)

    def position(self, num_buckets: int, copies: Sequence[HeldCopy] = ()) -> Position:
        """Return where the rank stands."""
        return Position(
            committed=self.committed,
            has_state=self.has_state,
            phase=self.phase,
            counted=tuple(sorted(self.loss_by_micro_batch)),
            is_torn=self.is_torn,
            reduced=tuple(sorted(self.reduced)),
            is_spoilt=self.is_spoilt,
            num_buckets=num_buckets,
            vote=self.vote,
            copies=tuple(copies),
        )
