"""Drills in real ranks: what the node and the peers see of them."""

import signal

import pytest

from nodeagent.protocol.drills import RankFault
from nodeagent.protocol.local import BreakRank
from nodeagent.protocol.training import RankLaunch, TrainingSpec
from profiles.layout import Layout
from tests.fakes.rank_host import RankHost, launches

pytestmark = [pytest.mark.ranks, pytest.mark.drill, pytest.mark.timeout(60)]

NUM_ITERATIONS = 12


@pytest.fixture
def paced(training: TrainingSpec) -> TrainingSpec:
    """Slow enough that a drill falls into the middle."""
    return training.model_copy(
        update={"num_iterations": NUM_ITERATIONS, "iteration_floor_s": 0.1, "memory_interval": 0}
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
    sound = launches(paced, Layout(dp=2), task="sound")
    host.start(sound)
    ranks = struck(host, paced, "one-nan", RankFault(kind="nan", count=1))
    for launch in (*sound, *ranks):
        assert host.wait_for_exit(launch)["exit_code"] == 0
    expected = host.record(sound[0]).loss_by_iteration
    assert len(expected) == NUM_ITERATIONS
    assert host.record(ranks[0]).loss_by_iteration == pytest.approx(expected, rel=1e-6)


def test_two_nans_end_the_iteration_on_all_ranks(host: RankHost, paced: TrainingSpec) -> None:
    ranks = struck(host, paced, "two-nans", RankFault(kind="nan", count=2))
    raised = [host.wait_for_raise(launch) for launch in ranks]
    assert {one.exception_type for one in raised} == {"NonFiniteLossError"}


def test_spike_shows_in_the_loss_of_the_task(host: RankHost, paced: TrainingSpec) -> None:
    ranks = struck(host, paced, "spike", RankFault(kind="spike", factor=6.0, count=2))
    assert host.wait_for_exit(ranks[0])["exit_code"] == 0
    losses = list(host.record(ranks[0]).loss_by_iteration.values())
    assert max(losses) > 5 * losses[0]
    assert losses[-1] < 2 * losses[0]


def test_rank_that_does_not_enter_a_collective_leaves_its_peer_waiting(
    host: RankHost, paced: TrainingSpec
) -> None:
    spec = paced.model_copy(update={"num_iterations": None})
    ranks = struck(host, spec, "hangs", RankFault(kind="hang"))
    sound = launches(spec, Layout(), task="beside")
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
