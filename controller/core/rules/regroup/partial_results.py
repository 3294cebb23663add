"""The partial results of an interrupted iteration: which can be kept, and what is left to do.

A replica keeps its sums if all its ranks continue, none was interrupted inside a micro-batch, and
all counted the same ones. A bucket that was reduced on any rank holds the contribution of every
micro-batch, so it is copied. Micro-batches that no kept replica has counted are divided evenly over
the new replicas, because all of them begin at the same time.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from controller.core.rules.regroup.parked import Parked, Survivor, new_ranks
from nodeagent.protocol.regroup import ReducedBucket, Resume, even_shares
from profiles.layout import Layout


class PartialResults:
    """The partial results of iteration ``level + 1``.

    Args:
        parked: The parked generation.
        layout: Layout of the new generation.
        holders: Survivors with the state before the iteration.
        level: The iteration before it.
    """

    def __init__(
        self, parked: Parked, layout: Layout, holders: Sequence[Survivor], level: int
    ) -> None:
        self._parked = parked
        self._layout = layout
        self._holders = holders
        self._level = level
        self._all = frozenset(range(parked.num_micro_batches))
        self._shares = self._shares_before()
        self._members: dict[int, list[Survivor]] = {n: [] for n in range(parked.layout.dp)}
        for each in holders:
            self._members[each.replica].append(each)
        self._kept = {
            # All members counted the same micro-batches, else the replica would be dropped.
            replica: frozenset(members[0].position.counted)
            for replica, members in self._members.items()
            if self._why_dropped(replica) is None
        }
        self._reduced = self._reduced_buckets()

    def obstacle(self) -> str | None:
        """Return why nothing can be reused; None if something can."""
        for rank, position in sorted(self._parked.positions.items()):
            # One rank with a suspect gradient spoils every bucket that was reduced with it. The
            # positions of ranks that do not continue count too.
            if position.is_spoilt and position.committed == self._level:
                return f"gradients that were reduced with rank {rank} may be wrong"
        # The whole gradient exists, so the sums of replicas no longer matter.
        if self._is_all_reduced:
            return None
        counted = [each for kept in self._kept.values() for each in kept]
        # Keeping both would count the micro-batch twice, and the sums can't be taken apart.
        if len(counted) != len(set(counted)):
            return "two replicas have counted the same micro-batch"
        if counted:
            return None
        if not self.num_begun(self._members):
            return "the iteration had not begun"
        return "; ".join(filter(None, map(self._why_dropped, self._members)))

    def reuse(self) -> tuple[Resume, str]:
        """Return how the iteration is finished, and what that saves, in words.

        There must be no obstacle.
        """
        dropped = [replica for replica in self._members if replica not in self._kept]
        num_all = len(self._all)
        if self._is_all_reduced:
            shares: tuple[tuple[int, ...], ...] = ((),) * self._layout.dp
            num_saved, num_recomputed = num_all, 0
            reason = f"reuse: all buckets were reduced, {num_saved} micro-batches are kept"
        else:
            missing = self._all.difference(*self._kept.values())
            shares = self._deal(missing)
            num_saved = num_all - len(missing)
            # The rest of the missing micro-batches had not begun, so computing them is no loss.
            num_recomputed = min(self.num_begun(dropped), len(missing))
            reason = (
                f"reuse: {len(self._kept)} of {len(self._members)} replicas keep {num_saved}"
                f" micro-batches, {num_recomputed} are computed again"
            )
            if num_rest := len(missing) - num_recomputed:
                reason += f", {num_rest} had not begun"
            reason += "".join(f"; {why}" for why in map(self._why_dropped, dropped) if why)
        kept = [each for replica in self._kept for each in self._members[replica]]
        resume = Resume(
            source="peer",
            committed=self._level,
            state_from=new_ranks(self._holders),
            kept=new_ranks(kept),
            shares=shares,
            reduced=self._reduced,
            num_recomputed=num_recomputed,
            num_saved=num_saved,
        )
        return resume, reason

    def num_begun(self, replicas: Iterable[int]) -> int:
        """Return how many micro-batches these replicas of the parked generation had begun.

        A replica without a position counts as far as the farthest other replica.
        """
        begun: dict[int, int] = {}
        for rank, position in self._parked.positions.items():
            if position.committed == self._level:
                replica = self._parked.layout.dp_rank(rank)
                # A micro-batch in progress was begun and has to be computed again.
                count = len(set(position.counted)) + position.is_torn
                begun[replica] = max(count, begun.get(replica, 0))
        farthest = max(begun.values(), default=0)
        total = 0
        for replica in replicas:
            total += begun.get(replica, min(farthest, len(self._shares[replica])))
        return min(total, len(self._all))

    def _why_dropped(self, replica: int) -> str | None:
        """Return why a replica can't keep its sums; None if it can, and has some."""
        members = self._members[replica]
        size = self._layout.tp * self._layout.pp
        counted = {frozenset(each.position.counted) for each in members}
        # Sums are per stage. They make a contribution only if all stages of the replica stay
        # together.
        if len(members) < size or len({each.new_replica for each in members}) > 1:
            return f"replica {replica} has lost {_a_rank(size - len(members))}"
        if any(each.position.is_torn for each in members):
            return f"replica {replica} was interrupted inside a micro-batch"
        if len(counted) > 1:
            return f"the ranks of replica {replica} have counted different micro-batches"
        # Reports are not trusted: an unknown or repeated micro-batch would break the count.
        is_sound = all(
            self._all.issuperset(each.position.counted)
            and len(set(each.position.counted)) == len(each.position.counted)
            for each in members
        )
        return None if is_sound and counted != {frozenset()} else f"replica {replica} has no sums"

    def _shares_before(self) -> Sequence[Sequence[int]]:
        """Return, by replica, the micro-batches that it had to compute in this iteration."""
        resume, dp = self._parked.resume, self._parked.layout.dp
        # The shares of a resume hold for the first iteration after it. Later iterations are divided
        # evenly.
        is_resumed = resume and not resume.vote and resume.committed == self._level
        if resume and is_resumed and len(resume.shares) == dp:
            return resume.shares
        return even_shares(self._parked.num_micro_batches, dp)

    def _reduced_buckets(self) -> tuple[ReducedBucket, ...]:
        holder: dict[tuple[int, int, str], int] = {}
        for survivor in sorted(self._holders, key=lambda each: each.new_rank):
            for bucket in survivor.position.reduced:
                # Any holder will do, because a reduced bucket is the same on all ranks. The lowest
                # rank makes the choice deterministic.
                holder.setdefault((*survivor.cell, bucket), survivor.new_rank)
        return tuple(
            ReducedBucket(tp_rank=tp, pp_rank=pp, bucket=bucket, holder=rank)
            for (tp, pp, bucket), rank in sorted(holder.items())
        )

    @property
    def _is_all_reduced(self) -> bool:
        for tp in range(self._layout.tp):
            for pp in range(self._layout.pp):
                here = [each for each in self._holders if each.cell == (tp, pp)]
                # All ranks of a cell have the same buckets. A rank may report 0, so the largest
                # number counts.
                num_buckets = max((each.position.num_buckets for each in here), default=0)
                found = {
                    each.bucket
                    for each in self._reduced
                    if (each.tp_rank, each.pp_rank) == (tp, pp)
                }
                if not num_buckets or len(found) < num_buckets:
                    return False
        return True

    def _deal(self, missing: Collection[int]) -> tuple[tuple[int, ...], ...]:
        """Divide the missing micro-batches evenly; kept replicas keep theirs up to a fair share."""
        own = {
            self._members[replica][0].new_replica: [
                each for each in self._shares[replica] if each in missing
            ]
            for replica in self._kept
        }
        replicas = range(self._layout.dp)
        # A replica that keeps its own micro-batches beyond a fair share would hold up all others.
        fair = len(missing) // self._layout.dp
        shares = {replica: own.get(replica, [])[:fair] for replica in replicas}
        dealt = {each for share in shares.values() for each in share}

        def claim(each: int) -> Callable[[int], tuple[int, bool, int]]:
            # The replica with the fewest micro-batches, then one that had this micro-batch before,
            # then the lowest number.
            return lambda replica: (
                len(shares[replica]),
                each not in own.get(replica, ()),
                replica,
            )

        for each in sorted(set(missing) - dealt):
            shares[min(replicas, key=claim(each))].append(each)
        return tuple(tuple(sorted(shares[replica])) for replica in replicas)


def _a_rank(num_lost: int) -> str:
    return "its place" if num_lost <= 0 else "a rank" if num_lost == 1 else f"{num_lost} ranks"
