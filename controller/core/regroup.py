"""How a task's next generation takes up training: a pure decision over where its ranks stand.

Ranks that were parked report a ``Position`` each. From these, and from which of them go on as which
rank of the new generation, follows one ``Resume`` for all of its ranks. The first rung that fits:

1. *Commit*: some survivor stepped to iteration i, or holds the result of the vote on i. All ranks
   had given their gradients to that vote, so whoever has not stepped can, and must.
2. *Reuse*: iteration i is finished from its partial results. A replica keeps its sums if all its
   ranks go on, none was interrupted inside a micro-batch, and all have counted the same ones. A
   bucket that was reduced anywhere holds everybody's contribution and is copied. What no kept
   replica has counted is dealt over the new replicas, evenly, because all begin at the same time.
3. *Re-run*: everybody keeps the state, and iteration i begins afresh.
4. *Restore*: some shard of the state has no living copy. In-memory checkpoints serve where they are
   a cut complete for one iteration, else the disk. Nothing of the iteration is reused.

The function is total: whatever the positions say, each micro-batch of the iteration is counted
exactly once, and what is handed out is handed out by a rank that said it has it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from controller.core.parked import Parked, Shard, Survivor, new_ranks, survivors_of
from controller.core.partial_results import PartialResults
from nodeagent.protocol.regroup import CopyHolder, Position, Resume, VoteResult
from profiles.layout import Layout

Rung = Literal["commit", "reuse", "re-run", "restore"]

Source = Literal["peer", "memory", "disk"]

_HAS_VOTED: Final = frozenset({"vote", "stepping"})
"""Phases in which a rank holds the whole gradient: it can step if the vote's result is known."""


@dataclass(frozen=True, slots=True)
class Decision:
    """How to go on, by which rung, and why in words for operators."""

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
) -> Decision:
    """Decide how the generation after ``parked`` begins.

    Args:
        parked: The generation that was parked.
        layout: Layout of the new generation.
        continues: New global rank by old one, of the processes that go on. One that goes to
            another (tp, pp) goes on as a process, but what it holds is of no use there.
        excluded: Sources of the state that were tried and led to no committed iteration. The disk
            is the last resort and is never excluded.
        allows_reuse: False skips the second rung.
    """
    survivors = survivors_of(parked, layout, continues)
    votes = known_votes(parked)
    shards = _shards(parked, layout)
    for level in _levels(survivors, votes) if "peer" not in excluded else ():
        holders = _holders(survivors, level, votes.get(level))
        if {survivor.shard for survivor in holders} >= shards:
            if any(_is_other_level(survivor, level) for survivor in survivors):
                return _commit(survivors, holders, level, votes.get(level))
            return _finish(parked, layout, holders, level, allows_reuse=allows_reuse)
    cut = None
    if "memory" not in excluded and (parked.layout.tp, parked.layout.pp) == (layout.tp, layout.pp):
        hands = {
            new: parked.positions[old] for old, new in continues.items() if old in parked.positions
        }
        cut = _complete_cut(hands, shards)
    return _restore(parked, cut, _why_no_peer(survivors, shards))


def _shards(parked: Parked, layout: Layout) -> set[Shard]:
    num_parts = parked.layout.dp if parked.is_sharded else 1
    return {
        (tp, pp, dp)
        for tp in range(layout.tp)
        for pp in range(layout.pp)
        for dp in range(num_parts)
    }


def known_votes(parked: Parked) -> dict[int, VoteResult]:
    """Return the known results by iteration; a rank need not go on for its word to count."""
    known = [position.vote for position in parked.positions.values()]
    known.append(parked.resume.vote if parked.resume else None)
    return {vote.iteration: vote for vote in known if vote}


def _levels(survivors: Iterable[Survivor], votes: Collection[int]) -> list[int]:
    """Return the iterations whose state might be had, the newest first."""
    held = {each.position.committed for each in survivors if each.position.has_state}
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


