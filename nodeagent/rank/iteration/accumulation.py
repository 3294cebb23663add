"""The first phase of an iteration: gradients of micro-batches go into the replica's sums.

Megatron's schedules run the passes. This module records which micro-batches the sums hold. After a
fault in another replica this one keeps its sums and computes only the missing micro-batches.

Without pipeline stages a micro-batch is complete when the next one begins. With pipeline stages
several are in progress at a time, and all are complete when the schedule ends.

A replica of one rank halts between two micro-batches. A replica of several ranks can't: its ranks
would stop at different micro-batches and wait for each other. It finishes its share, so no result
is lost.

After the reduction over all replicas follow the sums inside the replica. Megatron's
``finalize_model_grads`` does three things in one call and in place: it reduces over the replicas,
adds sums inside the replica, and divides by the number of tokens. ``finalise_in_replica`` does only
the sums inside the replica, by Megatron's own functions. So they can be repeated from the reduced
gradients after a fault. It also computes the gradient norm for the vote.

Both work on ``main_grad``, where Megatron's wrapper accumulates gradients.
"""

from collections.abc import Callable, Iterator, Sequence
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
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import param_is_not_tensor_parallel_duplicate
from megatron.core.transformer.module import param_is_not_shared
from megatron.core.utils import get_model_config

from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.iteration.ledger import Ledger
from nodeagent.rank.program.loop import Loop, LossFunction

_Step = Callable[[list[DistributedDataParallel], Any], None]


class Accumulation:
    """Runs micro-batches of one loop. One per process.

    Args:
        loop: The training program.
        ledger: Counts the complete micro-batches.
        at_boundary: Called before each micro-batch with its index. This rank may stop there.
        alter_loss: Called with the loss of each micro-batch, its index and the number of replicas;
            returns the loss that counts.
    """

    def __init__(
        self,
        loop: Loop,
        ledger: Ledger,
        at_boundary: Callable[[int], None],
        alter_loss: Callable[[torch.Tensor, int, int], torch.Tensor],
    ) -> None:
        self._loop = loop
        self._ledger = ledger
        self._at_boundary = at_boundary
        self._alter_loss = alter_loss
        self._num_replicas = 1
        self._is_pipeline = False
        self._under_way: dict[int, tuple[torch.Tensor, torch.Tensor] | None] = {}

    def run(self, place: Place, indices: Sequence[int]) -> None:
        """Add the gradients of these micro-batches of the running iteration to the sums.

        Raises:
            Exception: Any error of the program or of a collective. The ledger says what the sums
                hold.
        """
        # After a fault the sums may have been set to zero: these entries would be counted wrongly.
        self._under_way = {}
        if not indices:
            return
        self._is_pipeline = place.layout.pp > 1
        self._num_replicas = place.layout.dp
        if self._is_pipeline:
            # Several micro-batches are in progress at once, so no moment before the end is clean.
            self._ledger.tear()
        loop = self._loop
        forward_backward: Any = get_forward_backward_func()
        forward_backward(
            forward_step_func=self._forward_step,
            data_iterator=iter(indices),
            model=loop.chunks,
            num_microbatches=len(indices),
            seq_length=loop.seq_length,
            micro_batch_size=loop.micro_batch_size,
            forward_only=False,
        )
        self._count_all()

    def _forward_step(
        self, indices: Iterator[int], model: torch.nn.Module
    ) -> tuple[torch.Tensor, LossFunction]:
        index = next(indices)
        if not self._is_pipeline:
            # Megatron begins this one only after the backward pass of the previous one.
            self._count_all()
        self._at_boundary(index)
        iteration = self._ledger.iteration
        # Before the data is drawn: a recomputed micro-batch must see the same random numbers.
        self._loop.reseed(iteration, index)
        self._under_way[index] = None
        batch = self._loop.micro_batch(iteration, index)
        output, loss_function = self._loop.forward_step(iter((batch,)), model)

        def counted_loss(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, object]:
            loss, num_tokens, reported = _as_sum(loss_function(tensor))
            loss = self._alter_loss(loss, index, self._num_replicas)
            # A copy on the device: reading the number here would make the host wait for the GPU.
            self._under_way[index] = (loss.detach().clone(), num_tokens)
            return loss, num_tokens, reported

        # After the forward pass gradients may arrive in the sums at any time.
        self._ledger.tear()
        return output, counted_loss

    def _count_all(self) -> None:
        for index, loss in self._under_way.items():
            # A stage that computes no loss counts its micro-batches too, with a loss of zero.
            self._ledger.count(index, *(loss or (0.0, 0.0)))
        self._under_way = {}


def _as_sum(returned: tuple[Any, ...]) -> tuple[torch.Tensor, torch.Tensor, object]:
    """Return loss, weight and report: losses and gradients become sums over micro-batches.

    With ``calculate_per_token_loss`` Megatron divides neither. The sum of the weights divides both
    at the end. A mean over the micro-batch has weight 1.
    """
    if len(returned) == 3:
        loss, num_tokens, reported = returned
        return loss, num_tokens.to(torch.int), reported
    loss, reported = returned
    return loss, torch.ones((), dtype=torch.int, device=loss.device), reported


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
