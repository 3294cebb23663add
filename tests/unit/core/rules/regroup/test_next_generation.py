"""How a generation begins from the positions of the last one: every rung and its edges."""

from collections.abc import Mapping

import pytest

from controller.core.rules.regroup.next_generation import ResumeDecision, Source, decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.regroup import HeldCopy, Position, Resume, VoteResult
from profiles.layout import Layout

DP3 = Layout(dp=3)
B = 12


def vote(iteration: int) -> VoteResult:
    return VoteResult(
        iteration=iteration, loss=2.0, grad_norm=1.0, num_tokens=768, is_park_wanted=False
    )


def at(committed: int = 4, /, **changes: object) -> Position:
    return Position(committed=committed, has_state=True, num_buckets=2).model_copy(update=changes)


def counting(*counted: int, **changes: object) -> Position:
    return at().model_copy(update={"phase": "accumulate", "counted": counted, **changes})


def decided(
    positions: Mapping[int, Position],
    old: Layout = DP3,
    new: Layout | None = None,
    continues: Mapping[int, int] | None = None,
    *,
    resume: Resume | None = None,
    excluded: tuple[Source, ...] = (),
    is_sharded: bool = False,
    allows_reuse: bool = True,
) -> ResumeDecision:
    parked = Parked(old, B, positions, resume, is_sharded)
    goes_on = {rank: rank for rank in positions} if continues is None else continues
    return decide(parked, new or old, goes_on, excluded=excluded, allows_reuse=allows_reuse)


def test_whole_replicas_keep_their_sums_and_share_what_the_lost_one_had() -> None:
    decision = decided({0: counting(0, 1, 2, 3), 2: counting(8, 9)})
    resume = decision.resume
    assert (decision.rung, resume.source, resume.committed) == ("reuse", "peer", 4)
    assert (resume.state_from, resume.kept) == ((0, 2), (0, 2))
    assert resume.shares == ((4, 6), (5, 7), (10, 11))
    assert (resume.num_saved, resume.num_recomputed) == (6, 4)
    assert decision.reason.startswith("reuse: 2 of 3 replicas keep 6 micro-batches, 4 are computed")


def test_fewer_replicas_take_over_the_micro_batches_of_a_lost_one() -> None:
    decision = decided(
        {0: counting(0, 1, 2, 3), 2: counting(8, 9, 10, 11)},
        new=Layout(dp=2),
        continues={0: 0, 2: 1},
    )
    assert decision.resume.shares == ((4, 6), (5, 7))
    assert decision.resume.kept == (0, 1)


def test_a_bucket_that_was_reduced_anywhere_is_copied() -> None:
    whole = {0: counting(0, 1, 2, 3, reduced=("a",)), 1: counting(4, 5, 6, 7)}
    [bucket] = decided(whole).resume.reduced
    assert (bucket.tp_rank, bucket.pp_rank, bucket.bucket, bucket.holder) == (0, 0, "a", 0)


def test_nothing_is_computed_where_every_bucket_was_reduced_somewhere() -> None:
    decision = decided(
        {0: counting(0, 1, 2, 3, reduced=("a",)), 2: at(reduced=("b",), is_torn=True)}
    )
    assert decision.resume.shares == ((), (), ())
    assert (decision.resume.num_saved, decision.resume.num_recomputed) == (12, 0)


def test_a_bucket_of_another_stage_does_not_complete_this_one() -> None:
    old = Layout(pp=2, dp=2)
    counted = {rank: counting(*range(6 * (rank % 2), 6 * (rank % 2) + 6)) for rank in range(4)}
    counted[0] = counted[0].model_copy(update={"reduced": ("a", "b")})
    decision = decided(counted, old)
    assert decision.resume.kept == (0, 1, 2, 3)
    assert {(each.pp_rank, each.holder) for each in decision.resume.reduced} == {(0, 0)}
    assert decision.resume.shares == ((), ())  # all was counted: only reductions are left
    assert decision.resume.num_recomputed == 0


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({1: counting(6), 3: counting(6, 7)}, "counted different micro-batches"),
        ({1: counting(6, is_torn=True), 3: counting(6)}, "interrupted inside a micro-batch"),
        ({1: counting(6)}, "replica 1 has lost a rank"),
        ({1: counting(6), 3: counting(6, has_state=False)}, "replica 1 has lost a rank"),
    ],
)
def test_a_replica_whose_ranks_disagree_starts_again(
    others: dict[int, Position], words: str
) -> None:
    decision = decided({0: counting(0, 1), 2: counting(0, 1), **others}, Layout(pp=2, dp=2))
    assert decision.rung == "reuse"
    assert decision.resume.kept == (0, 2)
    assert sorted(each for share in decision.resume.shares for each in share) == list(range(2, 12))
    assert words in decision.reason


