"""One iteration, through its phases, on one rank: accumulate, reduce, finalise, vote, step, commit.

The vote is one sum of our own over all ranks of the generation. It carries losses, the squared norm
of the gradient and wishes, so that every rank knows the same and decides alike. A rank that has its
result may step; until then the iteration can be finished from its parts or run again. Whatever
interrupts an iteration leaves a ledger that says where it stood.

Not here: what happens after an interruption (``resume``), who is told (``train``).
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
from nodeagent.rank.iteration.accumulation import Accumulation
from nodeagent.rank.iteration.gradients import finalise_in_replica, squared_grad_norm
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.iteration.reduction import Reduction
from nodeagent.rank.program.loop import Loop
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from nodeagent.rank.tensors.host_copy import wait_on_device

logger = logging.getLogger(__name__)

_NUM_TRIES: Final = 2


class NonFiniteLossError(Exception):
    """Loss or gradient of the global batch is NaN or infinite, twice; nothing was updated."""


class EmptyBatchError(ValueError):
    """No token of the global batch counts for the loss; on all ranks alike, and nothing was updated."""


class VoteError(Exception):
    """The ranks do not run the same iteration. Our own bug; nothing was updated."""


@dataclass(frozen=True, slots=True)
class IterationHooks:
    """Where others may come between the parts of an iteration.

    Attributes:
        at_boundary: Called before each micro-batch with its index; raises to interrupt.
        alter_loss: Called with the loss of a micro-batch, its index and the number of replicas; returns
            the loss that counts.
        before_vote: Called before this rank enters the vote.
    """

    at_boundary: Callable[[int], None]
    alter_loss: Callable[[torch.Tensor, int, int], torch.Tensor]
    before_vote: Callable[[], None]


class Iterations:
    """Runs the iterations of one rank's loop, over all generations of its process.

    Args:
        loop: The training program.
        ledger: What is done of the running iteration.
        interruptions: What may come between.
        is_halted: Whether the generation was halted.
        examine: Called with each vote before it counts; raises to refuse it, on all ranks alike.
        accumulated: Called when this rank's own micro-batches of an iteration are in the sums.
    """

    def __init__(
        self,
        loop: Loop,
        ledger: Ledger,
        interruptions: IterationHooks,
        is_halted: Callable[[], bool] = lambda: False,
        examine: Callable[[VoteResult], None] = lambda _: None,
        accumulated: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._ledger = ledger
        self._accumulation = Accumulation(
            loop, ledger, interruptions.at_boundary, interruptions.alter_loss
        )
        self.reduction = Reduction(loop.chunks, ledger, is_halted)
        self._before_vote = interruptions.before_vote
        self._is_halted = is_halted
        self._examine = examine
        self._accumulated = accumulated
        self._place: Place | None = None
        self.is_second_try = False
        """Whether the newest iteration was run once more, whole."""

    @property
    def place(self) -> Place:
        """Where the rank stands in the present generation."""
        assert self._place is not None, "enter() comes first"
        return self._place

    def enter(self, place: Place, data_parallel: ProcessGroup) -> None:
        """Take up a new generation, whose state may come from others."""
        wait_on_device()
        self._place = place
        self.reduction.enter(data_parallel)

    def begin(self) -> None:
        """Set the sums to zero: nothing of the iteration is done."""
        self.forget_sums()
        self._ledger.begin()

    def forget_sums(self) -> None:
        """Set the sums to zero, and keep the buckets that are reduced."""
        for chunk in self._loop.chunks:
            chunk.zero_grad_buffer()
        # After a step Megatron leaves ``grad`` at the sums themselves; the backward pass would add to
        # them, and the hook once more.
        self._loop.optimizer.zero_grad()
        self._ledger.forget_sums()

    def compute(self, micro_batches: Sequence[int]) -> None:
        """Add ``micro_batches`` to the sums, reduce over the replicas, finalise inside them."""
        if micro_batches:
            self.reduction.arm(len(micro_batches))
        self._accumulation.run(self.place, micro_batches)
        self._accumulated()
        self._ledger.phase = "reduce"
        self.reduction.finish()
        self._ledger.phase = "finalise"
        self.reduction.restore()
        finalise_in_replica(self._loop.chunks)

    def vote(self, *wishes: Callable[[], bool]) -> tuple[VoteResult | None, list[bool]]:
        """Agree with all ranks on the iteration; None if loss or gradient are not finite.

        Args:
            wishes: Asked now. Any rank's wish is everybody's in the second value returned; the
                first of them is the wish to pause.

        Raises:
            RuntimeError: A peer was lost. Some ranks may have the result, others not.
            EmptyBatchError: There is nothing to divide by.
            VoteError: A rank runs another iteration.
        """
        self._ledger.phase = "vote"
        place, iteration = self.place, self._ledger.iteration
        speaks = place.is_last_stage and place.tp_rank == 0 and place.dp_rank == 0
        loss, num_tokens = self.reduction.losses() if speaks else (0.0, 0.0)
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
        # NaN and infinity survive a sum, so every rank sees what any rank saw.
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
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.place.device)
        wait_unless_halted(distributed.all_reduce(tensor, async_op=True), self._is_halted)
        sums: list[float] = tensor.tolist()
        return sums

    def step(self, vote: VoteResult) -> None:
        """Apply the update that was voted for; afterwards the iteration is committed here."""
        loop, ledger = self._loop, self._ledger
        ledger.phase = "stepping"
        # Until the step is complete the state is that of no iteration.
        ledger.has_state = False
        scale = 1.0 / vote.num_tokens
        if 0 < loop.max_grad_norm < vote.grad_norm:
            scale *= loop.max_grad_norm / vote.grad_norm
        for chunk in loop.chunks:
            chunk.scale_gradients(scale)
        wait_on_device()
        loop.before_step(vote.iteration)
        # Not step(): it sums the gradient norm over other ranks once more. Where the result of the
        # vote arrives after a fault, some ranks step and others get a copy of the state.
        loop.optimizer.prepare_grads()
        loop.optimizer.step_with_ready_grads()
        ledger.commit(vote)
        ledger.has_state = True

    def share_parameters(self) -> None:
        """With a sharded optimizer: get the parameters that other replicas have updated.

        Raises:
            RuntimeError: A peer was lost. The iteration is committed all the same.
        """
        if isinstance(self._loop.optimizer, ShardedOptimizer):
            self._loop.optimizer.gather(data_parallel_group(), self._is_halted)

    def check_complete(self) -> None:
        """On a GPU: wait until all that was asked for is done, on all ranks, and nothing broke off.

        Raises:
            HaltedError: The generation was halted; after an abort everything counts as done.
            RuntimeError: A peer was lost.
        """
        if self.place.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
            if self._is_halted():
                raise HaltedError("halted while the state was on its way")
            # A peer that broke off may look like one that has sent all; but it does not come here.
            if self.place.sum_over_all([1.0], self._is_halted) != [self.place.layout.num_workers]:
                raise RuntimeError("NCCL: a peer broke off while the state was on its way")

    def settle(self, is_inner_halted: Callable[[], bool]) -> None:
        """The iteration broke off: with NCCL, take back what a peer's abort may have made (``nccl``).

        Args:
            is_inner_halted: Whether collectives inside the replica are aborted here.
        """
        is_nccl = distributed.is_initialized() and distributed.get_backend() == "nccl"
        if not is_nccl or self._place is None:
            return
        ledger, layout = self._ledger, self._place.layout
        ledger.is_spoilt |= bool(ledger.reduced)
        if not ledger.loss_by_micro_batch:
            return
        # What others have updated may be anything, and all was computed with it.
        is_torn = isinstance(self._loop.optimizer, ShardedOptimizer) and layout.dp > 1
        # A micro-batch is counted when the host has asked for all of it.
        if layout.tp * layout.pp > 1:
            is_torn = is_torn or not device_ends_soon() or is_inner_halted()
        if is_torn:
            ledger.tear()

    def run(
        self, micro_batches: Sequence[int], *wishes: Callable[[], bool]
    ) -> tuple[VoteResult, list[bool]]:
        """Compute, vote and step; return the vote and the wishes that were granted.

        A vote that is not finite commits nothing: the iteration is run once more, whole.

        Raises:
            NonFiniteLossError: It was not finite again; on all ranks alike.
        """
        iteration = self._ledger.iteration
        for number in range(_NUM_TRIES):
            self.is_second_try = number > 0
            if self.is_second_try:
                logger.warning(
                    "iteration %d: loss or gradient not finite; run once more", iteration
                )
            self.compute(micro_batches)
            vote, granted = self.vote(*wishes)
            if vote is not None:
                self.step(vote)
                self.share_parameters()
                return vote, granted
            self.begin()
            micro_batches = self.own_share()
        raise NonFiniteLossError(f"iteration {iteration}: loss or gradient, twice")

    def own_share(self) -> Sequence[int]:
        """Return the micro-batches that this rank's replica has in a fresh iteration."""
        layout = self.place.layout
        return even_shares(self._loop.num_micro_batches, layout.dp)[self.place.dp_rank]
