"""What ranks report when something breaks, and that a stop is agreed by all of them."""

import os
import signal
from pathlib import Path

import pytest

from nodeagent.protocol.local import BreakRank, StopAtBoundary
from nodeagent.protocol.rank_faults import RankFault
from nodeagent.protocol.rank_launch import RankLaunch, TrainingSpec
from profiles.layout import Layout
from tests.fakes.rank_host import RankHost, RankRecord, launches

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]


@pytest.fixture
def endless(training: TrainingSpec) -> TrainingSpec:
    return training.model_copy(update={"num_iterations": None, "checkpoint_interval": 1000})


def wait_for_iteration(host: RankHost, ranks: list[RankLaunch], iteration: int) -> None:
    record = host.record(ranks[0])
    host.wait_for(lambda: max(record.loss_by_iteration, default=0) >= iteration)


def wait_for_hello(host: RankHost, record: RankRecord, number: int) -> None:
    host.wait_for(lambda: len(record.hellos) >= number)


def test_killed_rank_makes_its_peer_report_a_broken_collective(
    host: RankHost, endless: TrainingSpec
) -> None:
    ranks = launches(endless, Layout(dp=2), task="killed")
    pids = host.start(ranks)
    wait_for_iteration(host, ranks, 2)

    os.kill(pids[1], signal.SIGKILL)

    assert host.wait_for_exit(ranks[1])["signal"] == signal.SIGKILL
    raised = host.wait_for_raise(ranks[0])
    assert raised.is_in_collective
    assert raised.iteration > 2
    assert "Traceback" in raised.traceback
    # It waits for the verdict instead of ending.
    os.kill(pids[0], 0)


def test_killed_pipeline_stage_is_felt_by_the_other(host: RankHost, endless: TrainingSpec) -> None:
    ranks = launches(endless, Layout(pp=2), task="stage")
    pids = host.start(ranks)
    wait_for_iteration(host, ranks, 2)
    os.kill(pids[0], signal.SIGKILL)
    assert host.wait_for_raise(ranks[1]).is_in_collective


def test_exception_drill_raises_in_the_chosen_rank_only(
    host: RankHost, endless: TrainingSpec
) -> None:
    ranks = launches(endless, Layout(dp=2), task="drill")
    host.start(ranks)
    wait_for_iteration(host, ranks, 2)

    host.send(ranks[1], BreakRank(fault=RankFault(kind="raise")))

    raised = host.wait_for_raise(ranks[1])
    assert raised.exception_type == "DrillError"
    assert not raised.is_in_collective
    assert "_forward_step" in raised.traceback
    # The culprit's process lives, and is to its peer like a dead one.
    assert host.wait_for_raise(ranks[0]).is_in_collective


def test_graceful_stop_ends_all_ranks_after_the_same_iteration(
    host: RankHost, endless: TrainingSpec
) -> None:
    ranks = launches(endless, Layout(tp=2, dp=2), task="stop")
    host.start(ranks)
    wait_for_iteration(host, ranks, 1)

    host.send(ranks[3], StopAtBoundary())

    assert [host.wait_for_exit(launch)["exit_code"] for launch in ranks] == [0, 0, 0, 0]
    done = [host.record(launch).of_kind("rank_done")[0] for launch in ranks]
    assert {one.reason for one in done} == {"stopped"}
    assert len({one.iteration for one in done}) == 1
    saved = host.record(ranks[0]).of_kind("checkpoint_saved")
    assert [one.iteration for one in saved] == [done[0].iteration]
    assert saved[0].num_bytes > 0


def test_rank_that_waits_in_rendezvous_is_woken_by_the_end_of_its_generation(
    host: RankHost, endless: TrainingSpec
) -> None:
    ranks = launches(endless, Layout(dp=2), task="alone")
    num_calls = host.num_store_calls
    host.start(ranks[:1])
    host.wait_for(lambda: host.num_store_calls >= num_calls + 2)

    host.drop_generation(ranks[0])

    raised = host.wait_for_raise(ranks[0])
    assert raised.is_in_collective
    assert "has ended" in raised.message


def test_reports_survive_reconnects_without_loss_or_repetition(
    host: RankHost, training: TrainingSpec
) -> None:
    spec = training.model_copy(update={"num_iterations": 8, "iteration_floor_s": 0.1})
    ranks = launches(spec, Layout(dp=2), task="reconnect")
    host.stop_storing()
    host.start(ranks)
    record = host.record(ranks[0])
    for iteration in (2, 4):
        wait_for_iteration(host, ranks, iteration)
        num_hellos = len(record.hellos)
        host.cut_connections()
        wait_for_hello(host, record, num_hellos + 1)
    host.resume_storing()
    host.cut_connections()

    assert [host.wait_for_exit(launch)["exit_code"] for launch in ranks] == [0, 0]
    assert list(record.loss_by_iteration) == list(range(1, 9))
    seqs = sorted({report.seq for report in record.received})
    assert seqs == list(range(1, len(seqs) + 1))
    # Unstored reports came again, with their old numbers and contents.
    assert len(record.received) > len(seqs)
    assert len({report.model_dump_json() for report in record.received}) == len(seqs)


def test_bad_data_file_is_one_clear_report(
    host: RankHost, training: TrainingSpec, tmp_path: Path
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("too short")
    spec = training.model_copy(update={"data_path": str(short)})
    ranks = launches(spec, Layout(), task="short")
    host.start(ranks)
    raised = host.wait_for_raise(ranks[0])
    assert raised.exception_type == "DataError"
    assert str(short) in raised.message
    assert not raised.is_in_collective


def test_layout_that_does_not_fit_is_refused(host: RankHost, training: TrainingSpec) -> None:
    ranks = launches(training, Layout(dp=5), task="misfit")
    host.start(ranks[:1])
    raised = host.wait_for_raise(ranks[0])
    assert raised.exception_type == "LaunchError"
    assert "num_micro_batches 4 is less than dp 5" in raised.message


def test_runaway_learning_rate_is_reported_as_a_non_finite_loss(
    host: RankHost, endless: TrainingSpec
) -> None:
    spec = endless.model_copy(update={"learning_rate": 1e30})
    ranks = launches(spec, Layout(dp=2), task="nan")
    host.start(ranks)
    for launch in ranks:
        raised = host.wait_for_raise(launch)
        assert raised.exception_type == "NonFiniteLossError"
        assert not raised.is_in_collective