def test_no_whole_replica_means_the_iteration_begins_afresh() -> None:
    decision = decided({0: counting(0, is_torn=True), 2: counting(8, 9, is_torn=True)})
    assert (decision.rung, decision.resume.shares, decision.resume.kept) == ("re-run", (), ())
    assert decision.resume.num_recomputed == 2 + 3 + 3
    assert "interrupted" in decision.reason


def test_a_micro_batch_that_two_replicas_counted_can_not_be_kept() -> None:
    decision = decided({0: counting(0, 1), 1: counting(1, 2)})
    assert decision.rung == "re-run"
    assert "same micro-batch" in decision.reason


def test_what_may_lack_a_gradient_is_not_used() -> None:
    spoilt = counting(4, 5).model_copy(update={"is_spoilt": True})
    decision = decided({0: counting(0, 1, 2, 3, reduced=("a", "b")), 1: spoilt})
    assert decision.rung == "re-run"
    assert "rank 1" in decision.reason


def test_reuse_can_be_ruled_out() -> None:
    positions = {0: counting(0, 1), 1: counting(4, 5)}
    assert decided(positions, allows_reuse=False).rung == "re-run"


def test_at_a_boundary_nothing_is_computed_again() -> None:
    decision = decided({0: at(), 1: at(), 2: at()}, new=Layout(dp=2), continues={0: 0, 1: 1})
    assert (decision.rung, decision.resume.num_recomputed) == ("re-run", 0)
    assert "had not begun" in decision.reason
    assert decision.resume.state_from == (0, 1)


def test_a_result_of_the_vote_obliges_everybody_to_step() -> None:
    positions = {0: at(phase="vote", vote=vote(5)), 2: at(phase="vote")}
    decision = decided(positions)
    assert decision.rung == "commit"
    assert (decision.resume.committed, decision.resume.vote) == (4, vote(5))
    assert decision.resume.state_from == (0, 2)
    assert (decision.resume.num_saved, decision.resume.num_recomputed) == (0, 0)


def test_who_has_stepped_tells_those_who_have_not() -> None:
    decision = decided({0: at(5, vote=vote(5)), 2: at(phase="vote")})
    assert (decision.rung, decision.resume.vote) == ("commit", vote(5))
    assert decision.resume.state_from == (0, 2)


def test_without_the_result_those_behind_get_a_copy() -> None:
    decision = decided({0: at(5), 2: at(phase="vote")})
    assert decision.rung == "commit"
    assert (decision.resume.committed, decision.resume.vote) == (5, None)
    assert decision.resume.state_from == (0,)


def test_a_rank_that_does_not_go_on_still_tells_the_result() -> None:
    decision = decided({0: at(phase="vote"), 2: at(5, vote=vote(5))}, continues={0: 0})
    assert decision.resume.vote == vote(5)
    assert decision.resume.state_from == (0,)


def test_a_result_that_the_generation_was_told_is_not_forgotten() -> None:
    told = Resume(source="peer", committed=4, vote=vote(5))
    decision = decided({0: at(phase="vote"), 1: at(phase="vote")}, resume=told)
    assert decision.resume.vote == vote(5)


def test_a_rank_without_its_gradient_can_not_step() -> None:
    decision = decided({0: at(phase="vote", vote=vote(5)), 1: counting(4, 5)})
    assert decision.resume.state_from == (0,)


def test_a_second_fault_in_the_same_iteration_keeps_what_both_have_left() -> None:
    first = decided({0: counting(0, 1, 2, 3), 2: counting(8, 9)}).resume
    positions = {0: counting(0, 1, 2, 3, 4), 2: counting(8, 9, 10, 11)}
    second = decided(positions, resume=first).resume
    assert second.num_saved == 9
    assert second.shares == ((6,), (5,), (7,))
    assert second.num_recomputed == 2  # as far as the farthest, but no farther than its share


def test_shares_of_an_iteration_that_was_finished_since_mean_nothing() -> None:
    old = Resume(source="peer", committed=3, shares=((), (), (0,)))
    assert decided({0: counting(0), 1: counting(4)}, resume=old).resume.num_recomputed == 1


def copies(iteration: int, *stages: int) -> tuple[HeldCopy, ...]:
    return tuple(
        HeldCopy(tp_rank=0, pp_rank=stage, dp_rank=0, iteration=iteration) for stage in stages
    )