def _is_other_level(survivor: Survivor, level: int) -> bool:
    return survivor.position.has_state and survivor.position.committed != level


def _commit(
    survivors: Sequence[Survivor],
    holders: Sequence[Survivor],
    level: int,
    vote: VoteResult | None,
) -> Decision:
    num_stepping = sum(survivor.position.committed == level - 1 for survivor in holders)
    num_copying = len(survivors) - len(holders)
    steps = f"{num_stepping} of {len(survivors)} survivors step" if num_stepping else ""
    copies = f"{num_copying} get a copy of the state" if num_copying else ""
    resume = Resume(
        source="peer",
        committed=level - 1 if num_stepping else level,
        state_from=new_ranks(holders),
        vote=vote if num_stepping else None,
    )
    what = ", ".join(filter(None, (steps, copies)))
    return Decision("commit", resume, f"commit: iteration {level} was voted; {what}")


def _finish(
    parked: Parked,
    layout: Layout,
    holders: Sequence[Survivor],
    level: int,
    *,
    allows_reuse: bool,
) -> Decision:
    """Finish iteration ``level + 1``, from partial results where that can be."""
    iteration = PartialResults(parked, layout, holders, level)
    obstacle = iteration.obstacle() if allows_reuse else "partial results were tried before"
    if obstacle is None:
        return Decision("reuse", *iteration.reuse())
    resume = Resume(
        source="peer",
        committed=level,
        state_from=new_ranks(holders),
        num_recomputed=iteration.num_begun(range(parked.layout.dp)),
    )
    return Decision("re-run", resume, f"re-run of iteration {level + 1}: {obstacle}")


def _restore(
    parked: Parked, cut: tuple[int, tuple[CopyHolder, ...]] | None, reason: str
) -> Decision:
    """Take the state from in-memory checkpoints, or from the disk."""
    level = max((each.committed for each in parked.positions.values()), default=0)
    iteration = PartialResults(parked, parked.layout, (), level)
    num_recomputed = iteration.num_begun(range(parked.layout.dp))
    if cut is None:
        resume = Resume(source="disk", num_recomputed=num_recomputed)
        return Decision("restore", resume, f"from disk: {reason}, and no copies in memory serve")
    newest, copies = cut
    resume = Resume(source="memory", committed=newest, copies=copies, num_recomputed=num_recomputed)
    text = f"from memory: {reason}; the copies of iteration {newest} are complete"
    return Decision("restore", resume, text)


def _why_no_peer(survivors: Sequence[Survivor], shards: Collection[Shard]) -> str:
    if not survivors:
        return "no rank goes on"
    covered = {each.shard for each in survivors if each.position.has_state}
    missing = sorted(set(shards) - covered)
    if not missing:
        return "the survivors hold no common iteration"
    tp, pp, _ = missing[0]
    return f"no survivor has the state of tp rank {tp}, stage {pp}"


def _complete_cut(
    positions: Mapping[int, Position], shards: Collection[Shard]
) -> tuple[int, tuple[CopyHolder, ...]] | None:
    """Return the newest iteration of which every shard has a copy, and who hands each out.

    Copies lie in the memory of nodes, so ranks of any place can hand them out; ``positions`` are by
    new rank.
    """
    holder: dict[int, dict[Shard, int]] = {}
    for rank, position in sorted(positions.items()):
        for copy in position.copies:
            shard = copy.tp_rank, copy.pp_rank, copy.dp_rank
            if shard in shards:
                holder.setdefault(copy.iteration, {}).setdefault(shard, rank)
    complete = [iteration for iteration, found in holder.items() if len(found) == len(shards)]
    if not complete:
        return None
    newest = max(complete)
    copies = (
        CopyHolder(tp_rank=tp, pp_rank=pp, dp_rank=dp, holder=rank)
        for (tp, pp, dp), rank in sorted(holder[newest].items())
    )
    return newest, tuple(copies)
