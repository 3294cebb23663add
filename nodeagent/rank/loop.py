"""The pieces of a Megatron training loop that recovery in process needs, and nothing else.

Whoever brings a model of his own fills in a ``Loop``: the parts that ``train_step`` of Megatron-LM
has. The built-in GPT is one of them (``builtin``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.rank.sharded import ShardedOptimizer

LossFunction = Callable[[torch.Tensor], tuple[Any, ...]]
ForwardStep = Callable[[Iterator[Any], torch.nn.Module], tuple[torch.Tensor, LossFunction]]
"""Megatron's ``forward_step_func``: draws one micro-batch from the iterator, returns the model's output
and the function that makes the loss of it. That function returns what Megatron's schedules take:
``(loss, reported)`` for a mean over the micro-batch, or ``(loss, num_tokens, reported)``."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One rank's training program.

    Attributes:
        chunks: The model, wrapped in Megatron's DDP; one chunk.
        optimizer: Megatron's optimizer over the chunks; wrapped, to shard its state.
        forward_step: As for Megatron's schedules.
        micro_batch: Returns micro-batch ``index`` of the global batch of ``iteration``; it must give
            the same one on every rank and every time. The iterator of ``forward_step`` yields it.
        num_micro_batches: Micro-batches of the global batch, over all replicas.
        micro_batch_size: Samples of one micro-batch.
        seq_length: Tokens of one sample.
        max_grad_norm: Gradients are scaled down to this L2 norm; 0 leaves them as they are.
        reseed: Sets all random generators from (iteration, index), before each forward pass.
        before_step: Called before every optimizer step with the iteration, for instance to set the
            learning rate; a function of the iteration alone.
    """

    chunks: list[DistributedDataParallel]
    optimizer: MegatronOptimizer | ShardedOptimizer
    forward_step: ForwardStep
    micro_batch: Callable[[int, int], Any]
    num_micro_batches: int
    micro_batch_size: int
    seq_length: int
    max_grad_norm: float = 1.0
    reseed: Callable[[int, int], None] = lambda _iteration, _index: None
    before_step: Callable[[int], None] = lambda _iteration: None
