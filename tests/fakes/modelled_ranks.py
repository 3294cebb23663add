"""A rank as the regroup protocol sees it, without torch: what it does, in the order it does it.

``ModelledProcess`` mirrors ``nodeagent.rank`` (``iteration``, ``reduction``, ``accumulate``,
``resume``, ``train``) around the real ``Ledger``; with a sharded optimizer, ``modelled_shards``.
Gradients are multisets of (iteration, micro-batch), one per bucket; parameters are the sequence of
multisets that were applied. A process is a generator that yields wherever a real one can be
blocked, interrupted or killed; who goes on when is up to the test. Every update is checked when it
is applied.
"""

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from nodeagent.protocol.regroup import Position, Resume, VoteResult, even_shares
from nodeagent.rank.iteration.ledger import Ledger
from tests.fakes.modelled_groups import Collective, Groups, Part
from tests.fakes.modelled_memory import ModelledMemory, ShardKey
from tests.fakes.modelled_state import Cell, Gradient, Job, State, Storage, whole_update

LOSSES: Final = "losses"

Stop = Collective | Literal["boundary", "local"]
"""Where a rank can be: in a collective, between micro-batches, or inside a step."""

Run = Generator[Stop, None, None]


class InterruptedGenerationError(Exception):
    """The generation was halted, or a peer was lost."""


