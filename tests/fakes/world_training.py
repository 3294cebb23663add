"""The ranks of the modelled cluster while they train: phases, ledgers and regroups.

A ``Run`` is one generation. It commits iterations until something interrupts it; then every rank is
frozen where a real one could have been: whole replicas at the end of a micro-batch, those with a
broken rank inside one, some buckets reduced, some results of the vote known, some steps done. The
next generation takes its ``Resume`` at its word, and any step that a real rank could not do, or
that would count a micro-batch twice, fails the test.
"""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.regroup import (
    HeldCopy,
    Phase,
    Position,
    Resume,
    StateSource,
    VoteResult,
    even_shares,
)
from profiles.layout import Layout

ITERATION_S = 1.0
_BUCKETS = ("first", "second", "third")
_ACCUMULATED, _REDUCED = 0.7, 0.85
"""Fractions of an iteration at which its accumulation, and its reduction, are over."""


def loss_of(iteration: int) -> float:
    """Return the loss that every run of an iteration gives."""
    return 5.5 - iteration / 100


def _vote_on(iteration: int) -> VoteResult:
    return VoteResult(
        iteration=iteration,
        loss=loss_of(iteration),
        grad_norm=1.0,
        num_tokens=768,
        is_park_wanted=False,
    )


@dataclass(eq=False)
class FakeRank:
    """A rank process of the make-believe cluster, with the ledger that outlives generations."""

    task: TaskId
    generation: Generation
    global_rank: int
    worker: int
    pid: int
    iteration: int = 0
    has_state: bool = False
    phase: Phase = "idle"
    counted: set[int] = field(default_factory=set)
    is_torn: bool = False
    reduced: set[str] = field(default_factory=set)
    vote: VoteResult | None = None
    copies: tuple[HeldCopy, ...] = ()
    shard: tuple[int, int] | None = None
    """Which of how many, where the state is sharded."""
    is_alive: bool = True
    is_parked: bool = False
    """It waits for the controller, whether it was halted or has raised an exception."""
    is_done: bool = False
    is_faulty: bool = False
    """It raised an exception of its own, or was found to be what others wait for."""
    has_told: bool = False
    """The controller knows where it has parked."""

    @property
    def position(self) -> Position:
        """Where it stands."""
        return Position(
            committed=self.iteration,
            has_state=self.has_state,
            phase=self.phase,
            counted=tuple(sorted(self.counted)),
            is_torn=self.is_torn,
            reduced=tuple(sorted(self.reduced)),
            num_buckets=len(_BUCKETS) if self.has_state else 0,
            vote=self.vote,
            copies=self.copies,
            shard=self.shard if self.has_state else None,
        )

    def step(self, iteration: int) -> None:
        """Commit an iteration."""
        assert self.has_state
        assert self.iteration == iteration - 1
        self.iteration, self.vote = iteration, _vote_on(iteration)
        self.forget()

    def forget(self) -> None:
        """Begin the next iteration, or the same one afresh."""
        self.phase, self.is_torn = "idle", False
        self.counted.clear()
        self.reduced.clear()

    def adopt(self, iteration: int) -> None:
        """Take over the state after an iteration."""
        self.forget()
        self.iteration, self.has_state, self.vote = iteration, True, None


