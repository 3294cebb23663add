"""What becomes of gradients inside a model replica once they are summed over all replicas.

Megatron's ``finalize_model_grads`` reduces over the replicas, adds sums inside the replica, and
divides by the number of tokens, all in one call and in place. Here are the sums inside the replica
alone, by Megatron's own functions, so that a loop that reduces by itself can repeat them from the
reduced gradients. Beside them the norm that the vote needs.

Both work on ``main_grad``, where Megatron's wrapper accumulates.
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


# In Megatron's order. Each adds over its group only what its ranks hold in part or twice.
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
    """Add, in place, what Megatron adds inside a replica after the reduction over the replicas.

    These are the gradients of LayerNorm and biases over the tensor-parallel ranks with sequence
    parallelism, and those of tied embeddings over the first and the last pipeline stage. Nothing is
    divided by a number of tokens. A gradient that is summed is summed anew by every call: restore
    the reduced gradients before a second one. Mixture-of-experts routers, which Megatron updates
    here too, are not: ``support`` refuses them.

    All ranks of the replica must call it. Replicas have nothing to do with each other in it.

    Args:
        chunks: The model of this rank, one wrapper per chunk.
        after_step: Called with a step's name when it is done, on every rank and for every step,
            also those that have nothing to add.
    """
    config = get_model_config(chunks[0])
    for name, step in _STEPS.items():
        step(list(chunks), config)
        after_step(name)


def squared_grad_norm(model: DistributedDataParallel, place: Place) -> float:
    """Return this rank's part of the squared L2 norm of the gradient of the whole model.

    The sum over all ranks of the task is the squared norm: of a parameter that several ranks hold,
    one counts. That is the first replica's, the first tensor-parallel rank's of one that is not
    split, and the first stage's of tied embeddings. Right only after ``finalise_in_replica``.
    """
    if place.dp_rank != 0:
        return 0.0
    norms = [
        torch.linalg.vector_norm(parameter.main_grad)
        for parameter in model.module.parameters()
        if parameter.requires_grad
        and param_is_not_shared(parameter)
        and param_is_not_tensor_parallel_duplicate(parameter)
    ]
    return float(torch.stack(norms).double().square().sum()) if norms else 0.0
