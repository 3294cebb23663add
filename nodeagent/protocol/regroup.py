"""Records of a regroup: positions of parked ranks, and the resume of the next generation.

An iteration passes through phases: ``accumulate`` (micro-batch after micro-batch into the sums of
the replica), ``reduce`` (bucket after bucket, over the replicas), ``finalise`` (the sums that
Megatron adds inside a replica), ``vote`` (one small sum over all ranks), ``stepping``,
``committed``. A parked rank states its ``Position`` in them. From the positions the controller's
core decides (``controller.core.rules.regroup.next_generation``), and every rank of the new
generation gets the same ``Resume``: the iteration is committed, finished from its partial results,
or run again.

The name of a micro-batch is its index in the global batch. The name of a bucket is a digest of its
parameters' names. The name of a rank is its global rank in the generation of the record.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from nodeagent.protocol.ids import Generation
from nodeagent.protocol.reported_numbers import Count

Phase = Literal["idle", "accumulate", "reduce", "finalise", "vote", "stepping"]
"""Phase of the iteration after the last committed one; ``idle`` before it has begun."""

StateSource = Literal["seed", "disk", "memory", "peer", "own"]
"""Where the state of a rank came from; ``own`` is the memory of its own process."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")


class RankRef(_Record):
    """A rank of a task as it was called in ``generation``."""

    generation: Generation
    global_rank: int


class VoteResult(_Record):
    """What all ranks agreed on before they stepped. Holding it allows, and obliges, to step.

    Attributes:
        iteration: The iteration that it commits.
        loss: Mean loss per token over the global batch.
        grad_norm: L2 norm of the whole gradient, before clipping.
        num_tokens: What sums of gradients are divided by: tokens, or micro-batches where the loss
            is a mean per micro-batch.
        is_park_wanted: Whether some rank was asked to park at the iteration's end.
    """

    iteration: Count
    loss: float
    grad_norm: float
    num_tokens: float
    is_park_wanted: bool


class HeldCopy(_Record):
    """An in-memory checkpoint of one shard that the rank's process holds, complete and verified.

    Attributes:
        tp_rank: Whose shard: position in the tensor-parallel group.
        pp_rank: Whose shard: pipeline stage.
        dp_rank: Whose shard of the optimizer state; 0 where that is not sharded.
        num_shards: Shards of the optimizer state at this (tp, pp); 1 where that is not sharded.
        iteration: The state is that after this iteration.
    """

    tp_rank: int
    pp_rank: int
    dp_rank: int
    num_shards: Count = 1
    iteration: Count


class Position(_Record):
    """Where a parked rank stands.

    Attributes:
        committed: Newest iteration whose update its parameters and optimizer state hold.
        has_state: Whether they hold exactly that; false until a new rank got its state.
        phase: Phase of iteration ``committed + 1``.
        counted: Micro-batches that its sums hold, each whole.
        is_torn: Whether it was interrupted inside a micro-batch: its sums can't be used.
        reduced: Buckets whose sum over all replicas it holds.
        is_spoilt: Whether what any rank holds as reduced may be wrong: it lacks a gradient of this
            one, or (NCCL) a peer broke off.
        num_buckets: How many buckets it has.
        vote: The newest vote whose result it got: on ``committed + 1``, or on ``committed``.
        shard: Which shard of the state it holds, and of how many; None where state is not sharded.
            It may be that of an older generation, if the newest one never formed.
        copies: In-memory checkpoints that it could hand out.
    """

    committed: Count
    has_state: bool
    phase: Phase = "idle"
    counted: tuple[Count, ...] = ()
    is_torn: bool = False
    reduced: tuple[str, ...] = ()
    is_spoilt: bool = False
    num_buckets: Count = 0
    vote: VoteResult | None = None
    shard: tuple[Count, Count] | None = None
    copies: tuple[HeldCopy, ...] = ()


class ReducedBucket(_Record):
    """A bucket that needs no reduction any more: rank ``holder`` has its sum over all replicas."""

    tp_rank: int
    pp_rank: int
    bucket: str
    holder: int


class ShardHolder(_Record):
    """Rank ``holder`` hands out shard (tp, pp, dp): its own state or an in-memory checkpoint."""

    tp_rank: int
    pp_rank: int
    dp_rank: int
    holder: int
    is_copy: bool = True


class Resume(_Record):
    """How a generation takes up training; the same for all its ranks. Ranks are those of it.

    Attributes:
        source: ``peer``: the ranks in ``state_from`` have the state in their processes and the
            others get it from them, and from ``shards``. ``memory``: every rank gets it from
            ``shards``. ``disk``: all load the newest usable checkpoint, and where there is none
            they begin from the seed.
        committed: The state is that after this iteration. With ``disk`` the ranks find out.
        state_from: Ranks whose processes have the state of ``committed``, or have already stepped
            with ``vote``.
        vote: The iteration ``committed + 1`` is committed with it: whoever has not stepped, steps.
        kept: Ranks that keep the sums they have accumulated for ``committed + 1``.
        shares: Micro-batches of ``committed + 1`` that each replica (by dp rank) has still to
            compute; empty where the iteration begins afresh, with the layout's own shares.
        reduced: Buckets of ``committed + 1`` that are copied instead of reduced.
        shards: Where each shard comes from. Unsharded state is named here only where it comes from
            in-memory checkpoints. Those are of the iteration that the generation begins with:
            ``vote.iteration`` where there is a vote, else ``committed``.
        num_shards: Shards of the optimizer state at each (tp, pp) of ``shards``.
        kept_copies: Iterations whose in-memory checkpoints are not overwritten until newer ones are
            complete, since together they outlast further losses.
        num_recomputed: Micro-batches that were computed before the fault and are computed again.
        num_saved: Micro-batches whose results were kept.
    """

    source: Literal["peer", "memory", "disk"] = "disk"
    committed: int = 0
    state_from: tuple[int, ...] = ()
    vote: VoteResult | None = None
    kept: tuple[int, ...] = ()
    shares: tuple[tuple[int, ...], ...] = ()
    reduced: tuple[ReducedBucket, ...] = ()
    shards: tuple[ShardHolder, ...] = ()
    num_shards: int = 1
    kept_copies: tuple[int, ...] = ()
    num_recomputed: int = 0
    num_saved: int = 0

    @property
    def level(self) -> int:
        """The newest iteration that is committed once all have done what it says.

        With ``disk`` that is not known.
        """
        return self.vote.iteration if self.vote else self.committed


def even_shares(num_micro_batches: int, dp: int) -> tuple[tuple[int, ...], ...]:
    """Return the micro-batches of each of ``dp`` replicas: contiguous blocks, larger ones first."""
    size, num_larger = divmod(num_micro_batches, dp)
    ends = [0]
    for replica in range(dp):
        ends.append(ends[-1] + size + (replica < num_larger))
    return tuple(tuple(range(ends[i], ends[i + 1])) for i in range(dp))
