"""Ranks that lose one of them finish the iteration in the same processes, with the same losses."""

import os
import signal

import pytest

from controller.core.rules.regroup.next_generation import ResumeDecision, decide, known_votes
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Position, RankRef
from profiles.layout import Layout
from tests.fakes.fault_points import lingering
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(90)]


@pytest.fixture
def buckets(training: TrainingSpec) -> TrainingSpec:
    """Twelve micro-batches per iteration, and ten gradient buckets."""
    return training.model_copy(
        update={"num_micro_batches": 12, "bucket_size": 2000, "checkpoint_interval": 1000}
    )


def kill_and_park(
    host: RankHost, ranks: list[RankLaunch], pids: dict[int, int], lost: int, after: int
) -> dict[int, Position]:
    """Kill rank ``lost`` once iteration ``after`` was committed; return the others' positions."""
    record = host.record(ranks[0])
    host.wait_for(lambda: after in record.loss_by_iteration)
    os.kill(pids[lost], signal.SIGKILL)
    survivors = [launch for launch in ranks if launch.global_rank != lost]
    host.halt(survivors, [lost])
    return {launch.global_rank: host.wait_for_position(launch) for launch in survivors}


def regroup(
    host: RankHost, ranks: list[RankLaunch], lost: int, decision: ResumeDecision
) -> list[RankLaunch]:
    """Start the next generation with a replacement of rank ``lost``."""
    following = []
    for launch in ranks:
        number = launch.global_rank
        ref = RankRef(generation=launch.generation, global_rank=number) if number != lost else None
        update = {"generation": 2, "resume": decision.resume, "continues": ref}
        following.append(launch.model_copy(update=update))
    for parked, launch in zip(ranks, following, strict=True):
        if launch.continues is None:
            host.start([launch])
        else:
            host.join(parked, launch)
    return following


@pytest.mark.parametrize(
    ("layout", "lost"),
    [
        pytest.param(Layout(dp=2), 0, marks=pytest.mark.thorough),
        (Layout(dp=3), 1),
        pytest.param(Layout(tp=2, dp=2), 1, marks=pytest.mark.thorough),
        (Layout(pp=2, dp=2), 3),
    ],
    ids=str,
)
def test_killed_rank_is_replaced_and_nothing_else_restarts(
    faulty_host: RankHost, buckets: TrainingSpec, layout: Layout, lost: int
) -> None:
    host = faulty_host
    name = f"regroup-{layout.tp}-{layout.pp}-{layout.dp}"
    reference = buckets.model_copy(update={"checkpoint_dir": f"{buckets.checkpoint_dir}-reference"})
    expected = host.run(launches(reference, layout, task=f"{name}-whole")).loss_by_iteration
    ranks = launches(buckets, layout, task=name)
    host.plan(name, [lingering(3)])
    pids = host.start(ranks)

    positions = kill_and_park(host, ranks, pids, lost, after=2)
    continues = {number: number for number in positions}
    parked_ranks = Parked(layout, buckets.num_micro_batches, positions)
    decision = decide(parked_ranks, layout, continues)
    following = regroup(host, ranks, lost, decision)

    for parked, launch in zip(ranks, following, strict=True):
        # Files keep the name of the launch that started the process.
        as_started = launch if launch.continues is None else parked
        assert host.wait_for_exit(as_started, 60)["exit_code"] == 0, decision.reason
    for launch in following:
        joined = host.record(launch).of_kind("rank_joined")
        assert [one.source for one in joined] == ["peer" if launch.global_rank == lost else "own"]
    losses = {
        # Where rank 0 is the lost one it may not have told of the newest.
        **{vote.iteration: vote.loss for vote in known_votes(parked_ranks).values()},
        **host.record(ranks[0]).loss_by_iteration,
        **host.record(following[0]).loss_by_iteration,
    }
    assert losses == pytest.approx(expected, rel=1e-5)
    if decision.rung in {"commit", "re-run"}:
        assert losses == {number: expected[number] for number in losses}


def test_a_model_that_is_divided_anew_does_not_pass_for_a_state_before_it_is_there(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(update={"num_iterations": 1000, "checkpoint_interval": 1000})
    before, after = Layout(pp=2), Layout(dp=2)
    ranks = launches(spec, before, task="divided")
    host.start(ranks)
    record = host.record(ranks[0])
    host.wait_for(lambda: max(record.loss_by_iteration, default=0) >= 3)
    host.halt(ranks, [])
    position = host.wait_for_position(ranks[0])
    assert position.has_state
    decision = decide(Parked(before, spec.num_micro_batches, {0: position}), after, {0: 0})
    assert decision.resume.source == "disk"
    ref = RankRef(generation=ranks[0].generation, global_rank=0)
    following = launches(spec, after, task="divided", generation=2)[0].model_copy(
        update={"resume": decision.resume, "continues": ref}
    )
    # Its peer never comes: the second fault strikes while the generation forms.
    host.join(ranks[0], following)
    host.wait_for(lambda: host.record(following).hellos)
    host.halt([following], [1])
    forming = host.wait_for_position(following)
    assert not forming.has_state
    assert not forming.copies


def test_replicas_that_are_whole_keep_their_micro_batches(
    host: RankHost, buckets: TrainingSpec
) -> None:
    # Slow micro-batches, so that the fault finds some of them counted.
    spec = buckets.model_copy(update={"iteration_floor_s": 1.2, "num_iterations": 4})
    layout = Layout(dp=3)
    fast = buckets.model_copy(
        update={"num_iterations": 4, "checkpoint_dir": f"{buckets.checkpoint_dir}-reference"}
    )
    expected = host.run(launches(fast, layout, task="reuse-whole")).loss_by_iteration
    ranks = launches(spec, layout, task="reuse")
    pids = host.start(ranks)
    record = host.record(ranks[0])
    host.wait_for(lambda: max(record.loss_by_iteration, default=0) >= 1)
    log_of_2 = host.record(ranks[2])
    host.wait_for(lambda: any(pulse.iteration >= 2 for pulse in log_of_2.pulses))

    os.kill(pids[1], signal.SIGKILL)
    raised = [ranks[0], ranks[2]]
    # The others notice nothing until they reduce; the halt reaches them between two micro-batches.
    host.wait_for_exit(ranks[1])
    host.halt(raised, [1])
    positions = {launch.global_rank: host.wait_for_position(launch) for launch in raised}
    parked = Parked(layout, spec.num_micro_batches, positions)
    decision = decide(parked, layout, {0: 0, 2: 2})
    following = regroup(host, ranks, 1, decision)

    for parked_rank, launch in zip(ranks, following, strict=True):
        as_started = launch if launch.continues is None else parked_rank
        assert host.wait_for_exit(as_started, 60)["exit_code"] == 0, decision.reason
    committed = host.record(following[0]).of_kind("iteration_committed")
    assert committed[0].num_saved == decision.resume.num_saved
    losses = {**record.loss_by_iteration, **host.record(following[0]).loss_by_iteration}
    assert losses == pytest.approx(expected, rel=1e-5)
