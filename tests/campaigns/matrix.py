"""The cases of the campaign over the phases of an iteration: a rank, a point, and the recovery.

A case is one fault, or two faults. The second strikes during the recovery from the first. The cases
of a layout are: every point of an iteration on every rank, with a replacement and with one replica
less; every point of a regroup as the second fault; and some points in the first and in the last
iteration, as an exception, and as a frozen process.
"""

import functools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from nodeagent.protocol.regroup import even_shares
from profiles.layout import Layout
from tests.fakes.fault_points import Action, Fault, Point

LAYOUTS: Final = {
    "dp2": Layout(dp=2),
    "dp3": Layout(dp=3),
    "dp4": Layout(dp=4),
    "tp2-dp2": Layout(tp=2, dp=2),
    "pp2-dp2": Layout(pp=2, dp=2),
    "tp2-pp2-dp2": Layout(tp=2, pp=2, dp=2),
    "tp2-dp3": Layout(tp=2, dp=3),
    "tp2-dp4": Layout(tp=2, dp=4),
    "pp2-dp3": Layout(pp=2, dp=3),
    "pp2-dp4": Layout(pp=2, dp=4),
    "tp2-pp2-dp3": Layout(tp=2, pp=2, dp=3),
    "tp2-pp2-dp4": Layout(tp=2, pp=2, dp=4),
}

NUM_MICRO_BATCHES: Final = 8
NUM_ITERATIONS: Final = 4
CHECKPOINT_INTERVAL: Final = 2
_NUM_CHECKPOINTS: Final = NUM_ITERATIONS // CHECKPOINT_INTERVAL
FAULTY_ITERATION: Final = 2
"""A checkpoint is saved after it, so that its points lie in the same iteration."""

NUM_FINALISE_STEPS: Final = 4
_NUM_INTRODUCTIONS: Final = 2
_NUM_GROUPS: Final = 3
"""Process groups that every layout makes, at least."""

_SAVING: Final[tuple[Point, ...]] = ("saving", "copied", "written")
_ONCE: Final[tuple[Point, ...]] = (
    *("restored", "voting", "in vote", "voted", "stepping", "scaled", "stepped", "committed"),
    *_SAVING,
)
_STEPPING: Final[tuple[Point, ...]] = ("stepping", "scaled", "stepped", "committed")
_IN_FIRST_ITERATION: Final[tuple[Point, ...]] = ("counted", "started", "in vote", "committed")
_IN_LAST_ITERATION: Final[tuple[Point, ...]] = ("counted", "in vote", "committed", "saving")
_RAISING: Final[tuple[Point, ...]] = (
    *("forward", "backward", "started", "restored", "finalised"),
    *("voting", "voted", "stepping", "scaled", "stepped", "committed"),
)
_STOPPING: Final[tuple[Point, ...]] = ("backward", "in vote")


Ending = Literal["replace", "shrink", "reattempt"]
"""The recovery from a fault: a new process for the rank, one replica less, or a reattempt. A
reattempt keeps the rank that raised, and replaces only ended processes."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        layout_name: Name of the layout.
        faults: The first strikes in generation 1, the second in generation 2.
        ending: What follows.
        is_sharded: Whether the optimizer's state is sharded over the replicas.
        bf16: Whether the model is in bfloat16.
    """

    layout_name: str
    faults: tuple[Fault, ...]
    ending: Ending = "replace"
    is_sharded: bool = False
    bf16: bool = False

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.layout_name]

    @property
    def point(self) -> Point:
        """Where the newest fault strikes."""
        return self.faults[-1].point

    def __str__(self) -> str:
        faults = ", then ".join(map(_describe, self.faults))
        sharded = " sharded" if self.is_sharded else ""
        precision = " bf16" if self.bf16 else ""
        return f"{self.layout_name}{sharded}{precision} {faults}: {self.ending}"


def _describe(fault: Fault) -> str:
    action = "" if fault.action == "kill" else f"{fault.action} "
    iteration = "" if fault.iteration in {None, FAULTY_ITERATION} else f" of {fault.iteration}"
    return f"{action}{fault.point} {fault.count}{iteration} on {fault.global_rank}"


def all_cases(layout_name: str, *, is_sharded: bool = False, bf16: bool = False) -> Iterator[Case]:
    """Yield every case of a layout."""
    layout = LAYOUTS[layout_name]
    case = functools.partial(Case, layout_name, is_sharded=is_sharded, bf16=bf16)
    for rank in range(layout.num_workers):
        for fault in [*_in_iteration(layout, rank, is_sharded=is_sharded), *_varied(rank)]:
            for ending in _endings_of(fault):
                yield case((fault,), ending)
        for first, second in _during_recovery(layout, rank, is_sharded=is_sharded):
            yield case((first, second))
        for point in _STEPPING:
            # The rank that raised holds no result of the vote, and is told it.
            raised = fault_at(rank, "voted", action="raise")
            yield case((raised, second_at(rank, point)), "reattempt")


