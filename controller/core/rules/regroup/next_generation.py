"""How the next generation of a task continues: a pure decision from the positions of its ranks.

Each parked rank reports a ``Position``. From the positions, and from the ranks that continue, this
module derives one ``Resume`` for all ranks of the new generation. The first possible way is chosen:

1. *Commit*: a survivor has stepped to iteration i, or has the result of the vote on i. All ranks
   gave their gradients to that vote. So the ranks that have not stepped yet can step, and must.
2. *Reuse*: iteration i is finished from its partial results. A replica keeps its sums if all its
   ranks continue, none was interrupted inside a micro-batch, and all counted the same ones. A
   bucket that was reduced on any rank holds the contribution of all ranks, so it is copied. The
   remaining micro-batches are divided evenly over the new replicas, because all of them begin at
   the same time.
3. *Re-run*: all ranks keep the state, and iteration i starts again.
4. *Restore*: no survivor has some shard of the state. In-memory checkpoints are used if they are
   complete for one iteration, else the checkpoint on disk. Nothing of the iteration is reused.

In the first three ways, a shard that no survivor has may come from an in-memory checkpoint of the
same iteration.

The function is total. Whatever the positions say, each micro-batch of the iteration is counted
exactly once, and no rank is asked for data that it did not report.
"""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from controller.core.rules.regroup.complete_copies import (
    CompleteCopies,
    HoldersByLevel,
    all_shards,
    copies_by_level,
    each_shard,
    iterations_to_keep,
    may_be_complete,
    newest_complete_copies,
)
from controller.core.rules.regroup.parked import Parked, Shard, Survivor, new_ranks, survivors_of
from controller.core.rules.regroup.partial_results import PartialResults
from nodeagent.protocol.regroup import Resume, ShardHolder, VoteResult
from profiles.layout import Layout

Rung = Literal["commit", "reuse", "re-run", "restore"]

Source = Literal["peer", "memory", "disk"]

_TRIED: Final = "partial results were tried before"

_HAS_VOTED: Final = frozenset({"vote", "stepping"})
"""Phases in which a rank holds the whole gradient. It can step once the vote's result is known."""


@dataclass(frozen=True, slots=True)
class ResumeDecision:
    """How the generation continues, in which way, and why (for operators)."""

    rung: Rung
    resume: Resume
    reason: str


def decide(
    parked: Parked,
    layout: Layout,
    continues: Mapping[int, int],
    *,
    excluded: Collection[Source] = (),
    allows_reuse: bool = True,
    disk_iteration: int = 0,
) -> ResumeDecision:
    """Return how the generation after ``parked`` begins: in the first way that is possible.

    Args:
        parked: The generation that was parked.
        layout: Layout of the new generation.
        continues: New global rank by old one, of the processes that continue. A process that gets
            another (tp, pp) continues, but its state can't be used there.
        excluded: Sources of the state that were tried and led to no committed iteration. The disk
            is the last resort and is never excluded.
        allows_reuse: Whether partial results may be reused.
        disk_iteration: Iteration of the newest checkpoint on disk. Older copies in memory are
            ignored.
    """
    positions = {
        new: parked.positions[old] for old, new in continues.items() if old in parked.positions
    }
    copies = copies_by_level(positions) if _is_same_model(parked.layout, layout) else {}
    # Excluded copies are no source now, but ``iterations_to_keep`` below still counts them.
    allowed = {} if "memory" in excluded else copies
    survivors = survivors_of(parked, layout, continues)
    decision = None
    if "peer" not in excluded:
        decision = _from_survivors(parked, layout, survivors, allowed, allows_reuse=allows_reuse)
    if decision is None:
        decision = _restore(
            parked, layout, survivors, newest_complete_copies(allowed, layout), disk_iteration
        )
    resume = decision.resume
    # The iteration that a start from disk leads to is not known here, so no copies can be chosen.
    if resume.source == "disk" or not copies:
        return decision
    kept = iterations_to_keep(positions, layout, resume.level)
    return replace(decision, resume=resume.model_copy(update={"kept_copies": kept}))


