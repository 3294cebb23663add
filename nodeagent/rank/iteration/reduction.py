"""Our own reduction of gradients over the replicas, bucket by bucket.

A fault in it loses no result.

Megatron's ``DistributedDataParallel`` reduces a bucket in place. If that all-reduce breaks, both
the sum of this replica and the sum over all replicas are lost. Here each bucket is copied to a
staging buffer and reduced there. If a reduction breaks, the replica's own sums are untouched. A
completely reduced bucket is marked in the ledger and can be handed to other ranks. ``restore``
replaces the replica's own sums only when all buckets are reduced.

As in Megatron, a bucket's reduction starts during the last backward pass, as soon as the pass has
reached all of its parameters. This needs that each micro-batch reaches every parameter of the
bucket exactly once, which is known from the iteration before. The reduction of any other bucket
starts after the last backward pass.

Megatron's hooks stay in place, and find our buckets instead of Megatron's own. All ranks start
their buckets in the same order, independent of the order of the hooks: collectives are matched by
their place in the sequence.

The losses are a bucket of their own. Sums stay sums: the division by the number of tokens comes
after the vote.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from megatron.core.distributed import DistributedDataParallel
from torch import distributed
from torch.distributed import ProcessGroup

from nodeagent.rank.groups.halting import HaltedError, StuckWorkError, wait_unless_halted
from nodeagent.rank.iteration.ledger import Ledger

LOSS_BUCKET: Final = "losses"


@dataclass(slots=True, eq=False)
class Bucket:
    """One bucket.

    Attributes:
        name: Equal on all ranks with the same part of the model, in every generation.
        sums: The replica's own sums: a view of Megatron's gradient buffer.
        staging: The copy of the sums that is reduced in place.
        parameters: The parameters whose gradients are in the bucket.
        is_started: Whether its reduction has begun. A gradient that arrives later is an error.
    """

    name: str
    sums: torch.Tensor
    staging: torch.Tensor
    parameters: frozenset[torch.nn.Parameter] = frozenset()
    work: Any = None
    is_started: bool = False
    _is_regular: bool = False
    """Whether each micro-batch of the previous iteration reached every parameter once."""
    _num_micro_batches: int = 0
    _num_passes: dict[int, int] = field(default_factory=dict)
    """Number of backward passes by the ``id`` of the parameter."""
    _num_passed: int = 0
    """Number of parameters that were reached once per micro-batch."""

    @property
    def is_ready(self) -> bool:
        """Whether all gradients have arrived, if this iteration is like the previous one."""
        return self._is_regular and self._is_passed

    def expect(self, num_micro_batches: int) -> None:
        """Prepare for the backward passes of ``num_micro_batches`` micro-batches."""
        self.is_started = False
        self._num_passes.clear()
        self._num_micro_batches, self._num_passed = num_micro_batches, 0

    def note(self, parameter: torch.nn.Parameter) -> bool:
        """Count a backward pass over ``parameter``; return whether all expected passes are done."""
        key = id(parameter)
        self._num_passes[key] = num_passes = self._num_passes.get(key, 0) + 1
        if num_passes != self._num_micro_batches:
            return False
        self._num_passed += 1
        return self._is_passed

    def learn(self) -> None:
        """Record after the last pass whether the bucket may start early in the next iteration."""
        most = max(self._num_passes.values(), default=0)
        self._is_regular = self._is_passed and most == self._num_micro_batches

    @property
    def _is_passed(self) -> bool:
        return self._num_passed == len(self.parameters)


class LateGradientError(Exception):
    """A gradient arrived after the reduction of its bucket began, so the reduced sum lacks it."""


class _Hooked:
    """Takes the place of a bucket group, for Megatron's hooks and ``no_sync``."""

    def __init__(self, reduction: "Reduction", bucket: Bucket) -> None:
        self._reduction = reduction
        self._bucket = bucket
        self.is_last_microbatch = True
        """Set by Megatron, and not used: an interrupted schedule leaves a stale value here."""

    def register_grad_ready(self, parameter: torch.nn.Parameter, *_: object) -> None:
        """Note that a gradient of ``parameter`` was added to the sums. Megatron's hook calls it."""
        self._reduction.note_ready(self._bucket, parameter)

    def reset(self) -> None:
        """Do nothing. Megatron calls it when it sets the gradients to zero."""


