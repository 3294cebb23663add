"""A rank builds its model while the task trains on, and joins it at an iteration boundary."""

import pytest

from controller.core.rules.regroup.next_generation import decide
from controller.core.rules.regroup.parked import Parked
from nodeagent.protocol.ids import Generation
from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.protocol.regroup import RankRef
from profiles.layout import Layout
from tests.fakes.fault_points import lingering
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("old", "new", "is_sharded"),
    [
        pytest.param(Layout(dp=1), Layout(dp=2), False, marks=pytest.mark.thorough),
        (Layout(tp=2), Layout(tp=2, dp=2), False),
        (Layout(dp=1), Layout(dp=2), True),
    ],
    ids=str,
)
def test_prepared_ranks_join_and_the_losses_stay(
    faulty_host: RankHost, training: TrainingSpec, old: Layout, new: Layout, is_sharded: bool
) -> None:
    host = faulty_host
    spec = training.model_copy(
        update={
            "num_iterations": 8,
            "checkpoint_interval": 1000,
            "shard_optimizer": is_sharded,
        }
    )
    name = f"prepared-{new.tp}-{is_sharded}".lower()
    reference = spec.model_copy(update={"checkpoint_dir": f"{spec.checkpoint_dir}-reference"})
    expected = host.run(launches(reference, old, task=f"{name}-whole")).loss_by_iteration
    first = launches(spec, old, task=name)
    host.plan(name, [lingering(5)])
    host.start(first)
    record = host.record(first[0])
    host.wait_for(lambda: max(record.loss_by_iteration, default=0) >= 1)

    places = range(old.num_workers, new.num_workers)
    spares = [
        launch.model_copy(update={"prepares_for": launch.global_rank})
        for launch in launches(spec, new, task=name)
        if launch.global_rank in places
    ]
    pids = host.start(spares)
    waiting = {launch.global_rank: host.wait_for_position(launch) for launch in spares}
    assert not any(position.has_state for position in waiting.values())

    host.park_at_boundary(first)
    positions = {launch.global_rank: host.wait_for_position(launch) for launch in first}
    continues = {number: number for number in (*positions, *waiting)}
    parked = Parked(old, spec.num_micro_batches, positions, is_sharded=is_sharded)
    decision = decide(parked, new, continues)
    assert decision.resume.num_recomputed == 0
    second = launches(spec, new, task=name, generation=2)
    for parked_rank, launch in zip([*first, *spares], second, strict=True):
        ref = RankRef(generation=Generation(1), global_rank=parked_rank.global_rank)
        update = {"continues": ref, "resume": decision.resume}
        host.join(parked_rank, launch.model_copy(update=update))
    for parked_rank in (*first, *spares):
        assert host.wait_for_exit(parked_rank, 60)["exit_code"] == 0
    joined = {
        launch.global_rank: host.record(launch).of_kind("rank_joined")[0].source
        for launch in second
    }
    assert {number: joined[number] for number in pids} == dict.fromkeys(pids, "peer")
    losses = {**record.loss_by_iteration, **host.record(second[0]).loss_by_iteration}
    assert losses == pytest.approx(expected, rel=1e-5)
