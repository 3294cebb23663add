"""A checkpoint is read on every layout, and gives the whole model back bit for bit."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from tests.fakes.checkpoint_cases import Case, CheckpointRanks, Step, is_equal

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]

LAYOUTS = [
    pytest.param(Layout(), marks=pytest.mark.thorough),
    pytest.param(Layout(dp=4), marks=pytest.mark.thorough),
    Layout(dp=3),
    pytest.param(Layout(pp=2), marks=pytest.mark.thorough),
    Layout(tp=2, pp=2),
]
SAVE = [Step(do="train", times=2), Step(do="save"), Step(do="dump", name="saved")]
LOAD = [Step(do="load"), Step(do="dump", name="loaded")]


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


@pytest.mark.parametrize(
    ("before", "is_sharded_before", "after", "is_sharded_after", "bf16"),
    [
        (Layout(tp=2, dp=2), True, Layout(dp=3), True, False),
        (Layout(dp=3), True, Layout(tp=2), False, False),
        (Layout(pp=2), False, Layout(tp=2, dp=2), True, False),
        (Layout(tp=2, dp=2), True, Layout(pp=2), False, True),
        pytest.param(Layout(pp=2), False, Layout(dp=3), True, True, marks=pytest.mark.thorough),
    ],
    ids=str,
)
def test_sharded_optimizer_state_is_the_same_on_another_layout(
    ranks: CheckpointRanks,
    training: TrainingSpec,
    before: Layout,
    after: Layout,
    *,
    is_sharded_before: bool,
    is_sharded_after: bool,
    bf16: bool,
) -> None:
    model = training.model.model_copy(update={"bf16": bf16})
    training = training.model_copy(update={"model": model})
    saving = Case(training=training, layout=before, steps=SAVE, is_sharded=is_sharded_before)
    saved = ranks.run_well(saving).dump("saved")
    loading = Case(
        training=training, layout=after, steps=LOAD, generation=2, is_sharded=is_sharded_after
    )
    loaded = ranks.run_well(loading).dump("loaded")
    assert not any(np.isnan(array).any() for array in loaded.values())
    assert is_equal(loaded, saved)
    copies = {name for name in saved if name.endswith(":fp32_param")}
    assert len(copies) == bf16 * len(saved) / 5
    # Copies in float32 hold more than the model's own parameters.
    own = {name: name.replace("fp32_param", "parameter") for name in copies}
    assert any(not np.array_equal(saved[name], saved[own[name]]) for name in copies) is bf16


def test_tied_embeddings_and_dropout_make_no_difference(
    ranks: CheckpointRanks, training: TrainingSpec
) -> None:
    tied = training.model.model_copy(update={"share_embeddings_and_output_weights": True})
    spec = training.model_copy(update={"model": tied})
    saved = ranks.run_well(Case(training=spec, layout=Layout(pp=2), steps=SAVE)).dump("saved")
    other = tied.model_copy(update={"hidden_dropout": 0.1})
    spec = spec.model_copy(update={"model": other})
    loading = Case(training=spec, layout=Layout(tp=2), steps=LOAD, generation=2)
    loaded = ranks.run_well(loading).dump("loaded")
    # The last of two stages holds the tied matrix under a name of its own.
    assert is_equal(loaded, {name: saved[name] for name in loaded})
    assert {name.split(":")[0] for name in saved.keys() - loaded.keys()} <= {"output_layer.weight"}


def test_dcp_itself_reads_a_checkpoint(
    ranks: CheckpointRanks, training: TrainingSpec, tmp_path: Path
) -> None:
    case = Case(training=training, layout=Layout(tp=2, pp=2), steps=SAVE)
    saved = ranks.run_well(case).dump("saved")
    program = (
        "import json, sys, torch\n"
        "from torch.distributed.checkpoint.format_utils import dcp_to_torch_save\n"
        "dcp_to_torch_save(sys.argv[1], sys.argv[2])\n"
        "state = torch.load(sys.argv[2], weights_only=True)\n"
        "print(json.dumps({key: value.tolist() for key, value in state.items()}))\n"
    )
    arguments = [str(Path(training.checkpoint_dir) / "iter_0000002"), str(tmp_path / "whole.pt")]
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    whole = json.loads(finished.stdout)
    matrix = np.array(whole["embedding.word_embeddings.weight"], dtype=np.float32)
    assert matrix.tobytes() == saved["embedding.word_embeddings.weight:parameter"].tobytes()
    # Megatron stacks the layers into one tensor.
    layers = np.array(whole["decoder.layers.mlp.linear_fc2.weight"], dtype=np.float32)
    for number in range(2):
        name = f"decoder.layers.{number}.mlp.linear_fc2.weight:parameter"
        assert layers[number].tobytes() == saved[name].tobytes()
