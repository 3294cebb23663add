"""The pieces of a Megatron training loop that recovery in process needs, and nothing else.

A training program is a function from a ``Context`` to a ``Loop``: the parts that ``train_step`` of
Megatron-LM has. The built-in GPT is one of them (``builtin``); the guide for one's own is
``docs/own-training-loop.md``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.protocol.rank_launch import TrainingSpec
from nodeagent.rank.groups.random_state import reseed
from nodeagent.rank.groups.rank_place import Place
from nodeagent.rank.state.sharded_adam import ShardedOptimizer
from profiles.training_program import Option

LossFunction = Callable[[torch.Tensor], tuple[Any, ...]]
ForwardStep = Callable[[Iterator[Any], torch.nn.Module], tuple[torch.Tensor, LossFunction]]
"""Megatron's ``forward_step_func``: draws one micro-batch from the iterator, returns the model's output
and the function that makes the loss of it. That function returns what Megatron's schedules take:
``(loss, reported)`` for a mean over the micro-batch, or ``(loss, num_tokens, reported)`` for a sum
over the tokens that count. What is reported is not used."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a training program is told when it is to build its loop.

    The process groups of the first generation are formed, and torch's generators are seeded. A
    replacement builds while its peers keep what they have, so the program must not communicate.

    Attributes:
        training: Settings of the task.
        place: Where this rank stands in the layout, and its device.
    """

    training: TrainingSpec
    place: Place

    @property
    def device(self) -> torch.device:
        """Device of this rank's tensors."""
        return self.place.device

    @property
    def seed(self) -> int:
        """Seed of the task."""
        return self.training.seed

    @property
    def options(self) -> Mapping[str, Option]:
        """The program's own options, as the task's settings have them."""
        return self.training.program.options if self.training.program else {}

    def reseed(self, iteration: int, index: int) -> None:
        """Set torch's and Megatron's generators for one micro-batch; for ``Loop.reseed``.

        A rank that goes on keeps its pipeline stage and its tensor-parallel rank, all of the place
        that counts here.
        """
        reseed(self.seed, iteration, index, self.place)


@dataclass(frozen=True, slots=True)
class Loop:
    """One rank's training program.

    Attributes:
        chunks: The model, wrapped in Megatron's DDP; one chunk.
        optimizer: Megatron's optimizer over the chunks. Its state is sharded by the rank, where the
            task wants that.
        forward_step: As for Megatron's schedules.
        micro_batch: Returns micro-batch ``index`` of the global batch of ``iteration``; it must give
            the same one on every rank and every time. The iterator of ``forward_step`` yields it.
        num_micro_batches: Micro-batches of the global batch, over all replicas.
        micro_batch_size: Samples of one micro-batch.
        seq_length: Tokens of one sample.
        reseed: Sets all random generators from (iteration, index), before each forward pass;
            ``Context.reseed`` where torch's and Megatron's are all.
        max_grad_norm: Gradients are scaled down to this L2 norm; 0 leaves them as they are.
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
    reseed: Callable[[int, int], None]
    max_grad_norm: float = 1.0
    before_step: Callable[[int], None] = lambda _iteration: None
