"""Losses and gradients of the built-in model for every layout and option, on real gloo ranks."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nodeagent.protocol.rank_launch import TrainingSpec
from profiles.layout import Layout
from profiles.model import ModelShape
from tests.fakes.model_cases import TINY, Case, ModelRanks, Result, model_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

Run = Callable[..., Result]

TIED = TINY.model_copy(update={"share_embeddings_and_output_weights": True})
SEQUENCE_PARALLEL = TINY.model_copy(update={"sequence_parallel": True})
DROPOUT = TINY.model_copy(update={"hidden_dropout": 0.1, "attention_dropout": 0.1})
EVERYTHING = DROPOUT.model_copy(
    update={"sequence_parallel": True, "share_embeddings_and_output_weights": True}
)
BF16 = EVERYTHING.model_copy(update={"bf16": True})
FULL_RECOMPUTATION = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
ATTENTION_RECOMPUTATION = {
    "recompute_granularity": "selective",
    "recompute_modules": ["core_attn"],
}


def thorough(*values: object) -> object:
    """Return a parameter set of a test that only the thorough run takes."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def assert_equal(one: Result, other: Result) -> None:
    """Fail unless losses and gradients are equal up to float32 rounding."""
    assert other.outcome.losses == pytest.approx(one.outcome.losses, rel=1e-6)
    assert other.outcome.grad_norms == pytest.approx(one.outcome.grad_norms, rel=1e-5)
    expected, found = one.gradients(), other.gradients()
    # The last stage's copy of tied embeddings is the same parameter once more.
    assert found.keys() - {"output_layer.weight"} == expected.keys() - {"output_layer.weight"}
    names = sorted(expected)
    difference = np.concatenate([(expected[name] - found[name]).ravel() for name in names])
    whole = np.concatenate([expected[name].ravel() for name in names])
    assert np.linalg.norm(difference) <= 1e-5 * np.linalg.norm(whole)


@pytest.fixture(scope="module")
def models() -> Iterator[ModelRanks]:
    with model_ranks() as started:
        yield started


@pytest.fixture
def run(models: ModelRanks, tmp_path: Path) -> Run:
    """Return a function that trains a model for three iterations on a layout."""
    numbers = itertools.count()

    def run(model: ModelShape, layout: Layout, *, seed: int = 1, **settings: object) -> Result:
        training = TrainingSpec(
            model=model,
            checkpoint_dir=str(tmp_path),
            num_micro_batches=6,
            num_iterations=3,
            seed=seed,
        )
        out_dir = tmp_path / str(next(numbers))
        fields = {"training": training, "layout": layout, "out_dir": out_dir, **settings}
        return models.run(Case.model_validate(fields))

    return run


@pytest.mark.parametrize(
    "layout",
    [
        Layout(dp=2),
        thorough(Layout(dp=3)),
        thorough(Layout(tp=2)),
        thorough(Layout(pp=2)),
        Layout(tp=2, pp=2),
    ],
    ids=str,
)
def test_every_layout_gives_the_same_gradients(run: Run, layout: Layout) -> None:
    assert_equal(run(TINY, Layout()), run(TINY, layout))


@pytest.mark.parametrize(
    "layout",
    [
        thorough(Layout(pp=2)),
        thorough(Layout(tp=2)),
        Layout(tp=2, pp=2),
    ],
    ids=str,
)
def test_tied_embeddings_train_alike_on_every_layout(run: Run, layout: Layout) -> None:
    alone, spread = run(TIED, Layout()), run(TIED, layout)
    assert_equal(alone, spread)
    copy = spread.gradients().get("output_layer.weight")
    assert (copy is None) == (layout.pp == 1)
    if copy is not None:
        assert np.array_equal(copy, spread.gradients()["embedding.word_embeddings.weight"])
    assert alone.outcome.losses != run(TINY, Layout()).outcome.losses


@pytest.mark.parametrize("layout", [thorough(Layout(tp=2)), Layout(tp=2, pp=2)], ids=str)
def test_sequence_parallelism_changes_no_gradient(run: Run, layout: Layout) -> None:
    assert_equal(run(TINY, Layout()), run(SEQUENCE_PARALLEL, layout))


@pytest.mark.parametrize("dp", [thorough(2), 3])
def test_dropout_does_not_depend_on_the_number_of_replicas(run: Run, dp: int) -> None:
    assert_equal(run(DROPOUT, Layout()), run(DROPOUT, Layout(dp=dp)))


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        thorough(DROPOUT, Layout(tp=2)),
        (DROPOUT, Layout(pp=2)),
        (EVERYTHING, Layout(tp=2)),
        thorough(BF16, Layout(tp=2)),
        (BF16, Layout(pp=2)),
    ],
    ids=["tp2", "pp2", "sequence parallel", "bfloat16 tp2", "bfloat16 pp2"],
)
def test_dropout_on_a_split_model_does_not_depend_on_the_number_of_replicas(
    run: Run, model: ModelShape, layout: Layout
) -> None:
    more = Layout(tp=layout.tp, pp=layout.pp, dp=2)
    assert_equal(run(model, layout), run(model, more))


