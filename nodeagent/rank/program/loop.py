"""The parts of a Megatron training loop that recovery in process needs.

A training program is a function from a ``Context`` to a ``Loop``. A ``Loop`` has the parts of
Megatron-LM's ``train_step``. The built-in GPT is such a program (``builtin``).
``docs/own-training-loop.md`` is the guide for programs of users, which import both classes from
``nodeagent.public``.
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
"""Megatron's ``forward_step_func``.

It draws one micro-batch from the iterator, and returns the model's output and the loss function.
The loss function returns ``(loss, report)`` for a mean over the micro-batch, or ``(loss,
num_tokens, report)`` for a sum over the tokens that count. The report is not used.
"""


@dataclass(frozen=True, slots=True)
class Context:
    """The input of a training program when it builds its loop.

    The process groups of the first generation are formed, and torch's generators are seeded. A
    replacement builds while its peers keep their models, so the program must not communicate.

    Attributes:
        training: Settings of the task.
        place: The place of this rank in the layout, and its device.
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
        """The program's own options, from the task's settings."""
        return self.training.program.options if self.training.program else {}

    def reseed(self, iteration: int, index: int) -> None:
        """Set torch's and Megatron's generators for one micro-batch. Pass it as ``Loop.reseed``.

        It uses the pipeline stage and the tensor-parallel rank, which a rank keeps over
        generations.
        """
        reseed(self.seed, iteration, index, self.place)


@dataclass(frozen=True, slots=True)
class Loop:
    """One rank's training program.

    Attributes:
        chunks: The model, wrapped in Megatron's DDP; exactly one chunk.
        optimizer: Megatron's optimizer over the chunks. If the task asks for it, the rank shards
            its state.
        forward_step: The function for Megatron's schedules.
        micro_batch: Returns micro-batch ``index`` of the global batch of ``iteration``. The result
            must be the same on every rank and in every call. The iterator of ``forward_step``
            yields it.
        num_micro_batches: Micro-batches of the global batch, over all replicas.
        micro_batch_size: Samples of one micro-batch.
        seq_length: Tokens of one sample.
        reseed: Sets all random generators from (iteration, index), before each forward pass. Use
            ``Context.reseed`` if the program draws only from torch's and Megatron's generators.
        max_grad_norm: Gradients are scaled down to this L2 norm. 0 leaves them unchanged.
        before_step: Called before every optimizer step with the iteration, for instance to set the
            learning rate. It may depend on the iteration only.
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