class Reduction:
    """The buckets of one rank's model, over all generations of its process.

    Args:
        chunks: The model, one wrapper per chunk. Their hooks are redirected to this object.
        ledger: Marks the completely reduced buckets.
        is_halted: Whether the generation was halted. A reduction may then never end.
    """

    def __init__(
        self,
        chunks: list[DistributedDataParallel],
        ledger: Ledger,
        is_halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._ledger = ledger
        self._is_halted = is_halted
        self._group: ProcessGroup | None = None
        self._is_armed = False
        self._num_started = 0
        self._failure: Exception | None = None
        self._buckets = [bucket for chunk in chunks for bucket in self._take_over(chunk)]
        device = self._buckets[0].sums.device
        sums, staging = torch.zeros((2, 2), dtype=torch.float64, device=device)
        self._losses = Bucket(LOSS_BUCKET, sums, staging)

    @property
    def names(self) -> list[str]:
        """Names of all buckets, the losses included."""
        return [bucket.name for bucket in self._all]

    @property
    def _all(self) -> list[Bucket]:
        return [*self._buckets, self._losses]

    def enter(self, group: ProcessGroup) -> None:
        """Use ``group``, the data-parallel group of a new generation, for all later reductions."""
        self._group = group
        self._failure = None
        self._is_armed = False
        for bucket in self._all:
            bucket.work = None

    def abandon(self) -> bool:
        """Leave the group after its connections ended; return whether an operation never ends."""
        works = [bucket.work for bucket in self._all if bucket.work is not None]
        for bucket in self._all:
            bucket.work = None
        return any(_is_stuck(work) for work in works)

    def arm(self, num_micro_batches: int) -> None:
        """Start buckets as they become ready, during the passes of ``num_micro_batches``."""
        self._is_armed = True
        self._num_started = 0
        for bucket in self._buckets:
            bucket.expect(num_micro_batches)

    def note_ready(self, bucket: Bucket, parameter: torch.nn.Parameter) -> None:
        """Count an added gradient, and start the buckets that are ready.

        Raises:
            LateGradientError: The reduction of the bucket has begun already.
        """
        if not self._is_armed:
            return
        is_passed = bucket.note(parameter)
        if bucket.is_started:
            # The reduced sum may be on other ranks already. The mark keeps it out of a recovery.
            self._ledger.is_spoilt = True
            raise LateGradientError(
                "a gradient arrived after its bucket had been reduced: the backward pass of a"
                " micro-batch reaches a parameter more often than those before"
            )
        # Only when a bucket has all its gradients: the hook runs per parameter and micro-batch.
        if is_passed and not self._is_alone:
            self._start_ready()

    def _start_ready(self) -> None:
        while self._num_started < len(self._buckets):
            following = self._buckets[self._num_started]
            # A ready bucket waits for those before it: all ranks must start them in one order.
            if not following.is_ready:
                return
            following.is_started = True
            self._start(following)
            self._num_started += 1

    def finish(self) -> None:
        """Start the remaining buckets, and wait until all are reduced.

        Raises:
            RuntimeError: A reduction broke. Complete buckets are marked, and the sums are
                untouched.
        """
        for bucket in self._buckets[self._num_started if self._is_armed else 0 :]:
            self._start(bucket)
        if self._is_armed:
            for bucket in self._buckets:
                bucket.learn()
        self._is_armed = False
        # Reading the losses makes the host wait for the GPU. Here the other buckets travel
        # meanwhile.
        self._losses.sums.copy_(torch.tensor(self._ledger.loss_sums(), dtype=torch.float64))
        self._start(self._losses)
        for bucket in self._all:
            # After a failure too: a bucket that completed nevertheless need not be reduced again.
            self._wait(bucket)
        if self._failure is not None:
            raise self._failure

    def restore(self) -> None:
        """Copy the reduced gradients into Megatron's buffer, where the optimizer reads them.

        The later phases change them in place, and can be repeated after another ``restore``. With a
        single replica they can't be repeated: there the sums are the reduced gradients. A bucket
        that was reduced in a generation with more replicas is copied in any case: it holds the
        contribution of all those replicas.
        """
        if self._is_alone:
            # No staging buffer holds a second copy, so the sums are lost once they are changed.
            self._ledger.tear()
        for bucket in self._buckets:
            if bucket.name in self._ledger.reduced:
                bucket.sums.copy_(bucket.staging)

    def share(self, name: str, holder: int) -> None:
        """Copy a reduced bucket from rank ``holder`` to all ranks of the data-parallel group.

        Raises:
            RuntimeError: A peer was lost; the bucket is not marked.
        """
        bucket = next(bucket for bucket in self._all if bucket.name == name)
        bucket.work = distributed.broadcast(
            bucket.staging, src=holder, group=self._group, async_op=True
        )
        self._wait(bucket)
        if self._failure is not None:
            raise self._failure

    def losses(self) -> tuple[float, float]:
        """Return the sums of losses and of tokens over all replicas. Call it after ``finish``."""
        losses = self._losses
        tensor = losses.staging if losses.name in self._ledger.reduced else losses.sums
        loss, num_tokens = tensor.tolist()
        return loss, num_tokens

    @property
    def _is_alone(self) -> bool:
        assert self._group is not None, "enter() comes first"
        return self._group.size() == 1

    def _start(self, bucket: Bucket) -> None:
        if bucket.name in self._ledger.reduced or self._is_alone or self._failure is not None:
            return
        self._ledger.phase = "reduce"
        bucket.staging.copy_(bucket.sums)
        try:
            bucket.work = distributed.all_reduce(bucket.staging, group=self._group, async_op=True)
        except RuntimeError as error:
            # Raised inside a backward hook it would leave a part of a micro-batch in the sums.
            # ``finish`` raises it, when the passes are over.
            self._failure = error

    def _wait(self, bucket: Bucket) -> None:
        work, bucket.work = bucket.work, None
        if work is None:
            return
        if isinstance(self._failure, StuckWorkError) and not work.is_completed():
            # One such wait is long enough: a rank that parks too late counts as hanging.
            return
        try:
            wait_unless_halted(work, self._is_halted)
            if bucket.staging.is_cuda:
                # NCCL's wait() only orders streams. The ledger may mark a bucket only when the host
                # knows that the reduction is complete.
                torch.cuda.current_stream().synchronize()
        except StuckWorkError as error:
            self._failure = error
        except (RuntimeError, HaltedError) as error:
            # The first failure names the cause; later ones are its echo.
            self._failure = self._failure or error
        else:
            self._ledger.reduced.add(bucket.name)

    def _take_over(self, chunk: DistributedDataParallel) -> list[Bucket]:
        wrapper: Any = chunk
        # Named by their parameters, so that equal names mean equal contents on every rank.
        names = {parameter: name for name, parameter in chunk.module.named_parameters()}
        buckets: list[Bucket] = []
        hooked: list[_Hooked] = []
        for group in [*wrapper.bucket_groups, *wrapper.expert_parallel_bucket_groups]:
            for theirs in group.buckets:
                bucket = Bucket(
                    name=_digest([names[parameter] for parameter in theirs.params_list]),
                    sums=theirs.grad_data,
                    staging=torch.empty_like(theirs.grad_data),
                    parameters=frozenset(theirs.params_list),
                )
                buckets.append(bucket)
                hooked.append(_Hooked(self, bucket))
                for parameter in theirs.params_list:
                    wrapper.param_to_bucket_group[parameter] = hooked[-1]
        wrapper.bucket_groups = hooked
        wrapper.expert_parallel_bucket_groups = []
        return buckets


def _is_stuck(work: distributed.Work) -> bool:
    try:
        wait_unless_halted(work, lambda: True)
    except StuckWorkError:
        return True
    except (RuntimeError, HaltedError):
        pass  # It has ended.
    return False


def _digest(names: list[str]) -> str:
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