def test_without_a_living_copy_of_a_stage_a_complete_copies_in_memory_serve() -> None:
    old = Layout(pp=2, dp=2)
    positions = {
        0: at(5, copies=copies(4, 1) + copies(3, 1)),
        1: at(5, copies=copies(3, 0)),
    }
    decision = decided(positions, old)
    assert (decision.rung, decision.resume.source) == ("restore", "memory")
    assert decision.resume.committed == 3
    assert [(c.pp_rank, c.holder) for c in decision.resume.shards] == [(0, 1), (1, 0)]
    assert (decision.resume.kept, decision.resume.shares, decision.resume.reduced) == ((), (), ())
    assert decided(positions, old, excluded=("memory",)).resume.source == "disk"


def test_copies_are_kept_that_either_holder_may_be_lost_of() -> None:
    old = Layout(pp=2)
    # Of iteration 5 nobody but the owners has a copy yet.
    both = copies(4, 0, 1)
    positions = {0: at(5, copies=both + copies(5, 0)), 1: at(5, copies=both + copies(5, 1))}
    assert decided(positions, old).resume.kept_copies == (4,)
    # What is newer than what all begin with is no way back.
    alone = {0: at(5, copies=copies(4, 0, 1) + copies(6, 0, 1)), 1: at(5)}
    assert decided(alone, old).resume.kept_copies == (4,)
    assert decided({0: at(5, copies=copies(4, 0)), 1: at(5)}, old).resume.kept_copies == ()


def test_copies_are_kept_against_the_loss_of_each_holder() -> None:
    old = Layout(pp=2)
    # Rank 0 is new and has both of iteration 6; of stage 0 rank 1 has what is older.
    positions = {
        0: at(7, copies=copies(6, 0, 1)),
        1: at(7, copies=copies(4, 0, 1) + copies(3, 0, 1) + copies(6, 1)),
    }
    # If rank 0 is lost 4 is what remains; 3 protects against nothing that 4 does not.
    assert decided(positions, old).resume.kept_copies == (6, 4)
    # Where either may be lost of the newest one, that is enough.
    both = {rank: at(7, copies=copies(6, 0, 1) + copies(4, 0, 1)) for rank in (0, 1)}
    assert decided(both, old).resume.kept_copies == (6,)


def test_incomplete_copies_send_all_ranks_to_the_disk() -> None:
    positions = {0: at(5, copies=copies(4, 1)), 1: at(5, copies=copies(3, 0))}
    decision = decided(positions, Layout(pp=2, dp=2))
    assert decision.resume.source == "disk"
    assert "stage 1" in decision.reason


def test_survivors_stay_where_they_are_beside_a_copy_of_the_same_iteration() -> None:
    positions = {0: at(4, copies=copies(4, 1) + copies(3, 1)), 1: at(4, copies=copies(3, 0))}
    resume = decided(positions, Layout(pp=2, dp=2)).resume
    assert (resume.source, resume.committed, resume.state_from) == ("peer", 4, (0, 1))
    assert [(one.pp_rank, one.holder, one.is_copy) for one in resume.shards] == [(1, 0, True)]


def test_nobody_left_means_the_disk() -> None:
    decision = decided({})
    assert decision.resume == Resume(source="disk")
    assert "no rank continues" in decision.reason


def test_another_layout_of_the_model_needs_the_disk() -> None:
    positions = {rank: at() for rank in range(4)}
    assert decided(positions, Layout(dp=4), Layout(tp=2, dp=2)).resume.source == "disk"


def test_a_process_that_goes_to_another_stage_gets_its_state_from_a_peer() -> None:
    old = Layout(pp=2, dp=2)
    positions = {0: at(), 1: at(), 2: at()}
    decision = decided(positions, old, Layout(pp=2, dp=1), {0: 0, 2: 1})
    assert decision.resume.state_from == (0, 1)
    assert decided(positions, old, Layout(pp=2, dp=1), {0: 0, 1: 1}).resume.source == "disk"


def test_a_sharded_state_needs_every_replica() -> None:
    whole = {rank: at() for rank in range(3)}
    assert decided(whole, is_sharded=True).resume.source == "peer"
    del whole[1]
    assert decided(whole, is_sharded=True).resume.source == "disk"


