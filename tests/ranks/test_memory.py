"""State without a survivor comes back from the memory of another rank."""

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

from controller.core.rules.placement import Worker
from controller.core.rules.regroup.copy_holders import copy_holders
from controller.core.rules.regroup.next_generation import ResumeDecision, decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.ids import NodeId
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from nodeagent.protocol.regroup import Position, RankRef
from profiles.layout import Layout
from tests.fakes.fault_points import lingering
from tests.fakes.rank_host import REPOSITORY, RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]


@pytest.fixture
def long(training: TrainingSpec) -> TrainingSpec:
    """Eight iterations, without a checkpoint on disk in time."""
    return training.model_copy(
        update={
            "num_micro_batches": 12,
            "bucket_size": 2000,
            "checkpoint_interval": 1000,
            "num_iterations": 8,
        }
    )


def with_copies(ranks: list[RankLaunch]) -> list[RankLaunch]:
    """Return the launches of a generation whose ranks lie on a node each."""
    layout, training = ranks[0].layout, ranks[0].settings
    placement = [Worker(NodeId(f"n{number}"), 0) for number in range(layout.num_workers)]
    holders = copy_holders(layout, placement, is_sharded=training.shard_optimizer)
    return [launch.model_copy(update={"copy_holders": holders}) for launch in ranks]


def reference(
    host: RankHost, training: TrainingSpec, layout: Layout, task: str
) -> dict[int, float]:
    """Return the losses of a run without a fault, and without copies."""
    update = {
        "checkpoint_dir": f"{training.checkpoint_dir}-reference",
        "memory_interval": 0,
    }
    ranks = launches(training.model_copy(update=update), layout, task=task)
    return host.run(ranks).loss_by_iteration


class StuckError(Exception):
    """A survivor waits in an operation that gloo has forgotten to wake, and would be replaced."""


def lose(
    host: RankHost, ranks: list[RankLaunch], pids: dict[int, int], lost: set[int], after: int
) -> dict[int, Position]:
    """Kill ranks once iteration ``after`` was committed; return where the others stand."""
    record = host.record(ranks[0])
    host.wait_for(lambda: after in record.loss_by_iteration)
    for number in lost:
        os.kill(pids[number], signal.SIGKILL)
    survivors = [launch for launch in ranks if launch.global_rank not in lost]
    host.halt(survivors, sorted(lost))
    records = [host.record(launch) for launch in survivors]
    try:
        host.wait_for(
            lambda: all(
                one.of_kind("rank_halted") or one.of_kind("rank_raised") for one in records
            ),
            timeout_s=10,
        )
    except AssertionError as error:
        host.kill_ranks()
        raise StuckError from error
    return {launch.global_rank: host.wait_for_position(launch) for launch in survivors}


def go_on(
    host: RankHost,
    ranks: list[RankLaunch],
    continues: dict[int, int],
    layout: Layout,
    decision: ResumeDecision,
) -> dict[int, float]:
    """Train in the next generation to the end; return its losses."""
    old_of = {new: old for old, new in continues.items()}
    fresh = launches(ranks[0].settings, layout, task=ranks[0].task, generation=2)
    following = []
    for launch in with_copies(fresh):
        old = old_of.get(launch.global_rank)
        ref = None if old is None else RankRef(generation=ranks[old].generation, global_rank=old)
        following.append(launch.model_copy(update={"continues": ref, "resume": decision.resume}))
    for launch in following:
        if launch.continues is None:
            host.start([launch])
        else:
            host.join(ranks[launch.continues.global_rank], launch)
    for launch in following:
        as_started = launch if launch.continues is None else ranks[launch.continues.global_rank]
        assert host.wait_for_exit(as_started, 60)["exit_code"] == 0, decision.reason
    return host.record(following[0]).loss_by_iteration