@dataclass(eq=False)
class ModelledProcess:
    """A rank's process, over all generations that it is part of.

    Attributes:
        run: Its work in the present generation; None before the first and once it is parked.
        stop: Its point in the iteration.
        state: Its part of the state.
        memory: In-memory checkpoints that it makes and holds.
        has_resumed: Whether it has taken up training in the present generation.
        to_write: Copies of its own state that are still to be written to disk.
    """

    job: Job
    storage: Storage
    ledger: Ledger = field(default_factory=Ledger)
    run: Run | None = None
    stop: Stop = "local"
    is_alive: bool = True
    is_frozen: bool = False
    is_built: bool = False
    has_resumed: bool = False
    wants_park: bool = False
    position: Position | None = None
    groups: Groups = field(init=False)
    rank: int = field(init=False)
    resume: Resume = field(init=False)
    state: State = field(default_factory=dict)
    sums: dict[str, Gradient] = field(default_factory=dict)
    staging: dict[str, Gradient] = field(default_factory=dict)
    loss_sums: tuple[float, float] = (0.0, 0.0)
    loss_staging: tuple[float, float] = (0.0, 0.0)
    memory: ModelledMemory = field(default_factory=ModelledMemory)
    to_write: list[tuple[int, State]] = field(default_factory=list)
    _is_paused: bool = False
    _knows_buckets: bool = False
    _works: dict[str, Collective] = field(default_factory=dict)
    _under_way: list[int] = field(default_factory=list)
    _to_compute: Sequence[int] | None = None

    # --- driven by the test -------------------------------------------------------------------

    def join(self, groups: Groups, rank: int, resume: Resume) -> None:
        """Become a rank of a generation; unwritten copies of the former generation are dropped."""
        self.to_write, self.has_resumed = [], False
        self.groups, self.rank, self.resume = groups, rank, resume
        self.memory.enter(groups, rank, is_sharded=self.job.is_sharded, kept=resume.kept_copies)
        self.position, self.wants_park, self._is_paused = None, False, False
        self.run = self._take_part()
        self.stop = next(self.run)

    @property
    def is_well(self) -> bool:
        """Whether it is neither dead nor frozen."""
        return self.is_alive and not self.is_frozen

    @property
    def can_advance(self) -> bool:
        """Whether it is not blocked, nor parked, nor dead."""
        is_blocked = isinstance(self.stop, Collective) and not self.stop.can_end
        return self.run is not None and self.is_well and not is_blocked

    def advance(self) -> None:
        """Go on to the next place where it can stop."""
        assert self.run is not None
        try:
            self.stop = self.run.send(None)
        except (InterruptedGenerationError, StopIteration):
            self._park()

    @property
    def is_computing(self) -> bool:
        """Whether it goes on after a halt, as long as its replica is whole."""
        if isinstance(self.stop, Collective):
            return self.stop.is_inner
        return not self.can_halt_here

    @property
    def can_halt_here(self) -> bool:
        """Whether a halt can end the generation here: not inside its own computations."""
        if self.stop == "boundary":
            return self.groups.layout.tp * self.groups.layout.pp == 1
        return self.stop != "local"

    def interrupt(self) -> None:
        """End its generation where it stands."""
        assert self.run is not None
        try:
            self.stop = self.run.throw(InterruptedGenerationError())
        except InterruptedGenerationError:
            self._park()

    def write_checkpoint(self) -> None:
        """Write the oldest copy of its state that is still to be written."""
        if self.is_well and self.to_write:
            self.storage.write(self.groups, self.rank, *self.to_write.pop(0))

    def _park(self) -> None:
        self.run = None
        if not self.is_built:
            return
        num_buckets = len(self.job.buckets) + 1
        position = self.ledger.position(num_buckets, self.memory.held())
        self.position = position.model_copy(update={"shard": self._shard})

    # --- what it has of the state ----------------------------------------------------------------

    @property
    def shard(self) -> tuple[int, int]:
        """Which part of the state of its cell it has, and of how many."""
        return self._shard or (0, 1)

    @property
    def pieces(self) -> Sequence[str]:
        """What that part consists of."""
        return self.job.buckets

    @property
    def _shard(self) -> tuple[int, int] | None:
        """As it says it; None where all of its cell have the same."""
        return None

    def _build(self) -> None:
        """Make a model, at its seed."""
        self.state = dict.fromkeys(self.job.buckets, ())

    def _load_whole(self, whole: State) -> None:
        """Take its part of the state of its cell, or that of the seed."""
        self.state = dict(whole or dict.fromkeys(self.job.buckets, ()))

    def _update(self, bucket: str, gradient: Gradient, iteration: int) -> None:
        self.state = {**self.state, bucket: self._updated(bucket, gradient, iteration)}

    def _updated(self, piece: str, gradient: Gradient, iteration: int) -> tuple[Gradient, ...]:
        history = self.state[piece]
        assert len(history) == iteration - 1, f"{piece} steps from {len(history)}"
        return (*history, gradient)

    def _bring_state(self, level: int) -> Run:
        """Have the state of iteration ``level``, wherever it comes from."""
        yield from self._spread_copies(level)
        yield from self._broadcast_missing_state()

    def _share(self) -> Run:
        """What follows an update: the other replicas have made the same one."""
        yield from ()

    def _check_model(self) -> None:
        """The parameters that it computes with are those after the iteration that it committed."""

    # --- one generation -----------------------------------------------------------------------

    @property
    def cell(self) -> Cell:
        """Whose part of the model this is."""
        return self.groups.layout.tp_rank(self.rank), self.groups.layout.pp_rank(self.rank)

    @property
    def _dp_rank(self) -> int:
        return self.groups.layout.dp_rank(self.rank)

    @property
    def _is_alone(self) -> bool:
        return self.groups.layout.dp == 1

    def _begin(self, group: str, name: str, part: Part, source: int | None = None) -> Collective:
        where: dict[str, tuple[int, ...]] = {
            "world": (),
            "replica": (self._dp_rank,),
            "data parallel": self.cell,
        }
        return self.groups.begin((group, *where[group]), self.rank, name, part, source)

    def _take_part(self) -> Run:
        yield self._begin("world", "form", None)
        if not self.is_built:
            self.is_built = True
            self._build()
            self.staging = {bucket: Gradient() for bucket in self.job.buckets}
            self._forget_sums()
        self._works, self._to_compute = {}, None
        if self.resume.source == "disk":
            yield from self._load()
        else:
            yield from self._resume()
        self.has_resumed = True
        yield "local"
        while True:
            yield from self._iterate()
            if self._is_paused:
                return

    def _load(self) -> Run:
        """``train._load``."""
        ledger = self.ledger
        ledger.has_state = False
        # A fresh model: what the process had of before is gone.
        self.memory.forget()
        self.staging = {bucket: Gradient() for bucket in self.job.buckets}
        newest = max(self.storage.complete, default=0) if self.rank == 0 else None
        choice = self._begin("world", "checkpoint", newest, 0)
        yield choice
        level = choice.sent
        self._load_whole(self.storage.complete[level][self.cell] if level else {})
        yield "local"
        ledger.adopt(level)

    # --- nodeagent.rank.training.resume
    # ----------------------------------------------------------------

    def _resume(self) -> Run:
        resume, ledger = self.resume, self.ledger
        has_state = self.rank in resume.state_from
        level = resume.committed if resume.vote is None else resume.vote.iteration
        if has_state:
            if ledger.committed == level - 1 and resume.vote is not None:
                yield from self._step(resume.vote)
            assert ledger.has_state, "told to have the state, and has none"
            assert ledger.committed == level, f"has committed {ledger.committed}, not {level}"
        else:
            ledger.has_state = False
        yield from self._bring_state(level)
        if has_state:
            ledger.has_state = True
        else:
            ledger.adopt(level)
        self.memory.forget(newer_than=level)
        if resume.vote is None and resume.shares:
            yield from self._gather_partial_results()
            self._to_compute = resume.shares[self._dp_rank]

    def _spread_copies(self, level: int) -> Run:
        """``shards.distribute_shards``, of state that is not sharded."""
        for shard in self.resume.shards:
            assert shard.is_copy
            cell = shard.tp_rank, shard.pp_rank
            target = self._ranks_at(cell)[0]
            data = None
            if shard.holder == self.rank:
                data = self.memory.data_of(ShardKey(*cell, 0, 1), level)
                assert data is not None, f"no copy of {cell} of iteration {level}"
            if self.rank in (shard.holder, target) and shard.holder != target:
                sending = self.groups.begin(
                    ("pair", shard.holder, target), self.rank, f"copy of {cell}", data
                )
                yield sending
                data = sending.given[shard.holder]
            if self.rank == target:
                assert data is not None
                assert not self.ledger.has_state, "a copy for a rank that has the state"
                self.state = dict(data)

    def _broadcast_missing_state(self) -> Run:
        peers = self._ranks_at(self.cell)
        sources = [rank for rank in peers if rank in self.resume.state_from]
        if not sources and any((s.tp_rank, s.pp_rank) == self.cell for s in self.resume.shards):
            sources = peers[:1]
        assert sources, f"no rank has the state of {self.cell}"
        if len(sources) == len(peers):
            return
        for bucket in self.job.buckets:
            part = self.state[bucket]
            sending = self._begin("data parallel", f"state of {bucket}", part, sources[0])
            yield sending
            if self.rank not in sources:
                self.state = {**self.state, bucket: sending.sent}

    def _ranks_at(self, cell: Cell) -> list[int]:
        layout = self.groups.layout
        return [
            rank
            for rank in range(layout.num_workers)
            if (layout.tp_rank(rank), layout.pp_rank(rank)) == cell
        ]

    def _gather_partial_results(self) -> Run:
        resume, ledger = self.resume, self.ledger
        if ledger.phase == "idle":
            self._begin_afresh()
        elif self.rank not in resume.kept:
            self._forget_sums()
        ledger.phase = "accumulate"
        mine = [each for each in resume.reduced if (each.tp_rank, each.pp_rank) == self.cell]
        unknown = ledger.reduced - {each.bucket for each in mine}
        assert not unknown, f"holds {unknown}, of which the others were not told"
        for each in sorted(mine, key=lambda one: one.bucket):
            name = f"reduced {each.bucket}"
            held = self.loss_staging if each.bucket == LOSSES else self.staging[each.bucket]
            if each.holder == self.rank:
                assert each.bucket in ledger.reduced, f"does not have {each.bucket}"
            sending = self._begin("data parallel", name, held, each.holder)
            yield sending
            self._stage(each.bucket, sending.sent)
            ledger.reduced.add(each.bucket)

    def _stage(self, bucket: str, content: Part) -> None:
        if bucket == LOSSES:
            self.loss_staging = content
        else:
            self.staging[bucket] = content

    # --- nodeagent.rank.iteration.iteration_phases
    # -------------------------------------------------------------

    def _begin_afresh(self) -> None:
        self._forget_sums()
        self.ledger.begin()

    def _forget_sums(self) -> None:
        self.sums = {bucket: Gradient() for bucket in self.job.buckets}
        self.ledger.forget_sums()

    def _iterate(self) -> Run:
        if self._to_compute is None:
            self._begin_afresh()
            self._to_compute = even_shares(self.job.num_micro_batches, self.groups.layout.dp)[
                self._dp_rank
            ]
        micro_batches, self._to_compute = self._to_compute, None
        yield from self._compute(micro_batches)
        is_copying = yield from self._vote()
        vote = self.ledger.vote
        assert vote is not None
        yield from self._step(vote)
        yield from self._share()
        yield "local"
        if self.ledger.committed % self.job.checkpoint_interval == 0:
            self.to_write.append((self.ledger.committed, dict(self.state)))
        if not is_copying:
            self.memory.take(self.ledger.committed, dict(self.state))
        self._is_paused = vote.is_park_wanted

    def _compute(self, micro_batches: Sequence[int]) -> Run:
        if micro_batches:
            yield from self._accumulate(micro_batches)
        self.ledger.phase = "reduce"
        yield from self._finish_reduction(started=bool(micro_batches) and self._knows_buckets)
        self._knows_buckets = self._knows_buckets or bool(micro_batches)
        self.ledger.phase = "finalise"
        if self._is_alone:
            self.ledger.tear()
        reduced = {name: self.staging[name] for name in self.ledger.reduced - {LOSSES}}
        self.sums = {**self.sums, **reduced}
        finalising = self._begin("replica", "finalise", None)
        yield finalising
        self.sums = {
            bucket: Gradient(each.parts, each.num_finalised + 1)
            for bucket, each in self.sums.items()
        }

    def _vote(self) -> Generator[Stop, None, bool]:
        """Vote; return whether some rank is still busy with copies."""
        ledger, layout = self.ledger, self.groups.layout
        ledger.phase = "vote"
        speaks = self.cell == (0, layout.pp - 1) and self._dp_rank == 0
        losses = self.loss_staging if LOSSES in ledger.reduced else self.loss_sums
        wishes = self.wants_park, self.memory.is_busy
        part = (*(losses if speaks else (0.0, 0.0)), ledger.iteration, *wishes)
        voting = self._begin("world", "vote", part)
        yield voting
        loss, num_tokens, iterations, num_pausing, num_busy = (
            sum(numbers) for numbers in zip(*voting.parts, strict=True)
        )
        assert iterations == ledger.iteration * layout.num_workers, "not all run one iteration"
        ledger.vote = VoteResult(
            iteration=ledger.iteration,
            loss=loss,
            grad_norm=1.0,
            num_tokens=num_tokens,
            is_park_wanted=num_pausing > 0,
        )
        return bool(num_busy)

    def _step(self, vote: VoteResult) -> Run:
        ledger, num = self.ledger, self.job.num_micro_batches
        ledger.phase = "stepping"
        ledger.has_state = False
        # Micro-batch i has loss 2 ** i: no other num terms of that kind have this sum.
        assert (vote.loss, vote.num_tokens) == (2.0**num - 1, num), f"losses of {vote}"
        update = whole_update(vote.iteration, num)
        for bucket, gradient in self.sums.items():
            assert gradient == update, f"{bucket} of {self.cell}: {gradient} is not {update}"
            self._update(bucket, gradient, vote.iteration)
            yield "local"
        ledger.commit(vote)
        ledger.has_state = True

    # --- nodeagent.rank.iteration.accumulation
    # ------------------------------------------------------------

    def _accumulate(self, micro_batches: Sequence[int]) -> Run:
        layout, ledger = self.groups.layout, self.ledger
        is_pipeline = layout.pp > 1
        self._check_model()
        self._under_way = []
        if is_pipeline:
            ledger.tear()
        for index in micro_batches:
            if not is_pipeline:
                self._count_all()
            yield "boundary"
            self._under_way.append(index)
            if layout.tp * layout.pp > 1:
                yield self._begin("replica", f"forward {index}", None)
            ledger.tear()
            if layout.tp * layout.pp > 1:
                yield self._begin("replica", f"backward {index}", None)
            for bucket in self.job.buckets:
                self.sums[bucket] = self.sums[bucket].plus(Counter([(ledger.iteration, index)]))
                yield "local"
                if index == micro_batches[-1] and self._knows_buckets:
                    self._start(bucket)
        self._count_all()

    def _count_all(self) -> None:
        is_last_stage = self.cell[1] == self.groups.layout.pp - 1
        for index in self._under_way:
            self.ledger.count(index, *((2.0**index, 1) if is_last_stage else (0, 0)))
        self._under_way = []

    # --- nodeagent.rank.iteration.reduction
    # -------------------------------------------------------------

    def _start(self, bucket: str) -> None:
        if bucket in self.ledger.reduced or self._is_alone:
            return
        self.ledger.phase = "reduce"
        part = self.loss_sums if bucket == LOSSES else self.sums[bucket]
        self._works[bucket] = self._begin("data parallel", f"sum of {bucket}", part)

    def _finish_reduction(self, *, started: bool) -> Run:
        if not started:
            for bucket in self.job.buckets:
                self._start(bucket)
        self.loss_sums = self.ledger.loss_sums()
        self._start(LOSSES)
        works, self._works = self._works, {}
        failure = None
        for bucket, work in works.items():
            try:
                yield work
            except InterruptedGenerationError as error:
                failure = error
                continue
            if bucket == LOSSES:
                self.loss_staging = _sum_of_losses(work.parts)
            else:
                self.staging[bucket] = _sum_of_gradients(work.parts)
            self.ledger.reduced.add(bucket)
        if failure is not None:
            raise failure


def _sum_of_losses(parts: Sequence[Part]) -> tuple[float, float]:
    losses, tokens = zip(*parts, strict=True)
    return sum(losses), sum(tokens)


def _sum_of_gradients(parts: Sequence[Part]) -> Gradient:
    total = Gradient()
    for part in parts:
        # What was finalised in a replica and is summed over replicas after all would show.
        total = Gradient(total.parts + part.parts, total.num_finalised + part.num_finalised)
    return total
