"""Resumes training in a new generation, from the state and the partial results of its ranks.

Every rank has the same ``Resume`` and follows it in the same order, so that the collectives match:

1. A rank that holds or receives the result of the vote steps.
2. Shards move to their new ranks, from in-memory checkpoints or from the rank that has them
   (``shard_distribution``).
3. A rank without state gets it from the first rank at its (tp, pp) that has it. With a sharded
   optimizer all ranks gather the parameters from the shards.
4. Sums are kept or set to zero, and reduced buckets are copied from the ranks that hold them.

The rest of the iteration is returned as work to do. A fault in the middle leaves a ledger that is
still true, and the next generation gets a new ``Resume``.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.distributed import Work

from nodeagent.protocol.regroup import Resume, StateSource
from nodeagent.rank.groups.halting import wait_unless_halted
from nodeagent.rank.groups.parallel_groups import data_parallel_group
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.iteration_phases import Iterations
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.state.held_copies import HeldCopies
from nodeagent.rank.state.rank_state import TrainingState, broadcast_state
from nodeagent.rank.state.shard_distribution import distribute_shards


class ResumeError(Exception):
    """The ``Resume`` of the controller does not match the state of this rank."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The rest of the interrupted iteration.

    Attributes:
        source: Where this rank's state came from.
        micro_batches: Micro-batches that this rank's replica still has to compute. With None the
            iteration begins from its first micro-batch.
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
    wait = functools.partial(wait_unless_halted, is_halted=iterations.is_halted)
    with _keeping_shard(place, state, ledger) as own:
        got_copy = distribute_shards(resume, place, state, copies, wait, own)
        if state.sharded is None:
            _broadcast_missing_state(resume, place, state, wait)
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
    """Give a rank its old shard back if a fault interrupts the move to a new shard.

    Yields:
        The old shard, packed; None if the rank had none or keeps it.
    """
    before = state.partition
    if state.sharded is None or before == (place.dp_rank, place.layout.dp):
        yield None
        return
    own = state.packed() if ledger.has_state else None
    # ``enter`` empties the state. From here on the old shard exists in ``own`` only.
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


def _broadcast_missing_state(
    resume: Resume, place: Place, state: TrainingState, wait: Callable[[Work], object]
) -> None:
    """Copy the state inside each data-parallel group that has a rank without state."""
    peers = place.ranks_at(place.tp_rank, place.pp_rank)
    sources = [rank for rank in peers if rank in resume.state_from]
    if not sources and _is_restored(resume, place):
        # The first of them got it from a copy.
        sources = peers[:1]
    if not sources:
        raise ResumeError(f"no rank has the state of tp {place.tp_rank} pp {place.pp_rank}")
    if len(sources) < len(peers):
        is_needed = place.global_rank not in sources
        broadcast_state(state, data_parallel_group(), sources[0], wait, is_needed=is_needed)


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
        # Once all buckets are reduced the own sums are gone, so a second reduction would be wrong.
        raise ResumeError(
            f"this rank holds {len(unknown)} reduced bucket(s) that the directive does not name"
        )
    for bucket in sorted(mine, key=lambda one: one.bucket):
        iterations.reduction.share(bucket.bucket, bucket.holder)