def _from_survivors(
    parked: Parked,
    layout: Layout,
    survivors: Sequence[Survivor],
    copies: HoldersByLevel,
    *,
    allows_reuse: bool,
) -> ResumeDecision | None:
    """Continue from the state of survivors, plus copies of the same iteration for missing shards.

    Returns:
        None if no iteration has every shard.
    """
    votes = known_votes(parked)
    # Newest iteration first: it loses the least work. Of one iteration, the division into shards
    # that most survivors have.
    for level, num_shards in itertools.product(_levels(survivors, votes), _divisions(survivors)):
        holders = [
            survivor
            for survivor in _holders(survivors, level, votes.get(level))
            if survivor.num_shards == num_shards
        ]
        holder_of = copies.get((level, num_shards), {})
        if not may_be_complete(layout, num_shards, len(holders) + len(holder_of)):
            continue
        missing = all_shards(layout, num_shards) - {survivor.shard for survivor in holders}
        if holders and missing <= set(holder_of):
            sources = _Sources(parked, holders, {shard: holder_of[shard] for shard in missing})
            # Some survivors have not stepped to this iteration, but it was voted. So the whole
            # generation commits it.
            if any(_is_behind(survivor, level) for survivor in survivors):
                return _commit(survivors, sources, level, votes.get(level))
            return _finish(parked, layout, sources, level, allows_reuse=allows_reuse)
    return None


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of an iteration's state: survivors, and copies for shards that survivors lack."""

    parked: Parked
    holders: list[Survivor]
    copies: dict[Shard, int]

    def named_in(self, resume: Resume) -> Resume:
        """Return ``resume`` with the sources of the state."""
        holder_of = dict(self.copies)
        if self.parked.is_sharded:
            # Reversed, so that of several holders the lowest new rank hands the shard out.
            holder_of |= {survivor.shard: survivor.new_rank for survivor in reversed(self.holders)}
        return resume.model_copy(
            update={
                "source": "peer",
                "state_from": new_ranks(self.holders),
                "shards": _shard_holders(holder_of, self.copies),
                "num_shards": self.holders[0].num_shards,
            }
        )


def _shard_holders(
    holder_of: Mapping[Shard, int], copies: Collection[Shard]
) -> tuple[ShardHolder, ...]:
    return tuple(
        ShardHolder(
            tp_rank=shard[0],
            pp_rank=shard[1],
            dp_rank=shard[2],
            holder=holder,
            is_copy=shard in copies,
        )
        for shard, holder in sorted(holder_of.items())
    )


def _is_same_model(old: Layout, new: Layout) -> bool:
    return (old.tp, old.pp) == (new.tp, new.pp)


def _divisions(survivors: Iterable[Survivor]) -> list[int]:
    """Return the numbers of shards that survivors report, the most frequent first.

    There may be two if a generation with another number of replicas formed on some ranks only.
    """
    counts = Counter(survivor.num_shards for survivor in survivors if survivor.position.has_state)
    return [number for number, _ in counts.most_common()]


def known_votes(parked: Parked) -> dict[int, VoteResult]:
    """Return the known results of votes by iteration.

    The result of a rank that does not continue counts too.
    """
    known = [position.vote for position in parked.positions.values()]
    # A generation that itself resumed at a vote may have lost every rank that saw the result.
    known.append(parked.resume.vote if parked.resume else None)
    return {vote.iteration: vote for vote in known if vote}


def _levels(survivors: Iterable[Survivor], votes: Collection[int]) -> list[int]:
    """Return the iterations whose state may be available, the newest first."""
    held = {each.position.committed for each in survivors if each.position.has_state}
    # A rank at i - 1 that knows the vote on i can step, so state i is available without being held.
    return sorted(held | {level for level in votes if level - 1 in held}, reverse=True)


def _holders(survivors: Iterable[Survivor], level: int, vote: VoteResult | None) -> list[Survivor]:
    """Return the survivors that have the state after ``level``, or can step to it."""
    return [
        survivor
        for survivor in survivors
        if survivor.position.has_state
        and (
            survivor.position.committed == level
            or (vote is not None and _can_step(survivor, level))
        )
    ]


def _can_step(survivor: Survivor, level: int) -> bool:
    position = survivor.position
    return position.committed == level - 1 and position.phase in _HAS_VOTED


