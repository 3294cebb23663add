"""Faults at exact points of an iteration and of a regroup: a part of ``make phases``."""

import pytest

from profiles.layout import Layout
from tests.campaigns.matrix import NUM_ITERATIONS, Case, all_cases, fault_at, sample, second_at
from tests.campaigns.trial import Trials, check_counted_once
from tests.fakes.fault_points import Contribution
from tests.fakes.rank_host import RankHost

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

CASES = [
    Case("dp3", (fault_at(0, "forward", 2),)),
    # The other rank of the broken replica goes on, and drops its sums.
    Case("tp2-dp2", (fault_at(2, "backward", 3),)),
    # The replica that is left has all sums of both, and is alone.
    Case("dp2", (fault_at(0, "reduced", 5),), "shrink"),
    Case("pp2-dp2", (fault_at(3, "finalised", 3),), "shrink"),
    Case("dp3", (fault_at(2, "in vote"),)),
    # It goes on although its state is that of no iteration.
    Case("dp2", (fault_at(0, "scaled", action="raise"),), "reattempt"),
    # All others have stepped by a vote whose result this rank does not know.
    Case("tp2-dp2", (fault_at(3, "voted", action="raise"),), "reattempt"),
    # Its newest shard is lost with it. The one before is complete on all ranks.
    Case("dp2", (fault_at(1, "sending"),), is_sharded=True),
    # Nothing is left to train. The final checkpoint is not there yet, and its writer is lost.
    Case("dp2", (fault_at(0, "saving", iteration=NUM_ITERATIONS),)),
    # The survivor could not even meet its new peer.
    Case("dp2", (fault_at(1, "counted", 2), second_at(1, "forming"))),
    Case("dp2", (fault_at(0, "counted", 2), second_at(0, "transfer", 2))),
    # The only copy of the state is lost, and no checkpoint is there yet: all begin from the seed.
    Case("dp2", (fault_at(0, "counted", 2), second_at(1, "transfer", 2))),
    Case("tp2-dp2", (fault_at(0, "publishing", 2),)),
    # Some survivors are connected with the new peer when it is lost, others wait for it.
    Case("dp4", (fault_at(3, "counted", 2), second_at(3, "introduced"))),
    Case("pp2-dp2", (fault_at(3, "finalised"), second_at(1, "sharing", 2))),
    # Parameters and their float32 copies stay in step.
    Case("tp2-dp2", (fault_at(2, "stepped"),), is_sharded=True, bf16=True),
]
MORE = [
    Case("dp2", (fault_at(1, "started", 3),)),
    Case("dp2", (fault_at(1, "written"),)),
    Case("dp2", (fault_at(0, "committed"),)),
    Case("dp2", (fault_at(1, "reduced", 3),), bf16=True),
    Case("pp2-dp2", (fault_at(1, "counted", 2),)),
    # One rank of the whole replica is left by its data-parallel peer, the other is not.
    Case("tp2-dp2", (fault_at(2, "started", 3),)),
    Case("tp2-dp2", (fault_at(1, "finalised", 2),)),
    Case("dp3", (fault_at(0, "voted"),), "shrink"),
    Case("pp2-dp2", (fault_at(3, "forward", 2),), "shrink", bf16=True),
    Case("dp3", (fault_at(1, "committed"),), "shrink", is_sharded=True, bf16=True),
]


@pytest.fixture(scope="module")
def trials(warm_faulty_host: RankHost, tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(warm_faulty_host, tmp_path_factory.mktemp("phases"))


@pytest.mark.parametrize(
    "case", [*CASES, *(pytest.param(case, marks=pytest.mark.thorough) for case in MORE)], ids=str
)
def test_run_with_a_fault_equals_the_run_without(trials: Trials, case: Case) -> None:
    outcome = trials.run(case)
    if outcome.num_stuck:
        # Gloo may forget to wake a rank (nodeagent.rank.groups.halting), but not twice.
        outcome = trials.run(case)
    assert not outcome.num_stuck


def contributions(
    iteration: int, *shares: tuple[int, ...], generation: int = 1
) -> list[Contribution]:
    """Return what the replicas gave to one bucket."""
    return [
        Contribution(
            generation=generation,
            iteration=iteration,
            tp_rank=0,
            pp_rank=0,
            dp_rank=dp_rank,
            bucket="a",
            micro_batches=share,
        )
        for dp_rank, share in enumerate(shares)
    ]


@pytest.mark.parametrize(
    ("shares", "is_right"),
    [
        ([(0, 1, 2, 3), (4, 5, 6, 7)], True),
        ([(0, 1, 2, 3, 4), (4, 5, 6, 7)], False),
        ([(0, 1, 2), (4, 5, 6, 7)], False),
        ([(0, 1, 2, 3, 4, 5, 6, 7)], False),
    ],
    ids=["once", "twice", "never", "by one replica alone"],
)
def test_micro_batch_that_is_not_counted_once_is_noticed(
    shares: list[tuple[int, ...]], *, is_right: bool
) -> None:
    half = ((0, 1, 2, 3), (4, 5, 6, 7))
    found = [one for iteration in (1, 3, 4) for one in contributions(iteration, *half)]
    # What the first generation did not complete does not count.
    found += contributions(2, (0, 1), ())
    found += contributions(2, *shares, generation=2)
    layouts = [Layout(dp=2), Layout(dp=2)]
    if is_right:
        check_counted_once(found, layouts)
    else:
        with pytest.raises(AssertionError):
            check_counted_once(found, layouts)


def test_sample_has_one_case_of_each_kind() -> None:
    every = list(all_cases("dp2"))
    chosen = sample(every, seed=1)
    assert sample(every, seed=1) == chosen
    assert {case.point for case in chosen} == {case.point for case in every}
    assert len(chosen) < len(every) / 2
