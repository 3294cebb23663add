"""One iteration on one rank, phase by phase: accumulate, reduce, finalise, vote, step, commit.

The vote is one sum over all ranks of the generation. It carries the losses, the squared gradient
norm and wishes such as "park". So every rank has the same numbers and makes the same decision. A
rank that has the result of the vote may step. Until then the iteration can be finished from its
parts or run again. After an interruption the ledger says how far the iteration was.

Recovery after an interruption is in ``resume``, reports to the agent are in ``training_loop``.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.protocol.regroup import VoteResult, even_shares
from nodeagent.rank.groups.halting import HaltedError, wait_unless_halted
from nodeagent.rank.groups.nccl import device_ends_soon
from nodeagent.rank.groups.parallel_groups import data_parallel_group
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.accumulation import (
    Accumulation,
    finalise_in_replica,
    squared_grad_norm,
)
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.iteration.reduction import Reduction
from nodeagent.rank.program.loop import Loop
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from nodeagent.rank.tensors.host_copy import wait_on_device

_LOG = logging.getLogger(__name__)

_NUM_TRIES: Final = 2


class NonFiniteLossError(Exception):
    """Loss or gradient of the global batch was NaN or infinite in two tries.

    Nothing was updated.
    """


class EmptyBatchError(ValueError):
    """No token of the global batch counts for the loss. All ranks raise it; nothing was updated."""


class VoteError(Exception):
    """The ranks do not run the same iteration, which is a bug of ours. Nothing was updated."""


@dataclass(frozen=True, slots=True)
class IterationHooks:
    """Functions that the training loop has called during an iteration, for halts and for drills.

    Attributes:
        at_boundary: Called before each micro-batch with its index. It raises to interrupt.
        alter_loss: Called with the loss of a micro-batch, its index and the number of replicas. It
            returns the loss that counts.
        before_vote: Called before this rank enters the vote.
    """

    at_boundary: Callable[[int], None]
    alter_loss: Callable[[torch.Tensor, int, int], torch.Tensor]
    before_vote: Callable[[], None]


class Iterations:
    """Runs the iterations of one rank's loop, over all generations of its process.

    Args:
        loop: The training program.
        ledger: The progress of the running iteration.
        hooks: Functions to call during an iteration.
        is_halted: Whether the generation was halted.
        examine: Called with each vote before it counts. It raises to refuse the vote, on all ranks.
        accumulated: Called when all micro-batches of this rank are in the sums.
    """

    def __init__(
        self,
        loop: Loop,
        ledger: Ledger,
        hooks: IterationHooks,
        is_halted: Callable[[], bool] = lambda: False,
        examine: Callable[[VoteResult], None] = lambda _: None,
        accumulated: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._ledger = ledger
        self._accumulation = Accumulation(loop, ledger, hooks.at_boundary, hooks.alter_loss)
        self.reduction = Reduction(loop.chunks, ledger, is_halted)
        self._before_vote = hooks.before_vote
        self.is_halted = is_halted
        self._examine = examine
        self._accumulated = accumulated
        self._place: Place | None = None
        self.is_second_try = False
        """Whether the newest iteration was run a second time."""

    @property
    def place(self) -> Place:
        """The rank's place in the present generation."""
        assert self._place is not None, "enter() comes first"
        return self._place

    def enter(self, place: Place, data_parallel: ProcessGroup) -> None:
        """Join a new generation, whose state may come from other ranks."""
        # Copies for a checkpoint of the old generation may still read the tensors on the GPU.
        wait_on_device()
        self._place = place
        self.reduction.enter(data_parallel)

    def begin(self) -> None:
        """Set the sums to zero and begin the iteration from its first micro-batch."""
        self.forget_sums()
        self._ledger.begin()

    def forget_sums(self) -> None:
        """Set the sums to zero, but keep the reduced buckets."""
        for chunk in self._loop.chunks:
            chunk.zero_grad_buffer()
        # After a step Megatron leaves ``grad`` pointing at the sums. The backward pass would add to
        # them, and Megatron's hook would add the same gradient again.
        self._loop.optimizer.zero_grad()
        self._ledger.forget_sums()

    def compute(self, micro_batches: Sequence[int]) -> None:
        """Add ``micro_batches`` to the sums, reduce over the replicas, finalise inside them."""
        # Without micro-batches no backward pass runs, and buckets would wait for it.
        if micro_batches:
            self.reduction.arm(len(micro_batches))
        self._accumulation.run(self.place, micro_batches)
        self._accumulated()
        self._ledger.phase = "reduce"
        self.reduction.finish()
        self._ledger.phase = "finalise"
        # Finalising changes gradients in place. A second try must begin from the reduced ones.
        self.reduction.restore()
        finalise_in_replica(self._loop.chunks)

    def vote(self, *wishes: Callable[[], bool]) -> tuple[VoteResult | None, list[bool]]:
        """Agree with all ranks on the result of the iteration.

        Args:
            wishes: Called now. A wish of one rank is granted to all. The first is the wish to park.

        Returns:
            The result, None if loss or gradient are not finite; and which wishes are granted.

        Raises:
            RuntimeError: A peer was lost. Some ranks may have the result while others don't.
            EmptyBatchError: No token counts.
            VoteError: A rank runs another iteration.
        """
        self._ledger.phase = "vote"
        place, iteration = self.place, self._ledger.iteration
        # All replicas hold the same reduced loss, so exactly one rank contributes it.
        has_loss = place.is_last_stage and place.tp_rank == 0 and place.dp_rank == 0
        loss, num_tokens = self.reduction.losses() if has_loss else (0.0, 0.0)
        norm = sum(squared_grad_norm(chunk, place) for chunk in self._loop.chunks)
        sums = self._sum_over_all(
            [
                loss,
                num_tokens,
                norm,
                float(iteration),
                *(float(is_wanted()) for is_wanted in wishes),
            ]
        )
        loss_sum, num_tokens, squared_norm, iterations = sums[:4]
        if iterations != iteration * place.layout.num_workers:
            raise VoteError(f"not all ranks run iteration {iteration}")
        if not num_tokens:
            raise EmptyBatchError(
                f"iteration {iteration}: no token of the global batch counts for the loss"
            )
        # NaN and infinity survive a sum: if one rank has them, all ranks see them here.
        if not math.isfinite(loss_sum + squared_norm):
            return None, []
        granted = [number > 0 for number in sums[4:]]
        result = VoteResult(
            iteration=iteration,
            loss=loss_sum / num_tokens,
            grad_norm=math.sqrt(squared_norm) / num_tokens,
            num_tokens=num_tokens,
            is_park_wanted=bool(granted and granted[0]),
        )
        self._examine(result)
        self._ledger.vote = result
        return result, granted

    def _sum_over_all(self, numbers: list[float]) -> list[float]:
        self._before_vote()
        # In float64, so that counts stay exact and the sum of losses does not lose digits.
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.place.device)
        wait_unless_halted(distributed.all_reduce(tensor, async_op=True), self.is_halted)
        sums: list[float] = tensor.tolist()
        return sums

    def step(self, vote: VoteResult) -> None:
        """Apply the update of the vote and commit the iteration on this rank."""
        loop, ledger = self._loop, self._ledger
        ledger.phase = "stepping"
        # During the step the parameters belong to no iteration. A fault now must not offer them.
        ledger.has_state = False
        # Gradients are plain sums until here. Division and clipping are one multiplication.
        scale = 1.0 / vote.num_tokens
        if 0 < loop.max_grad_norm < vote.grad_norm:
            scale *= loop.max_grad_norm / vote.grad_norm
        for chunk in loop.chunks:
            chunk.scale_gradients(scale)
        # Copies for the last checkpoint may still read the tensors that the step changes.
        wait_on_device()
        loop.before_step(vote.iteration)
        # Not step(): it would sum the gradient norm over the ranks again. After a fault some ranks
        # step and the others get a copy of the state, so nobody would answer that collective.
        loop.optimizer.prepare_grads()
        loop.optimizer.step_with_ready_grads()
        ledger.commit(vote)
        ledger.has_state = True

    def share_parameters(self) -> None:
        """With a sharded optimizer: gather the parameters that other replicas have updated.

        Raises:
            RuntimeError: A peer was lost. The iteration stays committed.
        """
        if isinstance(self._loop.optimizer, ShardedOptimizer):
            self._loop.optimizer.gather(data_parallel_group(), self.is_halted)

    def check_complete(self) -> None:
        """On a GPU: wait until all ranks have received their state. On a CPU this does nothing.

        Raises:
            HaltedError: The generation was halted.
            RuntimeError: A peer was lost.
        """
        if self.place.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
            # After an abort NCCL reports every operation as done, whether or not it was.
            if self.is_halted():
                raise HaltedError("halted while the state was on its way")
            # An aborted send looks complete on this side. The aborting peer takes no part in this
            # sum.
            if self.place.sum_over_all([1.0], self.is_halted) != [self.place.layout.num_workers]:
                raise RuntimeError("NCCL: a peer broke off while the state was on its way")

    def settle(self, is_inner_halted: Callable[[], bool]) -> None:
        """After an interruption with NCCL: withdraw results that a peer's abort may have damaged.

        The module ``nccl`` says why an abort can damage them. With gloo this does nothing.

        Args:
            is_inner_halted: Whether collectives inside the replica were aborted.
        """
        is_nccl = distributed.is_initialized() and distributed.get_backend() == "nccl"
        if not is_nccl or self._place is None:
            return
        ledger, layout = self._ledger, self._place.layout
        ledger.is_spoilt |= bool(ledger.reduced)
        if not ledger.loss_by_micro_batch:
            return
        # The parameters that other replicas gathered to here may be damaged, and with them all
        # sums.
        is_torn = isinstance(self._loop.optimizer, ShardedOptimizer) and layout.dp > 1
        # The host counts a micro-batch when it has launched it. The GPU may not have finished it.
        if layout.tp * layout.pp > 1:
            is_torn = is_torn or not device_ends_soon() or is_inner_halted()
        if is_torn:
            ledger.tear()

    def run(
        self, micro_batches: Sequence[int], *wishes: Callable[[], bool]
    ) -> tuple[VoteResult, list[bool]]:
        """Compute, vote and step; return the vote and which wishes are granted.

        If the result is not finite, nothing is committed and the whole iteration runs once more.

        Raises:
            NonFiniteLossError: The second result was not finite either. All ranks raise it.
        """
        iteration = self._ledger.iteration
        for number in range(_NUM_TRIES):
            self.is_second_try = number > 0
            if self.is_second_try:
                _LOG.warning(
                    "no finite loss or gradient; the iteration runs once more: iteration=%d",
                    iteration,
                )
            self.compute(micro_batches)
            vote, granted = self.vote(*wishes)
            if vote is not None:
                self.step(vote)
                self.share_parameters()
                return vote, granted
            # A transient error of the hardware does not come twice; an error in the data does.
            self.begin()
            # The first try may have computed a remainder only. The second needs the whole share.
            micro_batches = self.own_share()
        raise NonFiniteLossError(f"iteration {iteration}: loss or gradient, twice")

    def own_share(self) -> Sequence[int]:
        """Return the micro-batches of this rank's replica in a fresh iteration."""
        layout = self.place.layout
        return even_shares(self._loop.num_micro_batches, layout.dp)[self.place.dp_rank]