def _is_behind(survivor: Survivor, level: int) -> bool:
    return survivor.position.has_state and survivor.position.committed < level


def _commit(
    survivors: Sequence[Survivor],
    sources: _Sources,
    level: int,
    vote: VoteResult | None,
) -> ResumeDecision:
    """Let the ranks that can step do so; the others get a copy of the state."""
    num_stepping = sum(each.position.committed == level - 1 for each in sources.holders)
    num_copying = len(survivors) - len(sources.holders)
    steps = f"{num_stepping} of {len(survivors)} survivors step" if num_stepping else ""
    copies = f"{num_copying} get a copy of the state" if num_copying else ""
    resume = Resume(
        # If a rank has to step, all ranks begin before the step. A rank that has stepped already
        # skips it.
        committed=level - 1 if num_stepping else level,
        vote=vote if num_stepping else None,
    )
    actions = ", ".join(filter(None, (steps, copies)))
    resume = sources.named_in(resume)
    return ResumeDecision("commit", resume, f"commit: iteration {level} was voted; {actions}")


def _finish(
    parked: Parked,
    layout: Layout,
    sources: _Sources,
    level: int,
    *,
    allows_reuse: bool,
) -> ResumeDecision:
    """Finish iteration ``level + 1``, from partial results if possible."""
    if not _has_partial_results(parked):
        resume = sources.named_in(Resume(committed=level))
        why = "the iteration had not begun" if allows_reuse else _TRIED
        return ResumeDecision("re-run", resume, f"re-run of iteration {level + 1}: {why}")
    iteration = PartialResults(parked, layout, sources.holders, level)
    obstacle = iteration.obstacle() if allows_reuse else _TRIED
    if obstacle is None:
        resume, reason = iteration.reuse()
        return ResumeDecision("reuse", sources.named_in(resume), reason)
    num_recomputed = iteration.num_begun(range(parked.layout.dp))
    resume = sources.named_in(Resume(committed=level, num_recomputed=num_recomputed))
    return ResumeDecision("re-run", resume, f"re-run of iteration {level + 1}: {obstacle}")


def _has_partial_results(parked: Parked) -> bool:
    """Return whether any rank has begun an iteration."""
    return any(
        position.counted or position.reduced or position.is_torn or position.is_spoilt
        for position in parked.positions.values()
    )


def _restore(
    parked: Parked,
    layout: Layout,
    survivors: Sequence[Survivor],
    complete: CompleteCopies | None,
    disk_iteration: int,
) -> ResumeDecision:
    """Take the state from in-memory checkpoints, or from the disk if that is newer."""
    reason = "tp or pp change"
    if _is_same_model(parked.layout, layout):
        reason = _why_no_peer(survivors, layout)
    # Only for the figure shown to operators: how many micro-batches of the interrupted iteration
    # are lost.
    level = max((each.committed for each in parked.positions.values()), default=0)
    iteration = PartialResults(parked, parked.layout, (), level)
    num_recomputed = iteration.num_begun(range(parked.layout.dp))
    # On a tie the copies in memory win: they need no disk.
    if complete is None or complete.iteration < disk_iteration:
        resume = Resume(source="disk", num_recomputed=num_recomputed)
        return ResumeDecision(
            "restore",
            resume,
            f"from disk: {reason}, and memory holds no complete copies that are new enough",
        )
    resume = Resume(
        source="memory",
        committed=complete.iteration,
        shards=_shard_holders(complete.holder_of, complete.holder_of),
        num_shards=complete.num_shards,
        num_recomputed=num_recomputed,
    )
    text = f"from memory: {reason}; the copies of iteration {complete.iteration} are complete"
    return ResumeDecision("restore", resume, text)


def _why_no_peer(survivors: Sequence[Survivor], layout: Layout) -> str:
    if not survivors:
        return "no rank continues"
    num_shards = next(iter(_divisions(survivors)), 1)
    covered = {each.shard for each in survivors if each.position.has_state}
    missing = (shard for shard in each_shard(layout, num_shards) if shard not in covered)
    if (first := next(missing, None)) is None:
        return "the survivors hold no common iteration"
    tp, pp, _ = first
    return f"no survivor has the state of tp rank {tp}, stage {pp}"
