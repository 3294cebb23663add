"""How much of the running iteration a rank has done, so that no work is done twice.

The training thread writes the ledger, and the ledger outlives generations. A parked rank reports it
as its ``Position``, and the next generation finishes the iteration from there.

A mark is set only after the work behind it is complete. So an interruption at any moment leaves
marks that are true. The ledger holds marks only: sums are in Megatron's gradient buffers, reduced
buckets in ``reduction``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

from nodeagent.protocol.regroup import HeldCopy, Phase, Position, VoteResult


@dataclass(slots=True)
class Ledger:
    """The marks of one rank.

    Attributes:
        committed: Newest iteration whose update is in the parameters and the optimizer.
        has_state: Whether parameters and optimizer are exactly at that iteration.
        phase: Phase of the iteration after ``committed``.
        loss_by_micro_batch: Complete micro-batches in the sums, each with the sum of its losses and
            its number of tokens; zeros if this rank computes no loss.
        is_torn: Whether the sums may hold a part of a micro-batch.
        reduced: Names of the buckets that this rank holds as sums over all replicas.
        is_spoilt: Whether a bucket that some rank holds as reduced may have a wrong sum.
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
        """The running iteration, or the next one if none runs."""
        return self.committed + 1

    def begin(self) -> None:
        """Begin the iteration from its first micro-batch: no part of it is done."""
        self.phase = "accumulate"
        self.forget_sums()
        self._forget_reduced()

    # Not a part of ``forget_sums``: after a fault the sums of a replica may be useless while the
    # reduced buckets that its ranks hold are still needed.
    def _forget_reduced(self) -> None:
        self.reduced.clear()
        self.is_spoilt = False

    def forget_sums(self) -> None:
        """Record that the sums were set to zero."""
        self.loss_by_micro_batch.clear()
        self.is_torn = False

    def count(self, micro_batch: int, loss: SupportsFloat, num_tokens: SupportsFloat) -> None:
        """Record that the sums hold the complete ``micro_batch``.

        Loss and tokens may be tensors on a GPU. They are read at the end of the phase, so that the
        host does not wait for the GPU after every micro-batch.
        """
        self.loss_by_micro_batch[micro_batch] = (loss, num_tokens)
        self.is_torn = False

    def tear(self) -> None:
        """Record that the sums may hold a part of a micro-batch, until the next ``count``."""
        self.is_torn = True

    def commit(self, vote: VoteResult) -> None:
        """Record that the update of ``vote.iteration`` is applied."""
        self.committed = vote.iteration
        # Kept after the step: ranks that were interrupted in the vote may lack its result. A
        # recovery gives it to them, and they step instead of computing the iteration again.
        self.vote = vote
        self.phase = "idle"
        self.forget_sums()
        self._forget_reduced()

    def adopt(self, committed: int) -> None:
        """Record that parameters and optimizer were replaced by the state after ``committed``."""
        self.committed = committed
        self.has_state = True
        # It was a vote on the replaced state. A recovery must not step the new state by it.
        self.vote = None
        self.phase = "idle"
        self.forget_sums()
        self._forget_reduced()

    def loss_sums(self) -> tuple[float, float]:
        """Return the sum of losses and of tokens over the counted micro-batches."""
        # Sorted: a recovered iteration adds the same numbers in the same order, to the last bit.
        losses = [self.loss_by_micro_batch[index] for index in sorted(self.loss_by_micro_batch)]
        return sum(float(loss) for loss, _ in losses), sum(float(num) for _, num in losses)

    def position(self, num_buckets: int, copies: Sequence[HeldCopy] = ()) -> Position:
        """Return the rank's progress, for its report when it is parked."""
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