@pytest.mark.parametrize(
    ("layout", "is_sharded", "lost"),
    [
        pytest.param(Layout(pp=2), False, {1}, marks=pytest.mark.thorough),
        pytest.param(Layout(pp=2, dp=2), False, {2, 3}, marks=pytest.mark.thorough),
        pytest.param(Layout(dp=2), True, {0}, marks=pytest.mark.thorough),
        (Layout(dp=3), True, {1}),
        # The middle stage is in other groups than the outer ones, and all name their pairs alike.
        (Layout(pp=3), False, {1}),
        pytest.param(Layout(tp=2, dp=2), True, {3}, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_the_last_copy_of_a_shard_in_a_process_is_not_the_last_one(
    faulty_host: RankHost, long: TrainingSpec, layout: Layout, is_sharded: bool, lost: set[int]
) -> None:
    host = faulty_host
    shape = long.model.model_copy(update={"num_layers": 3 if layout.pp == 3 else 2})
    spec = long.model_copy(update={"shard_optimizer": is_sharded, "model": shape})
    task = f"memory-{layout.tp}-{layout.pp}-{layout.dp}-{is_sharded}".lower()
    expected = reference(host, spec, layout, f"{task}-whole")
    try:
        check_restored(host, spec, layout, lost, task, expected)
    except StuckError:
        # Once may happen.
        check_restored(host, spec, layout, lost, f"{task}-again", expected)


@pytest.mark.usefixtures("training_program")
@pytest.mark.parametrize(
    ("layout", "is_sharded", "num_rounds"),
    [
        (Layout(dp=2), True, 1),
        (Layout(dp=3), True, 3),
        (Layout(dp=64), True, 2),
        (Layout(tp=8, pp=4, dp=8), True, 2),
        (Layout(pp=3), False, 3),
    ],
    ids=str,
)
def test_ranks_are_connected_in_few_rounds(
    layout: Layout, is_sharded: bool, num_rounds: int
) -> None:
    placement = [Worker(NodeId(f"n{rank // 8}"), rank % 8) for rank in range(layout.num_workers)]
    holders = copy_holders(layout, placement, is_sharded=is_sharded)
    pairs = import_module("nodeagent.rank.groups.parallel_groups").in_rounds(holders)
    held = [(owner, holder) for owner, holder in enumerate(holders) if holder is not None]
    assert set(pairs) == {(min(pair), max(pair)) for pair in held}
    assert len(set(pairs)) == len(pairs)
    depth = dict.fromkeys(range(layout.num_workers), 0)
    for one, other in pairs:
        depth[one] = depth[other] = max(depth[one], depth[other]) + 1
    assert max(depth.values()) <= num_rounds


def check_restored(
    host: RankHost,
    spec: TrainingSpec,
    layout: Layout,
    lost: set[int],
    task: str,
    expected: dict[int, float],
) -> None:
    """Lose ranks, go on with copies, and compare with the run without a fault."""
    is_sharded = spec.shard_optimizer
    spec = spec.model_copy(update={"checkpoint_dir": f"{spec.checkpoint_dir}-{task}"})
    ranks = with_copies(launches(spec, layout, task=task))
    host.plan(task, [lingering(4)])
    pids = host.start(ranks)

    positions = lose(host, ranks, pids, lost, after=3)
    continues = {number: number for number in positions}
    parked = Parked(layout, spec.num_micro_batches, positions, is_sharded=is_sharded)
    decision = decide(parked, layout, continues)
    assert any(shard.is_copy for shard in decision.resume.shards), decision.reason
    losses = go_on(host, ranks, continues, layout, decision)

    # At most the iteration whose copy was on its way is run again.
    newest = max(host.record(ranks[0]).loss_by_iteration)
    assert min(losses) >= newest
    before = host.record(ranks[0]).loss_by_iteration
    assert {**before, **losses} == pytest.approx(expected, rel=1e-5)


def test_a_sharded_state_is_divided_anew_over_fewer_replicas(
    faulty_host: RankHost, long: TrainingSpec
) -> None:
    host = faulty_host
    spec = long.model_copy(update={"shard_optimizer": True})
    old, new = Layout(dp=3), Layout(dp=2)
    expected = reference(host, spec, old, "anew-whole")
    ranks = with_copies(launches(spec, old, task="anew"))
    host.plan("anew", [lingering(4)])
    pids = host.start(ranks)

    positions = lose(host, ranks, pids, {1}, after=3)
    continues = {0: 0, 2: 1}
    parked = Parked(old, spec.num_micro_batches, positions, is_sharded=True)
    decision = decide(parked, new, continues)
    losses = go_on(host, ranks, continues, new, decision)
    before = host.record(ranks[0]).loss_by_iteration
    assert {**before, **losses} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("layout", "leaving", "interval"),
    [
        (Layout(dp=3), {2}, 5),
        pytest.param(Layout(dp=3), {1}, 1, marks=pytest.mark.thorough),
        pytest.param(Layout(tp=2, dp=2), {0, 1}, 5, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_a_sharded_state_goes_on_without_ranks_that_leave_at_a_boundary(
    faulty_host: RankHost, long: TrainingSpec, layout: Layout, leaving: set[int], interval: int
) -> None:
    host = faulty_host
    spec = long.model_copy(update={"shard_optimizer": True, "memory_interval": interval})
    name = f"leaving-{layout.tp}-{interval}"
    expected = reference(host, spec, layout, f"{name}-whole")
    ranks = with_copies(launches(spec, layout, task=name))
    host.plan(name, [lingering(3)])
    host.start(ranks)
    record = host.record(ranks[0])
    host.wait_for(lambda: 2 in record.loss_by_iteration)
    host.park_at_boundary(ranks, completes_copies=True)
    positions = {launch.global_rank: host.wait_for_position(launch) for launch in ranks}
    before = record.loss_by_iteration
    newest = max(before)

    new = Layout(tp=layout.tp, dp=layout.dp - 1)
    staying = sorted(set(positions) - leaving)
    continues = {old: place for place, old in enumerate(staying)}
    parked = Parked(layout, spec.num_micro_batches, positions, is_sharded=True)
    decision = decide(parked, new, continues)
    assert (decision.resume.source, decision.resume.committed) == ("peer", newest)
    copied = {shard.dp_rank for shard in decision.resume.shards if shard.is_copy}
    assert copied == {layout.dp_rank(rank) for rank in leaving}
    losses = go_on(host, ranks, continues, new, decision)
    assert min(losses) == newest + 1
    assert {**before, **losses} == pytest.approx(expected, rel=1e-5)


def test_sharding_changes_no_loss(host: RankHost, long: TrainingSpec) -> None:
    layout = Layout(dp=3)
    plain = reference(host, long, layout, "unsharded")
    sharded = long.model_copy(
        update={"shard_optimizer": True, "checkpoint_dir": f"{long.checkpoint_dir}-sharded"}
    )
    assert reference(host, sharded, layout, "sharded") == plain


def test_ranks_complete_their_copies_before_they_park() -> None:
    command = [sys.executable, "-m", "tests.fakes.warm", "tests.fakes.parking_ranks"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    said: dict[str, list[dict[str, Any]]] = json.loads(ended.stdout)

    # What was on its way is waited for, then what is newest.
    for rank in said["slow"]:
        assert {stage: set(copies) for stage, copies in rank["held"].items()} == {
            "0": {1, 2},
            "1": {1, 2},
        }
    # Where copies can't be completed they park all the same.
    whole, broken = said["broken"]
    assert whole["held"]["0"] == [1]  # its own
    assert 2 not in {*whole["held"]["0"], *whole["held"]["1"], *broken["held"]["1"]}
    for rank in (whole, broken):
        assert (rank["is_halted"], rank["has_waited"]) == (False, False)
    # One that has no memory for a copy says so to the other, who does not wait either.
    for what, stage, reason in (
        ("narrow", "1", "no host memory for the copy: "),
        ("full", "0", "no memory for the copy of rank 0: "),
    ):
        for rank in said[what]:
            assert 1 in rank["held"][stage]
            assert (rank["is_halted"], rank["has_waited"]) == (False, False)
            assert rank["is_broken"]
        assert 2 not in said[what][1]["held"][stage]
        # It is told, though no other iteration follows.
        [missed] = said[what][1]["missed"]
        assert missed[:2] == ["memory", 2]
        assert missed[2].startswith(reason)
        assert not said[what][0]["missed"]
    assert 2 not in said["narrow"][0]["held"]["1"]
    # A halt ends the wait.
    assert [rank["is_halted"] for rank in said["halted"]] == [True, True]


def test_while_copies_are_on_their_way_the_newest_complete_ones_are_kept() -> None:
    command = [sys.executable, "-m", "tests.fakes.warm", "tests.fakes.copying_ranks"]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    said = json.loads(ended.stdout)
    held = said["on their way"]
    # Iteration 4 was never complete, and 5 is not yet: both stages must be had after 3.
    assert 5 in held["0"]
    assert 3 in held["0"]
    assert 3 in held["1"]
    # Where a copy finds no memory, the same: what is complete stays, and the rank says why no other
    # follows.
    without = said["without memory"]
    assert 3 in without["held"]["0"]
    assert 3 in without["held"]["1"]
    assert without["missed"][0] == 5
    assert without["missed"][1].startswith("no host memory for the copy: ")
    # Two iterations that protect against one loss each both stay, until newer copies are complete.
    assert said["kept"] == [[3, 5, 6], [6, 7]]
