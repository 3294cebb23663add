"""From the records of a run to its figures."""

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from peers.runs.peer_rank_records import RunRecord


@dataclass(frozen=True, slots=True)
class RecoveryFigures:
    """One fault and what came after it.

    Attributes:
        next_commit_s: From the fault to the next committed iteration, whichever it was.
        caught_up_s: From the fault to the commit of the iteration that it broke; what was lost
            has been computed again by then.
    """

    iteration: int
    next_commit_s: float
    caught_up_s: float


@dataclass(slots=True)
class Figures:
    """What one run yields. Counts are over all its faults.

    Attributes:
        total_s: From the command to the commit of the last iteration.
        training_s: The same from the first commit on.
        iteration_s: Median time between two commits.
        num_recomputed_iterations: Iterations that were committed, lost, and committed again.
        num_recomputed_micro_batches: Micro-batches computed more than once, each time counted;
            None where the run does not tell.
        num_missing_micro_batches: Micro-batches that are not in the update of their iteration.
        num_saved_micro_batches: Micro-batches of broken iterations that were kept; None where the
            run does not tell.
        state_sources: Where the state of a replaced rank came from, by fault, where the run tells.
        num_ranks_at_end: Ranks that trained the last iteration; None where the run does not tell.
        losses: Of every iteration, as committed last.
    """

    total_s: float = 0.0
    training_s: float = 0.0
    iteration_s: float = 0.0
    num_recomputed_iterations: int = 0
    num_recomputed_micro_batches: int | None = 0
    num_missing_micro_batches: int = 0
    num_saved_micro_batches: int | None = None
    state_sources: list[str] = field(default_factory=list)
    num_ranks_at_end: int | None = None
    recoveries: list[RecoveryFigures] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)


def next_commit(fault: RunRecord, records: Sequence[RunRecord]) -> RunRecord | None:
    """Return the first iteration committed after ``fault``.

    One that was committed before the fault, but written down by a slower rank after it, is none.
    """
    for record in records:
        if record.kind == "committed" and record.at > fault.at:
            is_late = record.attempt == fault.attempt and record.iteration < fault.iteration
            if not is_late:
                return record
    return None


def recoveries(records: Sequence[RunRecord]) -> list[RecoveryFigures]:
    """Return every fault that training recovered from."""
    found = []
    for fault in records:
        first = next_commit(fault, records) if fault.kind == "fault" else None
        if first is None:
            continue
        caught_up = next(
            (
                record
                for record in records
                if record.kind == "committed"
                and record.at > fault.at
                and record.iteration >= fault.iteration
            ),
            first,
        )
        found.append(RecoveryFigures(fault.iteration, first.at - fault.at, caught_up.at - fault.at))
    return found


def measure(records: Sequence[RunRecord], began_at: float, num_micro_batches: int) -> Figures:
    """Return the figures of a run that reached its last iteration.

    Args:
        records: In the order of their times.
        began_at: When its processes were started.
        num_micro_batches: Micro-batches of the global batch.
    """
    # A rank that came back too late may train on alone.
    last = max(record.iteration for record in records if record.kind == "committed")
    end = next(r.at for r in records if r.kind == "committed" and r.iteration == last)
    records = [record for record in records if record.at <= end]
    # Where several ranks write the same commit down, the first counts.
    commits: dict[tuple[int, int], RunRecord] = {}
    is_one_writer = len({r.global_rank for r in records if r.kind == "committed"}) == 1
    for record in records:
        if record.kind == "committed":
            attempt = record.attempt if is_one_writer else 0
            commits.setdefault((attempt, record.iteration), record)
    ordered = sorted(commits.values(), key=lambda record: record.at)
    intervals = [b.at - a.at for a, b in itertools.pairwise(ordered)]
    ranks_at_end = {r.global_rank for r in records if r.kind == "computed" and r.iteration == last}
    computed = Counter((r.iteration, r.index) for r in records if r.kind == "computed")
    return Figures(
        total_s=ordered[-1].at - began_at,
        training_s=ordered[-1].at - ordered[0].at,
        iteration_s=statistics.median(intervals),
        num_recomputed_iterations=len(commits) - len({iteration for _, iteration in commits}),
        num_recomputed_micro_batches=sum(computed.values()) - len(computed),
        num_missing_micro_batches=sum(
            num_micro_batches - record.num_contributed for record in ordered
        ),
        num_ranks_at_end=len(ranks_at_end) or None,
        recoveries=recoveries(records),
        losses={record.iteration: record.loss for record in ordered},
    )
