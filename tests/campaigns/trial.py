"""One case of the campaign with real ranks: break them, let them recover, compare with no fault."""

import dataclasses
import itertools
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from controller.core.rules.regroup.next_generation import Rung
from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape
from tests.campaigns.matrix import (
    CHECKPOINT_INTERVAL,
    NUM_ITERATIONS,
    NUM_MICRO_BATCHES,
    Case,
)
from tests.fakes.fault_points import Contribution
from tests.fakes.rank_host import RankHost
from tests.fakes.rank_task import NotReachedError, RankTask
from tests.fakes.whole_parameters import Parameters, read_parameters, relative_difference

# Everything that must be the same wherever a micro-batch runs, and every sum inside a replica.
_MODEL: Final = ModelShape(
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    seq_length=32,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    share_embeddings_and_output_weights=True,
    sequence_parallel=True,
)
_BUCKET_SIZE: Final = 6000
_TOLERANCE: Final = 1e-5
_IN_THE_SAME_ORDER: Final[frozenset[Rung]] = frozenset({"commit", "re-run", "restore"})
"""Rungs after which the sums are taken in the order in which they are without a fault."""

_NUM_TRIES: Final = 3


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a case that went well was like.

    Attributes:
        rungs: How each generation after the first was begun.
        difference: Relative L2 difference of the final parameters.
        num_saved: Micro-batches whose results were kept.
        num_recomputed: Micro-batches that were computed again.
        num_stuck: Survivors that did not park, and were replaced.
        duration_s: Of the whole case.
    """

    rungs: tuple[Rung, ...]
    difference: float
    num_saved: int
    num_recomputed: int
    num_stuck: int
    duration_s: float


@dataclasses.dataclass(frozen=True)
class _Reference:
    losses: dict[int, float]
    parameters: Parameters


class Trials:
    """Runs cases on one host, each layout without a fault first.

    Args:
        host: With the template that breaks ranks.
        directory: For checkpoints.
        limit_s: How long a case may wait for anything.
    """

    def __init__(self, host: RankHost, directory: Path, limit_s: float = 60.0) -> None:
        self._host = host
        self._directory = directory
        self._limit_s = limit_s
        self._numbers = itertools.count(1)
        self._references: dict[tuple[Layout, bool, bool], _Reference] = {}

    def run(self, case: Case, note: Callable[[str], object] = lambda _: None) -> Outcome:
        """Run a case; again where its second fault comes to nothing.

        How many buckets there are to copy depends on how far the other ranks were at the first one.

        Args:
            case: Faults and recovery.
            note: Called with the reason for another run.

        Raises:
            AssertionError: Something that must hold did not; the text says what.
        """
        for _ in range(_NUM_TRIES - 1):
            try:
                return self._run(case)
            except NotReachedError as error:
                note(f"      again: {case}: {error}")
        return self._run(case)

    def _run(self, case: Case) -> Outcome:
        expected = self._reference(case)
        began = time.perf_counter()
        task = self._task(case)
        try:
            task.start(case.faults)
            pids = {number: member.pid for number, member in task.members.items()}
            for fault in case.faults:
                task.wait_for_fault(fault)
                goes_on = fault.action == "raise" and case.ending == "reattempt"
                task.park({fault.global_rank}, going_on={fault.global_rank} if goes_on else ())
                task.regroup(_smaller(case.layout) if case.ending == "shrink" else None)
            task.finish()
            difference = _check(case, task, expected, pids)
        finally:
            self._clear(task)
        resumes = [decision.resume for decision in task.decisions]
        return Outcome(
            rungs=tuple(decision.rung for decision in task.decisions),
            difference=difference,
            num_saved=sum(resume.num_saved for resume in resumes),
            num_recomputed=sum(resume.num_recomputed for resume in resumes),
            num_stuck=task.num_stuck,
            duration_s=time.perf_counter() - began,
        )

    def _reference(self, case: Case) -> _Reference:
        key = (case.layout, case.is_sharded, case.bf16)
        if key not in self._references:
            task = self._task(case)
            try:
                task.start()
                task.finish()
                assert list(task.losses) == list(range(1, NUM_ITERATIONS + 1))
                self._references[key] = _Reference(task.losses, _final_parameters(task))
            finally:
                self._clear(task)
        return self._references[key]

    def _task(self, case: Case) -> RankTask:
        name = f"case-{next(self._numbers)}"
        training = TrainingSpec(
            model=_MODEL.model_copy(update={"bf16": case.bf16}),
            checkpoint_dir=str(self._directory / name),
            checkpoint_interval=CHECKPOINT_INTERVAL,
            num_micro_batches=NUM_MICRO_BATCHES,
            num_iterations=NUM_ITERATIONS,
            bucket_size=_BUCKET_SIZE,
            shard_optimizer=case.is_sharded,
        )
        return RankTask(self._host, training, case.layout, name, self._limit_s)

    def _clear(self, task: RankTask) -> None:
        self._host.kill_ranks()
        task.forget()
        shutil.rmtree(task.training.checkpoint_dir, ignore_errors=True)


def check_counted_once(contributions: list[Contribution], layouts: list[Layout]) -> None:
    """Check that every bucket of every iteration was made of every micro-batch once.

    A bucket may be reduced in several generations; the newest attempt counts,
    since a rank with a complete bucket does not reduce the bucket again.

    Args:
        contributions: What the ranks gave to each reduction.
        layouts: Layout of each generation.

    Raises:
        AssertionError: A micro-batch is missing, or counted twice.
    """
    newest: dict[tuple[int, int, int, str], list[Contribution]] = defaultdict(list)
    for one in contributions:
        attempt = newest[(one.iteration, one.tp_rank, one.pp_rank, one.bucket)]
        if attempt and attempt[0].generation != one.generation:
            attempt.clear()
        attempt.append(one)
    assert {key[0] for key in newest} == set(range(1, NUM_ITERATIONS + 1))
    for key, attempt in newest.items():
        layout = layouts[attempt[0].generation - 1]
        assert sorted(one.dp_rank for one in attempt) == list(range(layout.dp)), key
        counted = sorted(index for one in attempt for index in one.micro_batches)
        assert counted == list(range(NUM_MICRO_BATCHES)), f"{key} holds {counted}"


def _check(case: Case, task: RankTask, expected: _Reference, pids: dict[int, int]) -> float:
    """Check all that must hold, and return the relative difference of the parameters."""
    reasons = "; ".join(decision.reason for decision in task.decisions)
    largest = max(
        abs(task.losses.get(number, 0.0) / loss - 1) for number, loss in expected.losses.items()
    )
    assert largest <= _TOLERANCE, f"losses differ by {largest:.1e} after {reasons}"
    assert task.losses.keys() == expected.losses.keys()
    difference = relative_difference(_final_parameters(task), expected.parameters)
    assert difference <= _TOLERANCE, f"parameters differ by {difference:.1e} after {reasons}"
    if task.layout == case.layout and not _is_reordered(task):
        assert task.losses == expected.losses, f"losses are not bit-identical after {reasons}"
        assert difference == 0, f"parameters are not bit-identical after {reasons}"
    generations = [case.layout, *(task.layout for _ in task.decisions)]
    check_counted_once(task.contributions(), generations)
    _check_survivors(case, task, pids)
    _check_counters(task)
    return difference


def _is_reordered(task: RankTask) -> bool:
    return any(decision.rung not in _IN_THE_SAME_ORDER for decision in task.decisions)


def _check_survivors(case: Case, task: RankTask, pids: dict[int, int]) -> None:
    """Whoever was neither lost nor of a replica that was given up is in its first process."""
    lost = {
        fault.global_rank
        for fault in case.faults
        if fault.action != "raise" or case.ending != "reattempt"
    }
    if case.ending == "shrink":
        given_up = {case.layout.dp_rank(rank) for rank in lost}
        lost = {rank for rank in pids if case.layout.dp_rank(rank) in given_up}
    kept = {member.pid for member in task.members.values()} & set(pids.values())
    survivors = {pid for rank, pid in pids.items() if rank not in lost}
    assert len(survivors - kept) <= task.num_stuck, "a survivor did not go on"
    assert pids[case.faults[0].global_rank] not in kept or case.ending == "reattempt"


def _check_counters(task: RankTask) -> None:
    """The first iteration that a resumed generation commits tells what was saved in it."""
    resume = task.decisions[-1].resume
    record = task.host.record(task.members[0].launch)
    committed = record.of_kind("iteration_committed")
    level = resume.level
    if level == NUM_ITERATIONS and resume.source != "disk":
        assert not committed
        return
    is_resumed = resume.source == "peer" and bool(resume.shares)
    saved = committed[0].num_saved, committed[0].num_recomputed
    assert saved == ((resume.num_saved, resume.num_recomputed) if is_resumed else (0, 0))
    if is_resumed:
        num_computed = sum(map(len, resume.shares))
        assert resume.num_saved + num_computed == NUM_MICRO_BATCHES


def _smaller(layout: Layout) -> Layout:
    return dataclasses.replace(layout, dp=layout.dp - 1)


def _final_parameters(task: RankTask) -> Parameters:
    return read_parameters(Path(task.training.checkpoint_dir) / f"iter_{NUM_ITERATIONS:07d}")
