"""StagedFaults in real ranks: what the node and the peers see of them."""

import re
import signal

import pytest

from nodeagent.protocol.local import BreakRank
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from profiles.layout import Layout
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.drill, pytest.mark.timeout(60)]


@pytest.fixture
def paced(training: TrainingSpec) -> TrainingSpec:
    """Without an end, so that no drill can come too late."""
    return training.model_copy(
        update={"num_iterations": None, "iteration_floor_s": 0.05, "memory_interval": 0}
    )


def struck(
    host: RankHost, spec: TrainingSpec, task: str, fault: RankFault, dp: int = 2
) -> list[RankLaunch]:
    """Return the ranks of a task whose rank 1 was told to stage ``fault`` after two iterations."""
    ranks = launches(spec, Layout(dp=dp), task=task)
    host.start(ranks)
    record = host.record(ranks[0])
    host.wait_for(lambda: len(record.loss_by_iteration) >= 2)
    host.send(ranks[1], BreakRank(fault=fault))
    return ranks


@pytest.mark.parametrize(
    ("fault", "key", "ending"),
    [
        (RankFault(kind="exit", count=3), "exit_code", 3),
        (RankFault(kind="segfault"), "signal", signal.SIGSEGV),
    ],
    ids=["exit", "segfault"],
)
def test_rank_dies_as_asked_and_its_peer_hears_of_it(
    host: RankHost, paced: TrainingSpec, fault: RankFault, key: str, ending: int
) -> None:
    ranks = struck(host, paced, f"dies-{fault.kind}", fault)
    assert host.wait_for_exit(ranks[1])[key] == ending
    assert host.wait_for_raise(ranks[0]).is_in_collective


@pytest.mark.parametrize(
    ("status", "is_in_collective"), [("ecc_error", False), ("nccl_timeout", True)]
)
def test_exception_reaches_the_agent_with_its_own_words(
    host: RankHost, paced: TrainingSpec, status: str, is_in_collective: bool
) -> None:
    fault = RankFault(kind="raise", status=status)
    ranks = struck(host, paced, f"raises-{status}", fault)
    raised = host.wait_for_raise(ranks[1])
    assert raised.is_in_collective == is_in_collective
    assert raised.message.startswith(
        {"ecc_error": "CUDA error: uncorrectable ECC", "nccl_timeout": "[Rank 1] Watchdog"}[status]
    )


def test_one_nan_costs_a_second_try_and_nothing_else(host: RankHost, paced: TrainingSpec) -> None:
    directory = f"{paced.checkpoint_dir}-sound"
    sound = launches(
        paced.model_copy(update={"checkpoint_dir": directory}), Layout(dp=2), task="sound"
    )
    host.start(sound)
    ranks = struck(host, paced, "one-nan", RankFault(kind="nan", count=1))
    host.wait_for(
        lambda: all("the iteration runs once more" in host.log(launch) for launch in ranks)
    )
    line = r"^\d{4}-\d\d-\d\dT[\d:.]+Z WARNING nodeagent\.\S+: no finite loss .* iteration=\d+$"
    assert re.search(line, host.log(ranks[0]), re.MULTILINE)
    record, beside = host.record(ranks[0]), host.record(sound[0])
    num_before = len(record.loss_by_iteration)
    host.wait_for(lambda: len(record.loss_by_iteration) >= num_before + 3)
    losses = record.loss_by_iteration
    host.wait_for(lambda: len(beside.loss_by_iteration) >= len(losses))
    expected = {iteration: beside.loss_by_iteration[iteration] for iteration in losses}
    assert losses == pytest.approx(expected, rel=1e-6)
    assert "the iteration runs once more" not in host.log(sound[0])
    recomputed = [one.num_recomputed for one in record.of_kind("iteration_committed")]
    assert sorted(recomputed)[-2:] == [0, paced.num_micro_batches]


def test_two_nans_end_the_iteration_on_all_ranks(host: RankHost, paced: TrainingSpec) -> None:
    ranks = struck(host, paced, "two-nans", RankFault(kind="nan", count=2))
    raised = [host.wait_for_raise(launch) for launch in ranks]
    assert {one.exception_type for one in raised} == {"NonFiniteLossError"}


def test_spike_shows_in_the_loss_of_the_task(host: RankHost, paced: TrainingSpec) -> None:
    ranks = struck(host, paced, "spike", RankFault(kind="spike", factor=6.0, count=2))
    record = host.record(ranks[0])

    def losses() -> list[float]:
        return list(record.loss_by_iteration.values())

    host.wait_for(lambda: max(losses()) > 5 * losses()[0])
    host.wait_for(lambda: losses()[-1] < 2 * losses()[0])


def test_rank_that_does_not_enter_a_collective_leaves_its_peer_waiting(
    host: RankHost, paced: TrainingSpec
) -> None:
    ranks = struck(host, paced, "hangs", RankFault(kind="hang"))
    sound = launches(paced, Layout(), task="beside")
    host.start(sound)
    # A task beside it shows that time passes: no iteration of the hanging one is committed in it.
    hanging, beside = host.record(ranks[0]), host.record(sound[0])
    host.wait_for(lambda: len(beside.loss_by_iteration) >= 5)
    num_committed = len(hanging.loss_by_iteration)
    host.wait_for(lambda: len(beside.loss_by_iteration) >= 15)
    assert len(hanging.loss_by_iteration) == num_committed
    for launch in ranks:
        assert not host.record(launch).of_kind("rank_raised")
        assert not host.has_ended(launch)
    host.halt(ranks, broken=[1])
    host.wait_for(lambda: host.record(ranks[0]).of_kind("rank_halted"))
    assert not host.record(ranks[1]).of_kind("rank_halted")