def test_equal_runs_are_bit_identical_with_dropout_and_different_without(run: Run) -> None:
    layout = Layout(tp=2, pp=2)
    one, other = run(EVERYTHING, layout), run(EVERYTHING, layout)
    assert one.outcome == other.outcome
    gradients = other.gradients()
    for name, gradient in one.gradients().items():
        assert np.array_equal(gradient, gradients[name]), name
    plain = EVERYTHING.model_copy(update={"hidden_dropout": 0.0, "attention_dropout": 0.0})
    assert run(plain, layout).outcome.losses != one.outcome.losses
    assert run(EVERYTHING, layout, seed=2).outcome.losses != one.outcome.losses


@pytest.mark.parametrize("option", ["hidden_dropout", "attention_dropout"])
def test_each_kind_of_dropout_counts(run: Run, option: str) -> None:
    model = TINY.model_copy(update={option: 0.1})
    assert run(model, Layout()).outcome.losses != run(TINY, Layout()).outcome.losses


@pytest.mark.parametrize("model", [DROPOUT, BF16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("layout", [thorough(Layout()), Layout(pp=2)], ids=str)
def test_the_order_of_micro_batches_changes_no_dropout(
    run: Run, model: ModelShape, layout: Layout
) -> None:
    assert_equal(run(model, layout), run(model, layout, is_reversed=True))


@pytest.mark.parametrize(
    "layout",
    [thorough(Layout()), Layout(pp=2), thorough(Layout(tp=2)), Layout(tp=2, dp=2)],
    ids=str,
)
def test_no_backward_pass_draws_random_numbers(run: Run, layout: Layout) -> None:
    assert run(DROPOUT, layout).outcome.num_draws_in_backward == 0


@pytest.mark.parametrize(
    "config", [FULL_RECOMPUTATION, ATTENTION_RECOMPUTATION], ids=["full", "attention"]
)
@pytest.mark.parametrize(
    ("model", "layout"),
    [
        thorough(DROPOUT, Layout(pp=2)),
        thorough(DROPOUT, Layout(tp=2)),
        (EVERYTHING, Layout(tp=2)),
    ],
    ids=["pp2", "tp2", "sequence parallel"],
)
def test_recomputed_activations_repeat_their_dropout(
    run: Run, model: ModelShape, layout: Layout, config: dict[str, object]
) -> None:
    kept, recomputed = run(model, layout), run(model, layout, config=config)
    # The same operations on the same numbers: bit-identical, and the generators are put back.
    assert recomputed.outcome == kept.outcome


def test_outputs_that_a_stage_lets_go_change_nothing(run: Run) -> None:
    kept = run(EVERYTHING, Layout(pp=2))
    let_go = run(EVERYTHING, Layout(pp=2), config={"deallocate_pipeline_outputs": True})
    assert let_go.outcome == kept.outcome


@pytest.mark.parametrize("layout", [Layout(tp=2), Layout(pp=2), Layout(tp=2, pp=2)], ids=str)
def test_finalising_does_what_megatron_does_and_can_be_repeated(run: Run, layout: Layout) -> None:
    ours = run(EVERYTHING, layout)
    megatrons = run(EVERYTHING, layout, is_finalised_by_megatron=True)
    assert ours.outcome == megatrons.outcome
    assert ours.outcome.is_repeatable
    theirs = megatrons.gradients()
    for name, gradient in ours.gradients().items():
        assert np.array_equal(gradient, theirs[name]), name


@pytest.mark.parametrize("alone", [0, 1])
def test_a_stage_with_tied_embeddings_is_built_without_the_other(run: Run, alone: int) -> None:
    waited = run(TIED, Layout(pp=2), builds_alone=alone)
    assert waited.outcome == run(TIED, Layout(pp=2)).outcome


def test_buckets_do_not_depend_on_the_number_of_replicas(run: Run) -> None:
    two = run(TINY, Layout(dp=2), bucket_size=5000).outcome.buckets
    three = run(TINY, Layout(dp=3), bucket_size=5000).outcome.buckets
    assert two[0] == two[1] == three[0] == three[1] == three[2]
    assert len(two[0]) == 5
    assert sorted(name for bucket in two[0] for name in bucket) == sorted(
        run(TINY, Layout()).gradients()
    )


def test_without_a_bucket_size_a_small_model_has_one_bucket(run: Run) -> None:
    assert [len(buckets) for buckets in run(TINY, Layout(dp=2)).outcome.buckets] == [1, 1]
