"""More than one rank lost, a rank that comes back, and the loss of what ranks live by."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from tests.campaigns.matrix import fault_at, second_at
from tests.fakes.directories import short_directory
from tests.fakes.fault_points import Fault, lingering
from tests.fakes.process_states import is_stopped
from tests.fakes.rank_host import RankHost, rank_host
from tests.fakes.rank_task import RankTask
from tests.fakes.whole_parameters import read_parameters, relative_difference

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]


@pytest.fixture
def spec(training: TrainingSpec) -> TrainingSpec:
    """Four micro-batches per iteration, several buckets, dropout; a checkpoint after three."""
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    return training.model_copy(
        update={
            "model": training.model.model_copy(update=dropout),
            "num_micro_batches": 4,
            "bucket_size": 6000,
        }
    )


class WholeRuns:
    """Finished tasks without a fault: one for each specification and layout."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tasks: dict[tuple[TrainingSpec, Layout], RankTask] = {}

    def of(self, host: RankHost, spec: TrainingSpec, layout: Layout) -> RankTask:
        key = spec.model_copy(update={"checkpoint_dir": ""}), layout
        if key not in self._tasks:
            name = f"whole-{len(self._tasks)}"
            whole = spec.model_copy(update={"checkpoint_dir": str(self._folder / name)})
            self._tasks[key] = RankTask(host, whole, layout, name)
            self._tasks[key].start()
            self._tasks[key].finish()
        return self._tasks[key]


@pytest.fixture(scope="module")
def whole_runs(tmp_path_factory: pytest.TempPathFactory) -> WholeRuns:
    return WholeRuns(tmp_path_factory.mktemp("whole"))


def check_equal(task: RankTask, whole: RankTask) -> None:
    assert task.losses == pytest.approx(whole.losses, rel=1e-5)
    found, wanted = (
        read_parameters(Path(one.training.checkpoint_dir) / "iter_0000006") for one in (task, whole)
    )
    assert relative_difference(found, wanted) <= 1e-5


def pids(task: RankTask) -> dict[int, int]:
    return {number: member.pid for number, member in task.members.items()}


def sources(task: RankTask) -> dict[int, str]:
    """Return where each rank of the present generation got its state."""
    joined = {
        number: task.host.record(member.launch).of_kind("rank_joined")[0]
        for number, member in task.members.items()
    }
    return {number: one.source for number, one in joined.items()}


@pytest.mark.parametrize(
    ("layout", "lost"),
    [
        (Layout(tp=2, dp=2), (0, 3)),
        (Layout(tp=2, dp=2), (2, 3)),
        pytest.param(Layout(pp=2, dp=2), (0, 3), marks=pytest.mark.thorough),
        pytest.param(Layout(dp=4), (0, 2), marks=pytest.mark.thorough),
    ],
    ids=["different replicas and places", "one replica", "different stages", "two replicas"],
)
def test_two_ranks_lost_at_once_are_replaced(
    whole_runs: WholeRuns,
    faulty_host: RankHost,
    spec: TrainingSpec,
    layout: Layout,
    lost: tuple[int, int],
) -> None:
    # Each rank has two in an iteration, so that a fault in the second leaves sums behind.
    spec = spec.model_copy(update={"num_micro_batches": 2 * layout.dp})
    whole = whole_runs.of(faulty_host, spec, layout)
    faults = [fault_at(rank, "backward", 2) for rank in lost]
    task = RankTask(faulty_host, spec, layout, f"two-{layout.tp}-{layout.pp}-{lost[0]}")
    task.start(faults)
    before = pids(task)
    for fault in faults:
        task.wait_for_fault(fault)
    task.park(lost)
    task.regroup()
    task.finish()
    check_equal(task, whole)
    assert sources(task) == {n: "peer" if n in lost else "own" for n in range(layout.num_workers)}
    survivors = set(before) - set(lost)
    assert all(pids(task)[number] == before[number] for number in survivors)


