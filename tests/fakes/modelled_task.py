"""A task of modelled ranks: its members, the parked ranks, and one generation after another.

It replaces agents and controller: it halts, collects positions, asks the real ``decide`` for the
next step, and begins the next generation with parked and with new processes. Invariants are checked
on the way.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.core.rules.regroup.next_generation import ResumeDecision, Source, decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.regroup import HeldCopy, Position, Resume
from profiles.layout import Layout
from tests.fakes.modelled_groups import Groups
from tests.fakes.modelled_ranks import ModelledProcess
from tests.fakes.modelled_shards import ShardedProcess
from tests.fakes.modelled_state import Cell, Job, State, Storage, whole_update

Decide = Callable[..., ResumeDecision]

STEPS_PER_ITERATION: Final = 40
"""About the most that a rank takes."""


@dataclass(eq=False)
class ModelledTask:
    """One task.

    Attributes:
        processes: The ranks of the present generation, dead ones included.
        left_out: Frozen processes that the generations since went on without.
        is_halting: Whether the present generation was told to park.
        newest: The newest iteration that some rank had committed, and that is not lost.
    """

    job: Job
    layout: Layout
    decide: Decide = decide
    storage: Storage = field(default_factory=Storage)
    generation: int = 0
    resume: Resume = field(default_factory=Resume)
    processes: dict[int, ModelledProcess] = field(default_factory=dict)
    left_out: list[ModelledProcess] = field(default_factory=list)
    is_halting: bool = False
    newest: int = 0
    _examined: dict[int, State] = field(default_factory=dict)
    _dispensable: set[int] = field(default_factory=set)
    """Ranks without which the others together had copies of everything."""
    _untold: set[tuple[int, HeldCopy]] = field(default_factory=set)
    """Copies that arrived after their ranks reported positions: they do not count yet."""

    @property
    def is_intact(self) -> bool:
        """Whether nobody is lost and nobody was told to halt."""
        everybody = self.processes.values()
        return not self.is_halting and all(each.is_well for each in everybody)

    @property
    def awaited(self) -> list[int]:
        """Ranks that are to say where they stand; a frozen one is given up."""
        return [
            rank for rank, each in self.processes.items() if each.run is not None and each.is_well
        ]

    @property
    def fit(self) -> list[int]:
        """Ranks whose processes are parked and can go on."""
        return [rank for rank, each in self.processes.items() if each.is_well and each.position]

    # --- training -----------------------------------------------------------------------------

    def advance(self, process: ModelledProcess, num: int = 1) -> None:
        """Have a process go on ``num`` steps, or until it has to wait."""
        for _ in range(num):
            if not process.can_advance:
                return
            process.advance()
            if process.ledger.has_state and process not in self.left_out:
                self.newest = max(self.newest, process.ledger.committed)

    def reach(self, phase: str) -> None:
        """Have all ranks go on to a phase of an iteration, as far as they get."""
        for _ in range(STEPS_PER_ITERATION):
            for process in self.processes.values():
                if process.ledger.phase != phase:
                    self.advance(process)

    def commit_one(self) -> None:
        """Have all ranks commit an iteration that none of them has."""
        ledgers = [each.ledger for each in self.processes.values()]
        goal = max((each.committed for each in ledgers if each.has_state), default=0) + 1
        self._run_until(lambda each: each.ledger.has_state and each.ledger.committed >= goal)

    def park_at_boundary(self, which: int) -> None:
        """Have all ranks park at the end of an iteration, on the word of one."""
        self.processes[which].wants_park = True
        self._run_until(lambda each: each.run is None)
        self.is_halting = True
        assert len({each.ledger.committed for each in self.processes.values()}) == 1

    def _run_until(self, is_done: Callable[[ModelledProcess], bool]) -> None:
        while busy := [each for each in self.processes.values() if not is_done(each)]:
            able = [each for each in busy if each.can_advance]
            assert able, f"all wait: {[each.stop for each in busy]}"
            for process in able:
                while process.can_advance and not is_done(process):
                    self.advance(process)

    # --- parking ------------------------------------------------------------------------------

    def park(self, process: ModelledProcess, luck: int) -> None:
        """Halt a rank. By luck, a bit for each, it still gets results that are there."""
        while process.run is not None and process.is_well:
            luck, is_lucky = luck // 2, luck % 2 == 1
            if process.can_advance and (is_lucky or not process.can_halt_here):
                self.advance(process)
            else:
                process.interrupt()

    def finish_computing(self, replica: int) -> None:
        """Have a whole replica finish all work that needs no other replica."""
        members = [p for r, p in self.processes.items() if self.layout.dp_rank(r) == replica]
        if all(each.is_well for each in members):
            while able := [each for each in members if each.can_advance and each.is_computing]:
                for process in able:
                    self.advance(process)

    # --- from one generation to the next ------------------------------------------------------

    def regroup(
        self,
        dp: int,
        order: Sequence[int],
        *,
        is_mixed: bool = False,
        excluded: Sequence[Source] = (),
        allows_reuse: bool = True,
    ) -> None:
        """Begin the next generation with ``dp`` replicas.

        Args:
            dp: Replicas of the new generation.
            order: Old replica of each new one; all other old replicas end.
            is_mixed: Whether new replicas are put together from the survivors of each cell.
            excluded: As in ``decide``.
            allows_reuse: As in ``decide``.
        """
        new = Layout(self.layout.tp, self.layout.pp, dp)
        continues = self._continues(new, order, is_mixed=is_mixed)
        positions = {rank: p.position for rank, p in self.processes.items() if p.position}
        job = self.job
        parked = Parked(self.layout, job.num_micro_batches, positions, self.resume, job.is_sharded)
        decision = self.decide(parked, new, continues, excluded=excluded, allows_reuse=allows_reuse)
        self._check_that_nothing_is_lost(continues, positions, decision, excluded)
        stay = {new: self.processes[old] for old, new in continues.items()}
        self.begin(new, stay, decision.resume)

    def begin(self, layout: Layout, stay: Mapping[int, ModelledProcess], resume: Resume) -> None:
        """Begin a generation with these processes, by new rank, and new ones."""
        self.left_out += [
            each
            for each in self.processes.values()
            if each.is_alive and each.is_frozen and each not in stay.values()
        ]
        self.generation += 1
        groups = Groups(Generation(self.generation), layout)
        self.layout, self.resume, self.is_halting = layout, resume, False
        self.processes = {
            rank: stay.get(rank) or self._new_process() for rank in range(layout.num_workers)
        }
        self._untold = {
            (rank, copy)
            for rank, process in self.processes.items()
            for copy in process.memory.held()
            if process.position is None or copy not in process.position.copies
        }
        for rank, process in self.processes.items():
            process.join(groups, rank, resume)
        self._dispensable = self._dispensable_ranks()

    def _new_process(self) -> ModelledProcess:
        kind = ShardedProcess if self.job.is_sharded else ModelledProcess
        return kind(self.job, self.storage)

    def _continues(self, new: Layout, order: Sequence[int], *, is_mixed: bool) -> dict[int, int]:
        old, fit = self.layout, self.fit
        continues: dict[int, int] = {}
        for tp in range(old.tp):
            for pp in range(old.pp):
                cell = [(pp * old.dp + replica) * old.tp + tp for replica in order]
                if is_mixed:
                    cell.sort(key=lambda rank: rank not in fit)
                for replica, rank in enumerate(cell[: new.dp]):
                    if rank in fit:
                        continues[rank] = (pp * new.dp + replica) * new.tp + tp
        return continues

    def check_copies(self) -> None:
        """Check that copies which outlast any single loss are kept while no process is lost."""
        if not all(each.is_well for each in self.processes.values()):
            self._dispensable = set()
            return
        dispensable = self._dispensable_ranks()
        assert dispensable >= self._dispensable, (
            "copies were given up before newer ones were complete"
        )
        self._dispensable = dispensable

    def _dispensable_ranks(self) -> set[int]:
        """Return the ranks without which the others together have copies of everything."""
        # Until all have taken up training, what is newer will be dropped.
        have_resumed = all(each.has_resumed for each in self.processes.values())
        newest = None if have_resumed else 0 if self.resume.source == "disk" else self.resume.level
        told = {
            rank: [
                copy
                for copy in each.memory.held()
                if (newest is None or copy.iteration <= newest) and (rank, copy) not in self._untold
            ]
            for rank, each in self.processes.items()
        }
        return {
            lost
            for lost in self.processes
            if self._have_all(
                copy for rank, copies in told.items() if rank != lost for copy in copies
            )
        }

    def _have_all(self, copies: Iterable[HeldCopy]) -> bool:
        """Whether of some iteration every shard is among these."""
        found = set(copies)
        return any(
            self._are_all(
                (copy.num_shards, ((copy.tp_rank, copy.pp_rank), copy.dp_rank))
                for copy in found
                if copy.iteration == iteration
            )
            for iteration in {copy.iteration for copy in found}
        )

    # --- what must hold -----------------------------------------------------------------------

    def check_states(self) -> None:
        """Whoever has the state after an iteration has exactly that."""
        for process in [*self.processes.values(), *self.left_out]:
            ledger = process.ledger
            if not ledger.has_state or self._examined.get(id(process)) is process.state:
                continue
            updates = tuple(
                whole_update(iteration, self.job.num_micro_batches)
                for iteration in range(1, ledger.committed + 1)
            )
            assert process.state.keys() == set(process.pieces)
            for history in process.state.values():
                assert history == updates
            self._examined[id(process)] = process.state

    def _check_that_nothing_is_lost(
        self,
        continues: Mapping[int, int],
        positions: Mapping[int, Position],
        decision: ResumeDecision,
        excluded: Sequence[Source],
    ) -> None:
        """Check that the newest state is kept while every shard has a rank that can reach it."""
        resume = decision.resume
        level = resume.level
        if resume.source == "disk":
            level = max(self.storage.complete, default=0)
        votes = [each.vote for each in positions.values() if each.vote]
        is_known = self.newest in {vote.iteration for vote in votes}
        update = whole_update(self.newest, self.job.num_micro_batches)

        def has_or_can_have(process: ModelledProcess) -> bool:
            ledger = process.ledger
            has_gradient = all(gradient == update for gradient in process.sums.values())
            is_ready = is_known and has_gradient and ledger.committed == self.newest - 1
            return ledger.has_state and (ledger.committed == self.newest or is_ready)

        holders = [self.processes[old] for old in continues if has_or_can_have(self.processes[old])]
        is_covered = self._are_all((each.shard[1], (each.cell, each.shard[0])) for each in holders)
        if resume.source == "disk" and "memory" not in excluded:
            assert not self._has_complete_copies(continues), decision.reason
        if is_covered and "peer" not in excluded:
            assert resume.source == "peer", decision.reason
            assert level >= self.newest, decision.reason
        self.newest = level

    def _has_complete_copies(self, continues: Mapping[int, int]) -> bool:
        """Whether of some iteration every shard has a copy that a rank has told of."""
        positions = [self.processes[old].position for old in continues]
        return self._have_all(copy for each in positions if each for copy in each.copies)

    def _are_all(self, found: Iterable[tuple[int, tuple[Cell, int]]]) -> bool:
        """Return whether these are all shards of all cells."""
        num_found = Counter(num_shards for num_shards, _ in set(found))
        num_cells = self.layout.tp * self.layout.pp
        return any(number == num_cells * num_shards for num_shards, number in num_found.items())