@dataclass(eq=False)
class Run:
    """One generation of a task."""

    task: TaskId
    generation: Generation
    layout: Layout
    resume: Resume
    num_micro_batches: int
    ranks: dict[int, FakeRank] = field(default_factory=dict)
    holders: tuple[int | None, ...] = ()
    """By rank, who holds the copies of its state."""
    is_sharded: bool = False
    is_formed: bool = False
    is_stalled: bool = False
    wants_park: bool = False
    completes_copies: bool = False
    """Whether the pause waits for copies that are on their way."""
    has_copies_under_way: bool = False
    shares: tuple[tuple[int, ...], ...] = ()
    begun_at: float = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every rank is there and none waits for the controller."""
        return len(self.ranks) == self.layout.num_workers and all(
            rank.is_alive and not rank.is_parked for rank in self.ranks.values()
        )

    @property
    def committed(self) -> int:
        """Newest iteration of its ranks."""
        return max(rank.iteration for rank in self.ranks.values())

    def form(self, checkpoint: int) -> dict[int, StateSource]:
        """Take up training as the resume says; return where each rank got its state from."""
        sources = self._restore(checkpoint)
        self.is_formed = True
        for number, rank in self.ranks.items():
            rank.shard = self._shard(number) if self.is_sharded else None
            if not self.resume.shares or number not in self.resume.kept:
                rank.counted.clear()
                rank.is_torn = False
        if self.resume.shares:
            self._take_partial_results()
        else:
            for rank in self.ranks.values():
                rank.forget()
            self.shares = even_shares(self.num_micro_batches, self.layout.dp)
        return sources

    def _restore(self, checkpoint: int) -> dict[int, StateSource]:
        resume = self.resume
        if self.is_sharded and resume.source != "disk":
            self._check_shards()
        if resume.source == "peer":
            return self._copy_from_peers()
        if resume.source == "memory":
            shards = {(copy.tp_rank, copy.pp_rank) for copy in resume.shards}
            assert len(shards) == self.layout.tp * self.layout.pp, "an incomplete cut"
            for copy in resume.shards:
                held = {(c.tp_rank, c.pp_rank, c.iteration) for c in self.ranks[copy.holder].copies}
                assert (copy.tp_rank, copy.pp_rank, resume.committed) in held
        level = resume.committed if resume.source == "memory" else checkpoint
        for rank in self.ranks.values():
            rank.adopt(level)
        source: StateSource = "memory" if resume.source == "memory" else "disk"
        return dict.fromkeys(self.ranks, source if level else "seed")

    def _check_shards(self) -> None:
        """Every shard is handed out by a rank that has it, of the iteration that all go on from."""
        resume = self.resume
        level = resume.level
        handed = {(one.tp_rank, one.pp_rank, one.dp_rank) for one in resume.shards}
        assert len(handed) == self.layout.tp * self.layout.pp * resume.num_shards
        for one in resume.shards:
            holder = self.ranks[one.holder]
            key = (one.tp_rank, one.pp_rank, one.dp_rank, resume.num_shards)
            if one.is_copy:
                assert (*key, level) in {
                    (c.tp_rank, c.pp_rank, c.dp_rank, c.num_shards, c.iteration)
                    for c in holder.copies
                }, "it has no such copy"
            else:
                assert one.holder in resume.state_from
                assert holder.shard == key[2:], "its shard is another"

    def _shard(self, number: int) -> tuple[int, int]:
        return self.layout.dp_rank(number), self.layout.dp

    def _copy_from_peers(self) -> dict[int, StateSource]:
        resume, sources = self.resume, dict[int, StateSource]()
        level = resume.level
        for number in resume.state_from:
            rank = self.ranks[number]
            assert rank.has_state, f"rank {number} has no state to give"
            if rank.iteration < level:
                assert rank.phase in {"vote", "stepping"}, "it has no gradient to step with"
                rank.step(level)
            assert rank.iteration == level
            sources[number] = "own"
        for number, rank in self.ranks.items():
            if number not in sources:
                has_peer = any(self._cell(number) == self._cell(one) for one in resume.state_from)
                has_copy = self._cell(number) in {
                    (one.tp_rank, one.pp_rank) for one in resume.shards
                }
                assert has_peer or has_copy
                rank.adopt(level)
                sources[number] = "peer" if has_peer else "memory"
        return sources

    def _cell(self, number: int) -> tuple[int, int]:
        return self.layout.tp_rank(number), self.layout.pp_rank(number)

    def _take_partial_results(self) -> None:
        self.shares = self.resume.shares
        copied = set()
        for bucket in self.resume.reduced:
            assert bucket.bucket in self.ranks[bucket.holder].reduced
            assert self._cell(bucket.holder) == (bucket.tp_rank, bucket.pp_rank)
            copied.add((bucket.tp_rank, bucket.pp_rank, bucket.bucket))
        everything = Counter(range(self.num_micro_batches))
        for cell in {self._cell(number) for number in self.ranks}:
            is_reduced = all((*cell, bucket) in copied for bucket in _BUCKETS)
            members = [number for number in self.ranks if self._cell(number) == cell]
            counted = Counter(
                each
                for number in members
                for each in (
                    *self.ranks[number].counted,
                    *self.shares[self.layout.dp_rank(number)],
                )
            )
            assert is_reduced or counted == everything, "a micro-batch is lost or counted twice"
            for number in members:
                assert not self.ranks[number].is_torn
                self.ranks[number].reduced = {name for *where, name in copied if (*where,) == cell}

    def finish_iteration(self) -> int:
        """Commit the running iteration on every rank."""
        iteration = self.committed + 1
        for number, rank in self.ranks.items():
            rank.step(iteration)
            rank.copies = self._copies_at(number, iteration)
        self.has_copies_under_way = True
        self.shares = even_shares(self.num_micro_batches, self.layout.dp)
        return iteration

    def _copies_at(self, number: int, iteration: int) -> tuple[HeldCopy, ...]:
        """Return what a rank holds: its own state and that of its wards, two iterations deep."""
        owners = [
            owner
            for owner, holder in enumerate(self.holders)
            if holder is not None and number in {owner, holder}
        ]
        keys = {(*self._cell(owner), *self._shard_to_copy(owner)) for owner in owners}
        return tuple(
            HeldCopy(tp_rank=tp, pp_rank=pp, dp_rank=dp, num_shards=num, iteration=newest)
            for newest in (iteration, iteration - 1)
            for tp, pp, dp, num in sorted(keys)
            if newest > 0
        )

    def _shard_to_copy(self, number: int) -> tuple[int, int]:
        return self._shard(number) if self.is_sharded else (0, 1)

    def lose_copies_under_way(self, dice: random.Random) -> None:
        """What was on its way to its holder when the generation ended may not have come."""
        if not self.has_copies_under_way:
            return
        self.has_copies_under_way = False
        newest = self.committed
        for owner, holder in enumerate(self.holders):
            if holder is not None and dice.random() < 0.5:
                key = (*self._cell(owner), *self._shard_to_copy(owner))
                rank = self.ranks[holder]
                rank.copies = tuple(
                    copy
                    for copy in rank.copies
                    if (copy.tp_rank, copy.pp_rank, copy.dp_rank, copy.num_shards) != key
                    or copy.iteration != newest
                )

    def stall(self, now: float, dice: random.Random, broken: Iterable[FakeRank]) -> None:
        """Freeze every rank where it is; the iteration is not finished in this generation."""
        if self.is_stalled:
            return
        self.is_stalled = True
        if not self.is_formed:
            return
        self.lose_copies_under_way(dice)
        fraction = (now - self.begun_at) / ITERATION_S
        hit = {self.layout.dp_rank(rank.global_rank) for rank in broken}
        if fraction < _ACCUMULATED:
            self._stall_in_accumulation(fraction / _ACCUMULATED, dice, hit)
        elif fraction < _REDUCED:
            self._stall_in_reduction(dice)
        else:
            self._stall_in_vote(dice)

    def _stall_in_accumulation(self, done: float, dice: random.Random, hit: set[int]) -> None:
        for replica in range(self.layout.dp):
            share = self.shares[replica]
            num_done = min(len(share), int(done * len(share)) + dice.randint(0, 1))
            for number, rank in self.ranks.items():
                if self.layout.dp_rank(number) != replica:
                    continue
                is_hit = replica in hit and self.layout.num_workers > self.layout.dp
                num_own = min(len(share), num_done + is_hit * dice.randint(0, 1))
                rank.phase = "accumulate"
                rank.counted |= set(share[:num_own])
                rank.is_torn = is_hit and dice.random() < 0.7

    def _count_all(self, phase: Phase) -> None:
        for number, rank in self.ranks.items():
            rank.counted |= set(self.shares[self.layout.dp_rank(number)])
            rank.phase = phase

    def _stall_in_reduction(self, dice: random.Random) -> None:
        self._count_all("reduce")
        for rank in self.ranks.values():
            rank.reduced |= set(_BUCKETS[: dice.randint(0, len(_BUCKETS))])

    def _stall_in_vote(self, dice: random.Random) -> None:
        self._count_all("vote")
        iteration = self.committed + 1
        outcome = dice.choice(["open", "known", "stepped"])
        for number, rank in self.ranks.items():
            rank.reduced = set(_BUCKETS)
            if outcome != "open" and dice.random() < 0.5:
                rank.vote = _vote_on(iteration)
                if outcome == "stepped":
                    rank.step(iteration)
                    rank.copies = self._copies_at(number, iteration)
