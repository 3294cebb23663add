"""Whatever parked ranks report, the decision counts every micro-batch once and loses nothing."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st

from controller.core.rules.regroup.next_generation import ResumeDecision, decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.regroup import HeldCopy, Position, VoteResult, even_shares
from profiles.layout import Layout
from tests.fakes.examples import examples

pytestmark = pytest.mark.timeout(60)

BUCKETS = ("a", "b")
LEVEL = 3


def vote(iteration: int) -> VoteResult:
    return VoteResult(
        iteration=iteration, loss=1.0, grad_norm=1.0, num_tokens=1, is_park_wanted=False
    )


copies = st.lists(
    st.builds(
        HeldCopy,
        tp_rank=st.integers(0, 1),
        pp_rank=st.integers(0, 1),
        dp_rank=st.integers(0, 2),
        num_shards=st.integers(1, 3),
        iteration=st.integers(1, 3),
    ),
    max_size=6,
).map(tuple)

anything = st.builds(
    Position,
    committed=st.integers(0, 5),
    has_state=st.booleans(),
    phase=st.sampled_from(["idle", "accumulate", "reduce", "finalise", "vote", "stepping"]),
    counted=st.lists(st.integers(-1, 9), max_size=6).map(tuple),
    is_torn=st.booleans(),
    reduced=st.lists(st.sampled_from(BUCKETS), unique=True).map(tuple),
    num_buckets=st.sampled_from([0, 2]),
    vote=st.none() | st.integers(0, 6).map(vote),
    copies=copies,
)
"""Also what no rank would report: the function is total."""


@st.composite
def situations(draw: st.DrawFn) -> tuple[Parked, Layout, dict[int, int]]:
    """Any positions, some of which go on at any place."""
    old = Layout(draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    new = Layout(old.tp, old.pp, draw(st.integers(1, 3)))
    ranks = range(old.num_workers)
    positions = draw(st.dictionaries(st.sampled_from(ranks), anything))
    places = draw(st.permutations(range(new.num_workers)))
    going = [rank for rank in positions if draw(st.booleans())]
    continues = dict(zip(going, places, strict=False))
    num_micro_batches = draw(st.integers(old.dp, 9))
    return Parked(old, num_micro_batches, positions, None, draw(st.booleans())), new, continues


@st.composite
def sane_situations(draw: st.DrawFn) -> tuple[Parked, Layout, dict[int, int]]:
    """What real ranks report after a fault: each keeps the place (tp, pp) that it had."""
    old = Layout(draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3)))
    num_micro_batches = draw(st.integers(old.dp, 9))
    shares = even_shares(num_micro_batches, old.dp)
    has_voted = draw(st.booleans())
    positions: dict[int, Position] = {}
    done = [draw(st.integers(0, len(share))) for share in shares]
    for rank in range(old.num_workers):
        if draw(st.integers(0, 3)) == 0:
            continue  # lost
        share = shares[old.dp_rank(rank)]
        counted = share if has_voted else share[: done[old.dp_rank(rank)]]
        is_stepped = has_voted and draw(st.booleans())
        reduced = BUCKETS if has_voted else BUCKETS[: draw(st.integers(0, 2))]
        positions[rank] = Position(
            committed=LEVEL + is_stepped,
            has_state=True,
            phase="idle" if is_stepped else "vote" if has_voted else "accumulate",
            counted=() if is_stepped else counted,
            is_torn=not has_voted and draw(st.integers(0, 4)) == 0,
            reduced=() if is_stepped else reduced if all(
                done[dp] == len(shares[dp]) for dp in range(old.dp)
            ) or has_voted else (),
            num_buckets=2,
            vote=vote(LEVEL + 1) if is_stepped or (has_voted and draw(st.booleans())) else None,
        )  # fmt: skip
    return Parked(old, num_micro_batches, positions), old, {rank: rank for rank in positions}


def decided(situation: tuple[Parked, Layout, dict[int, int]]) -> ResumeDecision:
    parked, layout, continues = situation
    return decide(parked, layout, continues)


@examples(400)
@given(situations() | sane_situations())
def test_every_micro_batch_is_counted_exactly_once(
    situation: tuple[Parked, Layout, dict[int, int]],
) -> None:
    parked, layout, continues = situation
    decision = decided(situation)
    resume = decision.resume
    if not resume.shares:
        assert resume.kept == ()
        assert resume.reduced == ()
        return
    assert len(resume.shares) == layout.dp
    computed = [each for share in resume.shares for each in share]
    kept_by_replica = {
        parked.layout.dp_rank(old): parked.positions[old].counted
        for old, new in continues.items()
        if new in resume.kept
    }
    kept = [each for counted in kept_by_replica.values() for each in counted]
    needed = {(tp, pp, bucket) for tp in range(layout.tp) for pp in range(layout.pp)
              for bucket in BUCKETS}  # fmt: skip
    copied = {(each.tp_rank, each.pp_rank, each.bucket) for each in resume.reduced}
    if computed or not needed <= copied:
        once = Counter(range(parked.num_micro_batches))
        assert Counter(computed) + Counter(kept) == once
        assert resume.num_saved == len(kept)
        assert max(map(len, resume.shares)) - min(map(len, resume.shares)) <= 1
    assert 0 <= resume.num_recomputed <= len(computed)
    assert resume.num_saved + len(computed) <= parked.num_micro_batches


@examples(400)
@given(situations() | sane_situations())
def test_whoever_hands_something_out_has_it_and_goes_on(
    situation: tuple[Parked, Layout, dict[int, int]],
) -> None:
    parked, layout, continues = situation
    resume = decided(situation).resume
    old_of = {new: old for old, new in continues.items()}
    for new in resume.state_from:
        position = parked.positions[old_of[new]]
        assert position.has_state
        assert parked.layout.tp_rank(old_of[new]) == layout.tp_rank(new)
        assert parked.layout.pp_rank(old_of[new]) == layout.pp_rank(new)
        has_stepped = resume.vote and position.committed == resume.vote.iteration
        assert position.committed == resume.committed or has_stepped
    if resume.source == "peer":
        cells = {(layout.tp_rank(new), layout.pp_rank(new)) for new in resume.state_from}
        cells |= {(shard.tp_rank, shard.pp_rank) for shard in resume.shards}
        assert len(cells) == layout.tp * layout.pp
    if parked.is_sharded and resume.source == "peer":
        assert len(resume.shards) == layout.tp * layout.pp * parked.layout.dp
    for bucket in resume.reduced:
        holder = parked.positions[old_of[bucket.holder]]
        assert bucket.bucket in holder.reduced
        assert (bucket.tp_rank, bucket.pp_rank) == (
            layout.tp_rank(bucket.holder),
            layout.pp_rank(bucket.holder),
        )
    level = resume.vote.iteration if resume.vote else resume.committed
    for shard in resume.shards:
        place = (shard.tp_rank, shard.pp_rank, shard.dp_rank)
        if shard.is_copy:
            assert (*place, resume.num_shards, level) in {
                (copy.tp_rank, copy.pp_rank, copy.dp_rank, copy.num_shards, copy.iteration)
                for copy in parked.positions[old_of[shard.holder]].copies
            }
        else:
            old = old_of[shard.holder]
            assert shard.holder in resume.state_from
            places = parked.layout.tp_rank(old), parked.layout.pp_rank(old)
            assert place == (*places, parked.layout.dp_rank(old))
    for new in resume.kept:
        assert new in resume.state_from
        assert not parked.positions[old_of[new]].is_torn


@examples(400)
@given(sane_situations())
def test_a_committed_iteration_survives_while_one_copy_of_every_shard_does(
    situation: tuple[Parked, Layout, dict[int, int]],
) -> None:
    parked, layout, _ = situation
    decision = decided(situation)
    cells = {(layout.tp_rank(rank), layout.pp_rank(rank)) for rank in parked.positions}
    is_covered = len(cells) == layout.tp * layout.pp
    assert (decision.resume.source == "peer") == is_covered
    is_voted = any(position.vote for position in parked.positions.values())
    if is_covered and is_voted:
        resume = decision.resume
        assert (resume.vote.iteration if resume.vote else resume.committed) == LEVEL + 1


@examples(200)
@given(situations())
def test_what_is_excluded_is_not_chosen(situation: tuple[Parked, Layout, dict[int, int]]) -> None:
    parked, layout, continues = situation
    for excluded in ("peer", "memory"):
        assert decide(parked, layout, continues, excluded=[excluded]).resume.source != excluded
    assert decide(parked, layout, continues, allows_reuse=False).rung != "reuse"
