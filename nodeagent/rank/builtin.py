"""The built-in training program: a GPT on bytes of a text, as a ``Loop``."""

import functools
from collections.abc import Iterator
from typing import Any

import torch
from megatron.core.optimizer import MegatronOptimizer

from nodeagent.protocol.training import TrainingSpec
from nodeagent.rank.data import MicroBatches
from nodeagent.rank.gpt import build_model, build_optimizer
from nodeagent.rank.loop import Loop, LossFunction
from nodeagent.rank.parallel import Place, building_alone
from nodeagent.rank.random_state import reseed
from nodeagent.rank.sharded import ShardedOptimizer

_MAX_GRAD_NORM = 1.0
"""The customary bound for GPT."""


def build_loop(spec: TrainingSpec, place: Place) -> Loop:
    """Return the program of this rank. The process groups must be formed."""
    with building_alone():
        model = build_model(spec.model, place, spec.seed, bucket_size=spec.bucket_size)
        optimizer: MegatronOptimizer | ShardedOptimizer
        optimizer = build_optimizer(model, spec.learning_rate)
        if spec.shard_optimizer:
            optimizer = ShardedOptimizer(optimizer)
    return Loop(
        chunks=[model],
        optimizer=optimizer,
        forward_step=_forward_step,
        micro_batch=MicroBatches(spec, place.device).get,
        num_micro_batches=spec.num_micro_batches,
        micro_batch_size=spec.micro_batch_size,
        seq_length=spec.model.seq_length,
        max_grad_norm=_MAX_GRAD_NORM,
        reseed=functools.partial(reseed, spec.seed, place=place),
    )


def _forward_step(
    batches: Iterator[Any], model: torch.nn.Module
) -> tuple[torch.Tensor, LossFunction]:
    batch = next(batches)
    return model(batch.tokens, batch.position_ids, None, labels=batch.labels), _mean_loss


def _mean_loss(loss_per_token: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    loss = loss_per_token.mean()
    return loss, loss.detach()
