"""Our own reduction of gradients over the replicas: bucket by bucket, and nothing is ever lost by it.

Megatron's ``DistributedDataParallel`` reduces a bucket in place, so an all-reduce that breaks leaves
neither the sum of this replica nor that of all. Here each bucket is copied to a staging buffer and
reduced there: when a reduction breaks, the replica's own sums are untouched, and a bucket whose
reduction is complete is marked in the ledger and can be handed to others. The replicas' own sums are
replaced (``restore``) only when all buckets are complete.

As in Megatron, a bucket starts as soon as the backward pass of the last micro-batch has passed all of
its parameters, and travels while the pass goes on. That is so when every one of them was passed once in
each micro-batch. A bucket of which this did not hold the last time, since some micro-batches do not reach a
parameter or reach it twice, starts when all passes are over. Megatron's hooks stay in place: they
find our buckets where they look for Megatron's own. Buckets start in one order on all ranks, whatever
order the hooks come in, since a collective is matched by its place in the sequence.

The losses travel as a bucket of their own. Sums stay sums: division by the number of tokens comes
with the vote.
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
        name: The same on all ranks with the same part of the model, in every generation.
        sums: The replica's own sums: a view of Megatron's gradient buffer.
        staging: What is, or was, reduced.
        parameters: Parameters whose gradients it holds.
        is_started: Whether its reduction has begun, so that no gradient may come any more.
    """

    name: str
    sums: torch.Tensor
    staging: torch.Tensor
    parameters: frozenset[torch.nn.Parameter] = frozenset()
    work: Any = None
    is_started: bool = False
    _is_regular: bool = False
    """Whether each micro-batch, the last time, passed every parameter once."""
    _num_micro_batches: int = 0
    _num_passes: dict[int, int] = field(default_factory=dict)
    """By the identity of the parameter."""
    _num_passed: int = 0
    """Parameters that were passed as often as there are micro-batches."""

    @property
    def is_ready(self) -> bool:
        """Whether no gradient is to come any more, as far as can be known before the end."""
        return self._is_regular and self._is_passed

    def expect(self, num_micro_batches: int) -> None:
        """The passes of so many micro-batches begin."""
        self.is_started = False
        self._num_passes.clear()
        self._num_micro_batches, self._num_passed = num_micro_batches, 0

    def note(self, parameter: torch.nn.Parameter) -> bool:
        """A backward pass has passed ``parameter``; return whether that was the last pass that is expected."""
        key = id(parameter)
        self._num_passes[key] = num_passes = self._num_passes.get(key, 0) + 1
        if num_passes != self._num_micro_batches:
            return False
        self._num_passed += 1
        return self._is_passed

    def learn(self) -> None:
        """All passes are over."""
        most = max(self._num_passes.values(), default=0)
        self._is_regular = self._is_passed and most == self._num_micro_batches

    @property
    def _is_passed(self) -> bool:
        return self._num_passed == len(self.parameters)


class LateGradientError(Exception):
    """A gradient arrived in a bucket that had been started: what was reduced of it is incomplete."""


class _Hooked:
    """Stands where Megatron's hooks and ``no_sync`` look for a bucket group."""

    def __init__(self, reduction: "Reduction", bucket: Bucket) -> None:
        self._reduction = reduction
        self._bucket = bucket
        self.is_last_microbatch = True
        """Set by Megatron, whose schedules may leave it as it is where they are interrupted; not used."""

    def register_grad_ready(self, parameter: torch.nn.Parameter, *_: object) -> None:
        """Megatron's hook: a gradient of ``parameter`` is added to the sums."""
        self._reduction.note_ready(self._bucket, parameter)

    def reset(self) -> None:
        """Called by Megatron when it sets the gradients to zero."""


class Reduction:
    """The buckets of one rank's model, over all generations of its process.

    Args:
        chunks: The model, one wrapper per chunk. The hooks of each are redirected to here.
        ledger: Where complete buckets are marked.
        is_halted: Whether the generation was halted, so that a reduction may never end.
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
        """Reduce over ``group`` from now on: the data-parallel group of a new generation."""
        self._group = group
        self._failure = None
        self._is_armed = False
        for bucket in self._all:
            bucket.work = None

    def abandon(self) -> bool:
        """Leave the group, whose connections are cut; return whether an operation never ends."""
        works = [bucket.work for bucket in self._all if bucket.work is not None]
        for bucket in self._all:
            bucket.work = None
        return any(_is_stuck(work) for work in works)

    def arm(self, num_micro_batches: int) -> None:
        """The passes of so many micro-batches begin: start buckets as they get ready."""
        self._is_armed = True
        self._num_started = 0
        for bucket in self._buckets:
            bucket.expect(num_micro_batches)

    def note_ready(self, bucket: Bucket, parameter: torch.nn.Parameter) -> None:
        """Take in that a gradient was added, and start what can be started.

        Raises:
            LateGradientError: The bucket was started already.
        """
        if not self._is_armed:
            return
        is_passed = bucket.note(parameter)
        if bucket.is_started:
            self._ledger.is_spoilt = True
            raise LateGradientError(
                "a gradient arrived after its bucket had been reduced: the backward pass of a"
                " micro-batch reaches a parameter more often than those before"
            )
        # Once per bucket: the hook runs for every parameter of every micro-batch.
        if is_passed and not self._is_alone:
            self._start_ready()

    def _start_ready(self) -> None:
        while self._num_started < len(self._buckets):
            following = self._buckets[self._num_started]
            if not following.is_ready:
                return
            following.is_started = True
            self._start(following)
            self._num_started += 1

    def finish(self) -> None:
        """Start what has not started, and wait until every bucket is reduced.

        Raises:
            RuntimeError: A reduction broke. The complete ones are marked, the sums are untouched.
        """
        for bucket in self._buckets[self._num_started if self._is_armed else 0 :]:
            self._start(bucket)
        if self._is_armed:
            for bucket in self._buckets:
                bucket.learn()
        self._is_armed = False
        self._losses.sums.copy_(torch.tensor(self._ledger.loss_sums(), dtype=torch.float64))
        self._start(self._losses)
        for bucket in self._all:
            self._wait(bucket)
        if self._failure is not None:
            raise self._failure

    def restore(self) -> None:
        """Put the reduced gradients where Megatron and the optimizer look for them.

        What follows changes them in place. That can be repeated after another ``restore``, but not
        where there is one replica only, whose sums are the reduced gradients themselves. What was
        reduced while there were more holds the contribution of all of them, which its sums do not.
        """
        if self._is_alone:
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
        """Return the sum of losses and of tokens over all replicas, once all is reduced."""
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
            # Raised inside a backward hook it would tear the micro-batch that is being added.
            self._failure = error

    def _wait(self, bucket: Bucket) -> None:
        work, bucket.work = bucket.work, None
        if work is None:
            return
        if isinstance(self._failure, StuckWorkError) and not work.is_completed():
            return  # one such wait is long enough: whoever parks too late is taken for hanging
        try:
            wait_unless_halted(work, self._is_halted)
            if bucket.staging.is_cuda:
                # NCCL's wait() only orders streams; complete is what the host has seen complete.
                torch.cuda.current_stream().synchronize()
        except StuckWorkError as error:
            self._failure = error
        except (RuntimeError, HaltedError) as error:
            self._failure = self._failure or error
        else:
            self._ledger.reduced.add(bucket.name)

    def _take_over(self, chunk: DistributedDataParallel) -> list[Bucket]:
        wrapper: Any = chunk
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
        pass  # it has ended
    return False


def _digest(names: list[str]) -> str:
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