@pytest.mark.parametrize(
    ("layout", "lost"),
    [
        (Layout(pp=2, dp=2), (2, 3)),
        pytest.param(Layout(tp=2, dp=2), (0, 2), marks=pytest.mark.thorough),
        (Layout(dp=2), (0, 1)),
    ],
    ids=["all replicas of a stage", "all of a tensor-parallel rank", "all ranks"],
)
def test_where_no_replica_has_the_state_all_load_the_newest_checkpoint(
    whole_runs: WholeRuns,
    faulty_host: RankHost,
    spec: TrainingSpec,
    layout: Layout,
    lost: tuple[int, int],
) -> None:
    host = faulty_host
    # In-memory checkpoints would be nearer.
    spec = spec.model_copy(update={"memory_interval": 0})
    whole = whole_runs.of(host, spec, layout)
    task = RankTask(host, spec, layout, f"all-{layout.tp}-{layout.pp}")
    task.start([lingering(5)])
    before = pids(task)
    record = host.record(task.members[0].launch)
    host.wait_for(lambda: 4 in record.loss_by_iteration)
    host.wait_for(Path(spec.checkpoint_dir, "iter_0000003").exists)
    task.lose(*lost)
    task.park(lost)
    decision = task.regroup()
    task.finish()
    assert decision.rung == "restore"
    assert set(sources(task).values()) == {"disk"}
    record = host.record(task.members[0].launch)
    # The iterations after the checkpoint are run again, with the same losses to the last bit.
    assert list(record.loss_by_iteration) == [4, 5, 6]
    assert task.losses == whole.losses
    check_equal(task, whole)
    kept = set(pids(task).values()) & set(before.values())
    # One that gloo does not wake is replaced.
    assert len(kept) >= len(before) - len(lost) - task.num_stuck


@pytest.mark.parametrize(
    "fault",
    [
        fault_at(1, "started", 2, action="stop"),
        # It holds the result of the vote, and commits the iteration when it wakes.
        fault_at(0, "voted", action="stop"),
        # Its checkpoint lacks nothing but the name.
        Fault(global_rank=0, point="publishing", action="stop"),
    ],
    ids=lambda fault: fault.point,
)
def test_stopped_rank_that_wakes_later_harms_nobody(
    whole_runs: WholeRuns, faulty_host: RankHost, spec: TrainingSpec, fault: Fault
) -> None:
    layout = Layout(dp=3)
    whole = whole_runs.of(faulty_host, spec, layout)
    task = RankTask(faulty_host, spec, layout, f"stopped-{fault.point}")
    task.start([fault])
    stopped = task.members[fault.global_rank]
    task.wait_for_fault(fault)
    positions = task.park({fault.global_rank})
    # The agent would kill it by its pidfd here.
    task.regroup(spares_left_out={fault.global_rank})
    assert is_stopped(stopped.pid)
    os.kill(stopped.pid, signal.SIGCONT)
    task.finish()
    check_equal(task, whole)
    woken = faulty_host.record(stopped.launch)
    # gloo may have forgotten to wake it.
    faulty_host.halt([stopped.launch], [])
    faulty_host.wait_for(lambda: woken.of_kind("rank_raised") or woken.of_kind("rank_halted"))
    # Alone it commits nothing that the others had not voted for.
    newest = max(position.committed for position in positions.values())
    assert max((pulse.iteration for pulse in woken.pulses), default=0) <= newest + 1


def test_agent_that_is_lost_during_a_regroup_costs_nothing(
    whole_runs: WholeRuns, faulty_host: RankHost, spec: TrainingSpec
) -> None:
    host, layout = faulty_host, Layout(tp=2, dp=2)
    whole = whole_runs.of(host, spec, layout)
    task = RankTask(host, spec, layout, "agent")
    task.start([lingering(2)])
    record = host.record(task.members[0].launch)
    host.wait_for(lambda: 1 in record.loss_by_iteration)
    task.lose(1)
    task.park({1})
    # Without this one no group can form.
    os.kill(pids(task)[0], signal.SIGSTOP)
    task.regroup()
    records = [host.record(member.launch) for member in task.members.values()]
    host.wait_for(lambda: all(record.hellos for record in records[1:]))
    host.cut_connections()
    assert not any(record.of_kind("rank_joined") for record in records)
    os.kill(pids(task)[0], signal.SIGCONT)
    task.finish()
    check_equal(task, whole)


