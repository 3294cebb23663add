"""Taking up training in a new generation: state and partial results come from where they are.

Every rank got the same ``Resume`` and follows it in the same order, so that the collectives match:

1. Whoever holds the result of the vote, or is told it, steps.
2. Shards that come from in-memory checkpoints, or go to another rank, go there (``shards``).
3. Whoever lacks the state gets it from the first rank at its (tp, pp) that has it; with a sharded
   optimizer all gather the parameters from the shards.
4. Sums are kept or set to zero, and reduced buckets are copied from their holders.

What is left of the iteration is returned. A fault in the middle leaves a ledger that is still true:
the generation after this one decides anew.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from nodeagent.protocol.regroup import Resume, StateSource
from nodeagent.rank.groups.parallel_groups import data_parallel_group
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.iteration_phases import Iterations
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.state.held_copies import HeldCopies
from nodeagent.rank.state.rank_state import TrainingState, broadcast_state
from nodeagent.rank.state.shard_distribution import distribute_shards


class ResumeError(Exception):
    """What the rank is told to resume does not match what it has."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """What is left to do.

    Attributes:
        source: Where this rank's state came from.
        micro_batches: Micro-batches of the iteration that this rank's replica has to compute; None
            begins it afresh.
    """

    source: StateSource
    micro_batches: Sequence[int] | None


def resume_from_peers(
    resume: Resume,
    place: Place,
    iterations: Iterations,
    ledger: Ledger,
    state: TrainingState,
    copies: HeldCopies,
) -> Resumed:
    """Carry out a ``Resume`` from ``peer`` or ``memory``. All ranks of the generation must call it.

    Raises:
        ResumeError: The directive does not fit this rank.
        RuntimeError: A peer was lost meanwhile.
    """
    has_state = place.global_rank in resume.state_from
    level = resume.level
    if has_state:
        _advance_to(level, resume, iterations, ledger)
    else:
        ledger.has_state = False
    with _keeping_shard(place, state, ledger) as own:
        got_copy = distribute_shards(resume, level, place, state, copies, own)
        if state.sharded is None:
            _broadcast_missing_state(resume, place, state)
        else:
            iterations.share_parameters()
        iterations.check_complete()
    if has_state:
        ledger.has_state = True
    else:
        ledger.adopt(level)
    copies.forget(newer_than=level)
    source: StateSource = "own" if has_state else "memory" if got_copy else "peer"
    if resume.vote is not None or not resume.shares:
        return Resumed(source, None)
    _gather_partial_results(resume, place, iterations, ledger)
    return Resumed(source, resume.shares[place.dp_rank])


@contextlib.contextmanager
def _keeping_shard(
    place: Place, state: TrainingState, ledger: Ledger
) -> Iterator[torch.Tensor | None]:
    """Let a rank that is to keep another shard go back to its own if a fault comes between.

    Yields:
        The shard that it had, packed; None if it keeps that, or had none.
    """
    before = state.partition
    if state.sharded is None or before == (place.dp_rank, place.layout.dp):
        yield None
        return
    own = state.packed() if ledger.has_state else None
    # From here on what this rank has is in ``own`` alone.
    ledger.has_state = False
    state.enter(place)
    try:
        yield own
    except Exception:
        if own is not None:
            state.sharded.enter(*before)
            state.take(own, *before)
            ledger.has_state = True
        raise


def _advance_to(level: int, resume: Resume, iterations: Iterations, ledger: Ledger) -> None:
    if ledger.committed == level - 1 and resume.vote is not None:
        iterations.step(resume.vote)
    if not ledger.has_state or ledger.committed != level:
        raise ResumeError(f"this rank has committed iteration {ledger.committed}, not {level}")


def _broadcast_missing_state(resume: Resume, place: Place, state: TrainingState) -> None:
    """Copy the state inside each data-parallel group where one of its ranks lacks it."""
    peers = place.ranks_at(place.tp_rank, place.pp_rank)
    sources = [rank for rank in peers if rank in resume.state_from]
    if not sources and _is_restored(resume, place):
        # The first of them got it from a copy.
        sources = peers[:1]
    if not sources:
        raise ResumeError(f"no rank has the state of tp {place.tp_rank} pp {place.pp_rank}")
    if len(sources) < len(peers):
        is_needed = place.global_rank not in sources
        broadcast_state(state, data_parallel_group(), sources[0], is_needed=is_needed)


def _is_restored(resume: Resume, place: Place) -> bool:
    return any(
        (shard.tp_rank, shard.pp_rank) == (place.tp_rank, place.pp_rank) for shard in resume.shards
    )


def _gather_partial_results(
    resume: Resume, place: Place, iterations: Iterations, ledger: Ledger
) -> None:
    if ledger.phase == "idle":
        iterations.begin()
    elif place.global_rank not in resume.kept:
        iterations.forget_sums()
    ledger.phase = "accumulate"
    mine = [
        bucket
        for bucket in resume.reduced
        if (bucket.tp_rank, bucket.pp_rank) == (place.tp_rank, place.pp_rank)
    ]
    unknown = ledger.reduced - {bucket.bucket for bucket in mine}
    if unknown:
        # Where all is reduced the sums are gone: reducing such a bucket again would be wrong.
        raise ResumeError(
            f"holds {len(unknown)} reduced bucket(s) that the others were not told of"
        )
    for bucket in sorted(mine, key=lambda one: one.bucket):
        iterations.reduction.share(bucket.bucket, bucket.holder)