def test_a_shard_is_where_a_rank_says_it_is() -> None:
    # Generation 2 had two replicas. Generation 3, of three, did not form.
    held = {0: at(shard=(0, 2)), 1: at(shard=(1, 2))}
    going_on = {0: 0, 1: 1}
    for layout in (Layout(dp=2), DP3):
        resume = decided(held, DP3, layout, going_on, is_sharded=True).resume
        assert (resume.source, resume.num_shards) == ("peer", 2)
        assert [(one.dp_rank, one.holder) for one in resume.shards] == [(0, 0), (1, 1)]
    renumbered = {1: at(shard=(0, 2)), 2: at(shard=(1, 2))}
    resume = decided(renumbered, DP3, Layout(dp=2), {1: 1, 2: 0}, is_sharded=True).resume
    assert [(one.dp_rank, one.holder) for one in resume.shards] == [(0, 1), (1, 0)]


def test_of_two_divisions_of_the_state_the_one_that_is_complete_serves() -> None:
    held = {0: at(shard=(0, 2)), 1: at(shard=(1, 3)), 2: at(shard=(1, 2))}
    resume = decided(held, is_sharded=True).resume
    assert (resume.source, resume.num_shards, resume.state_from) == ("peer", 2, (0, 2))
    held[2] = at(shard=(2, 3))
    assert decided(held, is_sharded=True).resume.source == "disk"


def test_a_lost_shard_comes_from_its_copy_and_the_others_from_their_owners() -> None:
    copy = HeldCopy(tp_rank=0, pp_rank=0, dp_rank=1, num_shards=3, iteration=4)
    positions = {0: counting(0, copies=(copy,)), 2: counting(4)}
    decision = decided(positions, is_sharded=True)
    assert decision.rung == "reuse"
    shards = decision.resume.shards
    assert [(one.dp_rank, one.holder, one.is_copy) for one in shards] == [
        (0, 0, False),
        (1, 0, True),
        (2, 2, False),
    ]
    assert decision.resume.num_shards == 3


def test_copies_of_another_number_of_shards_are_not_combined() -> None:
    copies_of_two = tuple(
        HeldCopy(tp_rank=0, pp_rank=0, dp_rank=number, num_shards=2, iteration=3)
        for number in range(2)
    )
    resume = decided({0: at(0, has_state=False, copies=copies_of_two)}, is_sharded=True).resume
    assert (resume.source, resume.num_shards, len(resume.shards)) == ("memory", 2, 2)


def test_a_new_rank_without_its_state_yet_hands_nothing_out() -> None:
    decision = decided({0: counting(0, 1), 1: at(0, has_state=False, num_buckets=0)})
    assert decision.rung == "reuse"
    assert decision.resume.state_from == (0,)


def test_copies_in_memory_that_are_older_than_the_disk_give_way() -> None:
    positions = {0: at(9, copies=copies(3, 1)), 1: at(9, copies=copies(3, 0))}
    layout = Layout(pp=2, dp=2)
    parked = Parked(layout, B, positions)
    going_on = {0: 0, 1: 1}
    assert decide(parked, layout, going_on, disk_iteration=3).resume.source == "memory"
    assert decide(parked, layout, going_on, disk_iteration=5).resume.source == "disk"


def test_a_rank_that_has_stepped_goes_back_where_a_shard_of_its_iteration_is_lost() -> None:
    held = tuple(
        HeldCopy(tp_rank=0, pp_rank=0, dp_rank=number, num_shards=3, iteration=4)
        for number in (0, 1)
    )
    positions = {
        0: at(5, copies=held),
        2: at(4, phase="vote", counted=(4, 5), reduced=("a", "b")),
    }
    decision = decided(positions, is_sharded=True)
    assert decision.rung != "commit"
    assert decision.resume.committed == 4
    assert decision.resume.state_from == (2,)
    sources = [(one.dp_rank, one.holder, one.is_copy) for one in decision.resume.shards]
    assert sources == [(0, 0, True), (1, 0, True), (2, 2, False)]


@pytest.mark.parametrize("num_shards", [2**63, 0, -1])
def test_a_number_of_shards_that_can_not_be_makes_no_state_complete(num_shards: int) -> None:
    claimed = HeldCopy(tp_rank=0, pp_rank=0, dp_rank=0, num_shards=num_shards, iteration=9)
    lost = {0: at(0, has_state=False, copies=(claimed,))}
    assert decided(lost, is_sharded=True).resume.source == "disk"
    holding = {rank: at(shard=(rank, num_shards), copies=(claimed,)) for rank in range(3)}
    decision = decided(holding, is_sharded=True)
    assert (decision.resume.source, decision.resume.shards) == ("disk", ())
    whole = {rank: at(copies=(claimed,)) for rank in range(3)}
    assert decided(whole, is_sharded=True).resume.kept_copies == ()
