"""Which layouts can hold a model, and which options it may have."""

import pytest
from pydantic import ValidationError

from profiles.layout import Layout
from profiles.model import ModelShape

SHAPE = ModelShape(num_layers=4, hidden_size=32, num_attention_heads=4, seq_length=33)


@pytest.mark.parametrize(
    ("layout", "misfit"),
    [
        (Layout(tp=4, pp=4, dp=3), None),
        (Layout(tp=3), "num_attention_heads 4 is not a multiple of tp 3"),
        (Layout(pp=3), "num_layers 4 is not a multiple of pp 3"),
    ],
    ids=str,
)
def test_misfit_names_what_does_not_divide(layout: Layout, misfit: str | None) -> None:
    assert SHAPE.misfit(layout) == misfit


def test_sequence_that_tensor_parallel_ranks_cannot_share_is_a_misfit() -> None:
    shape = SHAPE.model_copy(update={"sequence_parallel": True})
    misfit = shape.misfit(Layout(tp=2))
    assert misfit == "seq_length 33 is not a multiple of tp 2, as sequence_parallel needs"
    assert shape.misfit(Layout()) is None
    assert SHAPE.misfit(Layout(tp=2)) is None


def test_options_are_off_unless_asked_for() -> None:
    assert (SHAPE.hidden_dropout, SHAPE.attention_dropout) == (0.0, 0.0)
    assert not SHAPE.share_embeddings_and_output_weights
    assert not SHAPE.sequence_parallel


@pytest.mark.parametrize("option", ["hidden_dropout", "attention_dropout"])
@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
def test_dropout_is_a_probability_below_one(option: str, value: float) -> None:
    with pytest.raises(ValidationError, match=option):
        ModelShape.model_validate(SHAPE.model_dump() | {option: value})
