"""What a drill does to a rank, call by call; with real ranks in ``tests/ranks/test_drills.py``."""

import math

import pytest

from nodeagent.protocol.rank_faults import RankFault
from nodeagent.rank.agent_link.drill_error import DrillError
from nodeagent.rank.agent_link.staged_faults import StagedFaults
from profiles.drills.exception_texts import RAISED_BY_STATUS


class Stage:
    """A rank without training: time passes only while it waits, or is told to."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked: RankFault | None = None
        self.drills = StagedFaults(self._take, self.wait, lambda: self.now)

    def _take(self) -> RankFault | None:
        asked, self.asked = self.asked, None
        return asked

    def wait(self, duration_s: float) -> None:
        self.now += duration_s

    def iterate(self, iteration: int, micro_batches: list[int]) -> list[float]:
        """Return the losses of one try of an iteration whose losses are all 1."""
        import torch

        losses = []
        for micro_batch in micro_batches:
            self.drills.at_boundary(iteration, micro_batch)
            self.now += 1.0
            loss = self.drills.alter_loss(torch.ones(()), micro_batch, num_replicas=4)
            losses.append(float(loss))
        self.drills.before_vote()
        return losses


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_without_a_drill_nothing_happens(stage: Stage) -> None:
    assert stage.iterate(1, [0, 1, 2]) == [1, 1, 1]
    assert stage.now == 103


@pytest.mark.parametrize("count", [1, 2])
def test_nan_strikes_the_same_micro_batch_as_often_as_asked(stage: Stage, count: int) -> None:
    stage.asked = RankFault(kind="nan", count=count)
    for attempt in range(3):
        losses = stage.iterate(7, [3, 4, 5])
        assert math.isnan(losses[0]) == (attempt < count)
        assert losses[1:] == [1, 1]


def test_spike_lifts_the_mean_of_all_replicas_and_ends(stage: Stage) -> None:
    stage.asked = RankFault(kind="spike", factor=6.0, count=2)
    for iteration in (7, 8):
        [loss] = stage.iterate(iteration, [0])
        assert (loss + 3) / 4 == 6, "the three other replicas have a loss of 1"
    assert stage.iterate(9, [0]) == [1]


def test_slow_rank_takes_half_as_long_again(stage: Stage) -> None:
    stage.iterate(6, [0, 1])
    stage.asked = RankFault(kind="slow", factor=1.5, count=3)
    stage.iterate(7, [0, 1, 2])
    began = stage.now
    stage.iterate(8, [0, 1, 2])
    assert stage.now - began == 4.5
    stage.iterate(9, [0, 1, 2])
    began = stage.now
    stage.iterate(10, [0, 1, 2])
    assert stage.now - began == 3


def test_what_lasts_ends_with_the_generation(stage: Stage) -> None:
    stage.asked = RankFault(kind="spike", factor=6.0, count=100)
    stage.iterate(1, [0])
    stage.drills.forget()
    assert stage.iterate(2, [0]) == [1]


@pytest.mark.parametrize("status", RAISED_BY_STATUS)
def test_exception_of_a_status_is_the_real_class_with_the_real_words(
    stage: Stage, status: str
) -> None:
    stage.asked = RankFault(kind="raise", status=status)
    words = RAISED_BY_STATUS[status]
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the classes are what is tested
        stage.iterate(1, [0])
    assert type(caught.value).__name__ == words.exception
    assert caught.value.args == (words.whole_message,)
    assert stage.iterate(1, [0]) == [1]


def test_exception_without_a_status_is_the_drills_own(stage: Stage) -> None:
    stage.asked = RankFault(kind="raise")
    with pytest.raises(DrillError, match="drill: exception in micro-batch 0"):
        stage.iterate(1, [0])


def test_full_disk_is_a_real_refusal_of_the_kernel(stage: Stage) -> None:
    stage.asked = RankFault(kind="write_full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        stage.iterate(1, [0])
    assert caught.value.errno == 28