def _endings_of(fault: Fault) -> tuple[Ending, ...]:
    return ("replace", "shrink", "reattempt") if fault.action == "raise" else ("replace", "shrink")


def sample(cases: Iterable[Case], seed: int) -> list[Case]:
    """Return one case of each kind: of those that differ in the ranks and in what follows only.

    To go on with the rank that raised is a kind of its own.
    """
    by_kind: dict[object, list[Case]] = {}
    for case in cases:
        kind = tuple((one.point, one.count, one.iteration, one.action) for one in case.faults)
        is_reattempt = case.ending == "reattempt"
        by_kind.setdefault((case.layout_name, is_reattempt, kind), []).append(case)
    chooser = random.Random(seed)
    return [chooser.choice(alike) for alike in by_kind.values()]


def num_buckets(layout: Layout, pp_rank: int) -> int:
    """Return how many buckets a rank has, that of the losses included, with the trial's model.

    Megatron splits the gradients of the first stage only.
    """
    if layout.pp > 1:
        return 3 if pp_rank == 0 else 2
    return 5 if layout.tp == 1 else 4


def _in_iteration(layout: Layout, rank: int, *, is_sharded: bool) -> Iterator[Fault]:
    share = len(even_shares(NUM_MICRO_BATCHES, layout.dp)[layout.dp_rank(rank)])
    buckets = num_buckets(layout, layout.pp_rank(rank))
    counts: dict[Point, int] = {
        "forward": share,
        "backward": share,
        "counted": share,
        "started": buckets,
        "reduced": buckets,
        "finalised": NUM_FINALISE_STEPS,
        **dict.fromkeys(_ONCE, 1),
    }
    if rank == 0:
        counts["publishing"] = 1
    if is_sharded:
        counts["gathered"] = counts["sending"] = 1
    for point, largest in counts.items():
        for count in range(1, largest + 1):
            yield fault_at(rank, point, count)


def _varied(rank: int) -> Iterator[Fault]:
    for point in _IN_FIRST_ITERATION:
        yield fault_at(rank, point, iteration=1)
    for point in _IN_LAST_ITERATION:
        yield fault_at(rank, point, iteration=NUM_ITERATIONS)
    if rank == 0:
        # The others are done with their parts, and must not have left.
        yield fault_at(rank, "written", _NUM_CHECKPOINTS)
        yield fault_at(rank, "publishing", _NUM_CHECKPOINTS)
    for point in _RAISING:
        yield fault_at(rank, point, action="raise")
    for point in _STOPPING:
        yield fault_at(rank, point, action="stop")


def fault_at(
    rank: int,
    point: Point,
    count: int = 1,
    *,
    iteration: int = FAULTY_ITERATION,
    action: Action = "kill",
) -> Fault:
    """Return the fault of a rank of generation 1."""
    # In the checkpoint's thread the next iteration may have begun.
    is_elsewhere = point in {"written", "publishing"}
    return Fault(
        global_rank=rank,
        point=point,
        iteration=None if is_elsewhere else iteration,
        count=count,
        action=action,
    )


def _during_recovery(
    layout: Layout, rank: int, *, is_sharded: bool
) -> Iterator[tuple[Fault, Fault]]:
    """Yield pairs of faults: the second strikes ``rank`` of generation 2."""
    buckets = num_buckets(layout, layout.pp_rank(rank))
    for first in {0, layout.num_workers - 1}:
        early, late = fault_at(first, "counted", 2), fault_at(first, "finalised")
        for count in range(1, _NUM_GROUPS + 1):
            yield early, second_at(rank, "forming", count)
        for count in range(1, _NUM_INTRODUCTIONS + 1):
            yield early, second_at(rank, "introduced", count)
        for point in ("formed", "resumed", "counted", "started", "in vote", "committed"):
            yield early, second_at(rank, point)
        for count in range(1, buckets + 1):
            yield late, second_at(rank, "sharing", count)
        yield late, second_at(rank, "resumed")
        yield late, second_at(rank, "finalised")
        same_cell = (layout.tp_rank(first), layout.pp_rank(first))
        if is_sharded:
            if rank == first:
                # Its shard is all that travels.
                yield early, second_at(rank, "transfer", 1)
        elif (layout.tp_rank(rank), layout.pp_rank(rank)) == same_cell:
            # Nobody else takes part in the transfer.
            yield early, second_at(rank, "transfer", 1)
            yield early, second_at(rank, "transfer", 2)
            yield early, second_at(rank, "transferred")


def second_at(rank: int, point: Point, count: int = 1) -> Fault:
    """Return the fault of a rank of generation 2."""
    return Fault(generation=2, global_rank=rank, point=point, count=count)
