"""Which exceptions count as the echo of another rank's end."""

import pytest

from nodeagent.protocol.ids import Generation, TaskId
from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.rank.agent_link.rendezvous_store import StoreClosedError
from nodeagent.rank.process.failure_report import describe, is_in_collective
from profiles.layout import Layout
from tests.fakes.rank_host import launches

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[third_party/gloo/transport/tcp/pair.cc] Connection closed by peer"),
        RuntimeError("Application timeout caused pair closure (gloo)"),
        StoreClosedError("the rendezvous store was closed"),
        ConnectionResetError("Connection reset by peer"),
    ],
)
def test_broken_communication_counts(error: Exception) -> None:
    assert is_in_collective(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("CUDA out of memory"),
        ValueError("gloo"),
        OSError(28, "No space left on device"),
    ],
)
def test_own_errors_do_not_count(error: Exception) -> None:
    assert not is_in_collective(error)


def test_long_texts_are_cut_and_keep_the_cause(training: TrainingSpec) -> None:
    launch = launches(training, Layout(), task="long")[0]
    report = describe(ValueError("x" * 100_000), launch, 3, None)
    assert (report.task, report.generation, report.iteration) == (
        TaskId("long"),
        Generation(1),
        3,
    )
    assert len(report.message) == 2_000
    assert len(report.traceback) == 16_000