@pytest.mark.parametrize(
    ("layout", "mate", "is_sharded"),
    [
        (Layout(pp=2, dp=2), 2, False),
        pytest.param(Layout(tp=2, dp=2), 1, False, marks=pytest.mark.thorough),
        (Layout(tp=2, dp=2), 1, True),
    ],
    ids=["pipeline", "tensor", "tensor-sharded"],
)
def test_the_mate_of_a_lost_rank_waits_with_its_model_and_joins_the_replacement(
    whole_runs: WholeRuns,
    faulty_host: RankHost,
    spec: TrainingSpec,
    layout: Layout,
    mate: int,
    is_sharded: bool,
) -> None:
    host = faulty_host
    spec = spec.model_copy(update={"shard_optimizer": is_sharded})
    whole = whole_runs.of(host, spec, layout)
    task = RankTask(host, spec, layout, f"mate-{layout.tp}-{is_sharded}".lower())
    task.start([lingering(3), lingering(5, generation=2)])
    before = pids(task)
    task.wait_for_fault(lingering(3))
    task.lose(0)
    task.park({0})
    decision = task.regroup(replace(layout, dp=1), leaves_waiting={mate})
    assert (decision.resume.source, decision.resume.committed) == ("peer", 2), decision.reason
    assert any(shard.is_copy for shard in decision.resume.shards) == is_sharded
    [waiting] = task.waiting.values()
    assert not host.wait_for_position(waiting.launch).has_state
    record = host.record(task.members[0].launch)
    host.wait_for(lambda: record.loss_by_iteration)
    task.park(())
    task.regroup(layout)
    task.finish()
    check_equal(task, whole)
    assert len(set(pids(task).values()) - set(before.values())) == 1
    [where] = [number for number, pid in pids(task).items() if pid == before[mate]]
    assert sources(task)[where] == "peer"


@pytest.fixture
def own_host() -> Iterator[RankHost]:
    """A host whose template may be lost."""
    with short_directory() as state_dir, rank_host(state_dir) as host:
        yield host


def test_ranks_survive_their_template_and_are_replaced_without_it(
    whole_runs: WholeRuns, own_host: RankHost, spec: TrainingSpec
) -> None:
    host, layout = own_host, Layout(dp=3)
    whole = whole_runs.of(host, spec, layout)
    task = RankTask(host, spec.model_copy(update={"iteration_floor_s": 0.5}), layout, "template")
    task.start()
    before = pids(task)
    host.lose_template()
    record = host.record(task.members[0].launch)
    host.wait_for(lambda: 2 in record.loss_by_iteration)
    task.lose(1)
    task.park({1})
    # Without this one no group can form, and no iteration passes while the template imports.
    os.kill(before[0], signal.SIGSTOP)
    task.regroup(start=host.start_cold)
    host.start_template()
    os.kill(before[0], signal.SIGCONT)
    record = host.record(task.members[0].launch)
    host.wait_for(lambda: record.loss_by_iteration)
    task.lose(2)
    task.park({2})
    task.regroup()
    task.finish(orphans={0})
    check_equal(task, whole)
    assert pids(task)[0] == before[0]
    task.forget()


@pytest.mark.parametrize(
    "after", [Layout(dp=2), pytest.param(Layout(dp=3), marks=pytest.mark.thorough)], ids=str
)
@pytest.mark.parametrize(
    "point", ["forming", "transfer", pytest.param("introduced", marks=pytest.mark.thorough)]
)
def test_a_generation_that_does_not_form_costs_no_shard(
    whole_runs: WholeRuns,
    faulty_host: RankHost,
    spec: TrainingSpec,
    after: Layout,
    point: Literal["forming", "introduced", "transfer"],
) -> None:
    # Nobody but the ranks themselves has the state of the optimizer.
    spec = spec.model_copy(
        update={"shard_optimizer": True, "memory_interval": 0, "checkpoint_interval": 1000}
    )
    whole = whole_runs.of(faulty_host, spec, Layout(dp=2))
    task = RankTask(faulty_host, spec, Layout(dp=2), f"grows-{point}-{after.dp}")
    fault = second_at(2, point)
    task.start([fault, lingering(3)])
    record = faulty_host.record(task.members[0].launch)
    faulty_host.wait_for(lambda: 2 in record.loss_by_iteration)
    task.park(())
    before = pids(task)
    assert task.regroup(Layout(dp=3)).resume.source == "peer"
    task.wait_for_fault(fault)
    task.park({2})
    decision = task.regroup(after)
    assert decision.resume.source == "peer", decision.reason
    assert decision.resume.num_shards == 2
    task.finish()
    check_equal(task, whole)
    assert {number: pids(task)[number] for number in before} == before
