"""A checkpoint is read on every layout, and gives the whole model back bit for bit."""

from collections.abc import Iterator

import pytest

from nodeagent.protocol.training import TrainingSpec
from profiles.layout import Layout
from tests.fakes.checkpoint_cases import Case, CheckpointRanks, Step, checkpoint_ranks, is_equal

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]

LAYOUTS = [Layout(), Layout(dp=4), Layout(dp=3), Layout(pp=2), Layout(tp=2, pp=2)]
SAVE = [Step(do="train", times=2), Step(do="save"), Step(do="dump", name="saved")]
LOAD = [Step(do="load"), Step(do="dump", name="loaded")]


@pytest.fixture(scope="module")
def ranks() -> Iterator[CheckpointRanks]:
    with checkpoint_ranks() as started:
        yield started


@pytest.mark.parametrize("after", LAYOUTS, ids=str)
def test_whole_model_is_the_same_on_another_layout(
    ranks: CheckpointRanks, training: TrainingSpec, after: Layout
) -> None:
    before = ranks.run_well(Case(training=training, layout=Layout(tp=2, dp=2), steps=SAVE))
    outcome = ranks.run_well(Case(training=training, layout=after, steps=LOAD, generation=2))

    assert [found.loaded for found in outcome.all] == [[2]] * after.num_workers
    saved = before.dump("saved")
    assert {name.rpartition(":")[2] for name in saved} == {
        "parameter",
        "exp_avg",
        "exp_avg_sq",
        "step",
    }
    assert is_equal(outcome.dump("loaded"), saved)
