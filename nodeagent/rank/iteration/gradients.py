"""The sums of gradients inside a model replica, after the reduction over all replicas.

Megatron's ``finalize_model_grads`` does three things in one call and in place: it reduces over the
replicas, adds sums inside the replica, and divides by the number of tokens. This module does only
the sums inside the replica, by Megatron's own functions. So they can be repeated from the reduced
gradients after a fault. It also computes the gradient norm for the vote.

Both work on ``main_grad``, where Megatron's wrapper accumulates gradients.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.distributed.finalize_model_grads import (
    _allreduce_conditional_embedding_grads,
    _allreduce_non_tensor_model_parallel_grads,
    _allreduce_position_embedding_grads,
    _allreduce_word_embedding_grads,
)
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.module import param_is_not_shared
from megatron.core.utils import get_model_config

from nodeagent.rank.groups.rank_place import Place

_Step = Callable[[list[DistributedDataParallel], Any], None]


def _embedding_step(reduce: Callable[..., None], group: Callable[..., Any]) -> _Step:
    def step(chunks: list[DistributedDataParallel], config: object) -> None:
        pipeline = parallel_state.get_pipeline_model_parallel_group()
        reduce(chunks, config, group(check_initialized=False), pipeline)

    return step


# In Megatron's order. Each step adds only gradients that the ranks of its group hold in part or
# twice.
_STEPS: Final[dict[str, _Step]] = {
    "conditional embeddings": _allreduce_conditional_embedding_grads,
    "non-tensor-parallel": _allreduce_non_tensor_model_parallel_grads,
    "word embeddings": _embedding_step(
        _allreduce_word_embedding_grads, parallel_state.get_embedding_group
    ),
    "position embeddings": _embedding_step(
        _allreduce_position_embedding_grads, parallel_state.get_position_embedding_group
    ),
}


def finalise_in_replica(
    chunks: Sequence[DistributedDataParallel],
    after_step: Callable[[str], None] = lambda _: None,
) -> None:
    """Add gradients in place, as Megatron does inside a replica after the reduction.

    With sequence parallelism these are the gradients of LayerNorm and biases, over the
    tensor-parallel ranks. Gradients of tied embeddings are added over the first and the last
    pipeline stage. Nothing is divided by a number of tokens.

    The function is not idempotent: restore the reduced gradients before a second call. It does not
    update mixture-of-experts routers as Megatron does: ``in_process_support`` refuses such models.

    All ranks of the replica must call it. No other replica takes part.

    Args:
        chunks: The model of this rank, one wrapper per chunk.
        after_step: Called with a step's name when it is done, on every rank and for every step,
            also if the step had nothing to add.
    """
    config = get_model_config(chunks[0])
    for name, step in _STEPS.items():
        step(list(chunks), config)
        after_step(name)


def squared_grad_norm(model: DistributedDataParallel, place: Place) -> float:
    """Return this rank's part of the squared L2 norm of the gradient of the whole model.

    The sum over all ranks of the task is the squared norm of the whole model. A parameter that
    several ranks hold counts once: in the first replica, on the first tensor-parallel rank if it is
    not split, and in the first stage for tied embeddings. Call it after ``finalise_in_replica``.
    """
    # After the reduction all replicas hold the same gradients.
    if place.dp_rank != 0:
        return 0.0
    norms = [
        torch.linalg.vector_norm(parameter.main_grad)
        for parameter in model.module.parameters()
        if parameter.requires_grad
        and param_is_not_shared(parameter)
        and param_is_not_tensor_parallel_duplicate(parameter)
    ]
    # In float64: the vote adds these parts over all ranks, in an order that depends on the layout.
    return float(torch.stack(norms).double().square().sum()) if norms else 0.0
